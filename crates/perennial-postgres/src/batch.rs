//! Converts a batch of commits to the arrays that `commit_batch` takes.

use std::borrow::Cow;

use perennial_core::store::{Commit, InstanceRow, Outgoing, RowChange, TaskChange};
use perennial_core::{Attributes, Payload};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::arguments::{Arguments, Text};
use crate::connection::Argument;
use crate::new_rows::{NewRows, check_row, indexed_key};
use crate::row::{attributes_json, bound, exact, json, shard, status_code, storable, uuid};
use crate::task_changes::Tasks;
use crate::waves::{stages, waves};

/// The arrays, grouped by the letter that prefixes their names in `commit_batch`.
#[derive(Default)]
pub(crate) struct Batch<'c> {
    waves: i32,
    stages: i32,
    /// Set if any member inserts its instance.
    inserts: bool,
    /// Set if any member has other parts than a turn, its new instance and changed columns.
    has_more: bool,
    /// Set if any existing instance gets new attributes.
    reindexes: bool,
    members: Members<'c>,
    more_turns: MoreTurns<'c>,
    new: NewRows<'c>,
    changes: Changes<'c>,
    continuations: (Vec<i32>, Vec<i64>),
    attributes: AttributeRows<'c>,
    consumed: (Vec<i32>, Vec<i64>),
    seen: (Vec<i32>, Vec<i64>),
    tasks: Tasks<'c>,
    replies: (Vec<i32>, Vec<i64>, Vec<&'c [u8]>),
    sends: Sends<'c>,
}

#[derive(Default)]
struct Members<'c> {
    key: Vec<Uuid>,
    shard: Vec<i16>,
    epoch: Vec<i64>,
    wave: Vec<i32>,
    inserts: Vec<bool>,
    fired: Vec<Option<i64>>,
    execution: Vec<Option<i64>>,
    number: Vec<Option<i64>>,
    body: Vec<Option<&'c [u8]>>,
    checksum: Vec<Option<i32>>,
}

#[derive(Default)]
struct MoreTurns<'c> {
    member: Vec<i32>,
    execution: Vec<i64>,
    number: Vec<i64>,
    body: Vec<&'c [u8]>,
    checksum: Vec<i32>,
}

#[derive(Default)]
struct Changes<'c> {
    member: Vec<i32>,
    mask: Vec<i32>,
    status: Vec<Option<i16>>,
    execution: Vec<Option<i64>>,
    version: Vec<Text<'c>>,
    owed: Vec<Option<bool>>,
    wake: Vec<Option<i64>>,
    blocked: Vec<Text<'c>>,
    full: Vec<Option<bool>>,
    attributes: Vec<Text<'c>>,
    published: Vec<Text<'c>>,
    ended: Vec<Option<i64>>,
}

#[derive(Default)]
struct AttributeRows<'c> {
    member: Vec<i32>,
    send: Vec<Option<i32>>,
    name: Vec<Cow<'c, str>>,
    order: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Sends<'c> {
    member: Vec<i32>,
    stage: Vec<i32>,
    kind: Vec<i16>,
    key: Vec<Option<Uuid>>,
    id: Vec<Text<'c>>,
    dedupe: Vec<Text<'c>>,
    urgent: Vec<bool>,
    body: Vec<&'c [u8]>,
    good: Vec<Option<&'c [u8]>>,
    absent: Vec<Option<&'c [u8]>>,
    other: Vec<Option<&'c [u8]>>,
    replaces: Vec<bool>,
}

impl<'c> Batch<'c> {
    /// Builds the arrays from the commits that can be stored. The second value has one entry per commit; for a commit
    /// that cannot be stored, it gives the reason.
    pub(crate) fn of(commits: &'c [Commit]) -> (Batch<'c>, Vec<Result<(), String>>) {
        let checked: Vec<Result<(), String>> = commits.iter().map(check).collect();
        let storable =
            || commits.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()).map(|(it, _)| it);
        let mut batch = Batch::default();
        let waves = waves(storable());
        batch.waves = waves.last().copied().unwrap_or(0);
        for ((member, wave), number) in storable().zip(waves).zip(1..) {
            batch.add(member, wave, number);
        }
        (batch, checked)
    }

    fn add(&mut self, member: &'c Commit, wave: i32, number: i32) {
        self.members.add(member, wave);
        self.inserts |= member.insert.is_some();
        self.has_more |= has_more(member);
        for turn in &member.more_turns {
            self.more_turns.member.push(number);
            self.more_turns.execution.push(bound(turn.execution));
            self.more_turns.number.push(bound(turn.number));
            self.more_turns.body.push(&turn.bytes);
            self.more_turns.checksum.push(turn.checksum.cast_signed());
        }
        match &member.insert {
            Some(row) if member.change.is_empty() => self.add_row(number, None, row),
            Some(row) => {
                let mut row = InstanceRow::clone(row);
                member.change.apply(&mut row);
                self.add_changed_row(number, &row);
            }
            None if !member.change.is_empty() => {
                self.changes.add(number, &member.change);
                if let Some(attributes) = &member.change.attributes {
                    self.reindexes = true;
                    self.attributes.add(number, None, attributes);
                }
            }
            None => {}
        }
        if let Some(execution) = member.change.execution {
            self.continuations.0.push(number);
            self.continuations.1.push(bound(execution));
        }
        for consumed in &member.consumed {
            self.consumed.0.push(number);
            self.consumed.1.push(bound(*consumed));
        }
        for seen in &member.seen {
            self.seen.0.push(number);
            self.seen.1.push(bound(*seen));
        }
        self.tasks.add_all(number, &member.tasks);
        for reply in &member.replies {
            self.replies.0.push(number);
            self.replies.1.push(bound(reply.number));
            self.replies.2.push(&reply.body);
        }
        for (message, stage) in member.send.iter().zip(stages(&member.send)) {
            self.stages = self.stages.max(stage);
            self.sends.add(number, stage, message);
            if let Outgoing::Start { row, .. } = message {
                let send = i32::try_from(self.sends.member.len()).unwrap_or(i32::MAX);
                self.add_row(number, Some(send), row);
            }
        }
    }

    fn add_row(&mut self, member: i32, send: Option<i32>, row: &'c InstanceRow) {
        self.new.member.push(member);
        self.new.send.push(send);
        self.new.add(row);
        self.attributes.add(member, send, &row.attributes);
    }

    fn add_changed_row(&mut self, member: i32, row: &InstanceRow) {
        let mut rows = NewRows::default();
        rows.member.push(member);
        rows.send.push(None);
        rows.add(row);
        self.new.append(rows.into_owned());
        for (name, value) in &row.attributes {
            self.attributes.push(member, None, Cow::Owned(name.clone()), value);
        }
    }

    /// Number of members in the arrays.
    pub(crate) fn len(&self) -> usize {
        self.members.key.len()
    }

    /// The arguments of the function that follow the session and the clock. Those at the end that no member needs are
    /// left out, so that there are three forms of the call: for steps, for steps with starts and endings, and for all.
    pub(crate) fn arguments(&self) -> Vec<Argument<'_>> {
        let Batch {
            members: m, more_turns: x, new: n, changes: c, attributes: a, tasks: w, sends: o, ..
        } = self;
        let mut arguments = Arguments(vec![
            (&self.waves, Type::INT4),
            (&self.inserts, Type::BOOL),
            (&self.has_more, Type::BOOL),
        ]);
        arguments
            .uuids(&m.key)
            .shorts(&m.shard)
            .longs(&m.epoch)
            .ints(&m.wave)
            .bools(&m.inserts)
            .longs(&m.fired);
        arguments.longs(&m.execution).longs(&m.number).bytes(&m.body).ints(&m.checksum);
        if !self.has_more && n.member.is_empty() && c.member.is_empty() {
            return arguments.0;
        }
        arguments.ints(&n.member).ints(&n.send).uuids(&n.key).texts(&n.id).shorts(&n.shard);
        n.add_arguments(&mut arguments);
        arguments.ints(&c.member).ints(&c.mask).shorts(&c.status).longs(&c.execution).texts(&c.version);
        arguments.bools(&c.owed).longs(&c.wake).texts(&c.blocked).bools(&c.full).texts(&c.attributes);
        arguments.texts(&c.published).longs(&c.ended);
        if !self.has_more {
            return arguments.0;
        }
        arguments.0.extend([(&self.stages as _, Type::INT4), (&self.reindexes as _, Type::BOOL)]);
        arguments.ints(&x.member).longs(&x.execution).longs(&x.number).bytes(&x.body).ints(&x.checksum);
        arguments.ints(&self.continuations.0).longs(&self.continuations.1);
        arguments.ints(&a.member).ints(&a.send).texts(&a.name).bytes(&a.order);
        arguments.ints(&self.consumed.0).longs(&self.consumed.1).ints(&self.seen.0).longs(&self.seen.1);
        w.add_arguments(&mut arguments);
        arguments.ints(&self.replies.0).longs(&self.replies.1).bytes(&self.replies.2);
        arguments.ints(&o.member).ints(&o.stage).shorts(&o.kind).uuids(&o.key).texts(&o.id).texts(&o.dedupe);
        arguments
            .bools(&o.urgent)
            .bytes(&o.body)
            .bytes(&o.good)
            .bytes(&o.absent)
            .bytes(&o.other)
            .bools(&o.replaces);
        arguments.0
    }
}

/// Whether a member has other parts than a turn, its new instance and changed columns.
fn has_more(member: &Commit) -> bool {
    let Commit { more_turns, insert, change, consumed, seen, tasks, replies, send, fired_ms, .. } = member;
    let attributes = insert.as_ref().is_some_and(|row| !row.attributes.is_empty());
    let lists_are_empty = more_turns.is_empty()
        && consumed.is_empty()
        && seen.is_empty()
        && tasks.is_empty()
        && replies.is_empty()
        && send.is_empty();
    !lists_are_empty
        || attributes
        || change.attributes.is_some()
        || change.execution.is_some()
        || fired_ms.is_some()
}

impl<'c> Members<'c> {
    fn add(&mut self, member: &'c Commit, wave: i32) {
        self.key.push(uuid(member.key));
        self.shard.push(shard(member.shard));
        self.epoch.push(bound(member.epoch));
        self.wave.push(wave);
        self.inserts.push(member.insert.is_some());
        self.fired.push(member.fired_ms.map(bound));
        let turn = member.turn.as_ref();
        self.execution.push(turn.map(|turn| bound(turn.execution)));
        self.number.push(turn.map(|turn| bound(turn.number)));
        self.body.push(turn.map(|turn| &turn.bytes[..]));
        self.checksum.push(turn.map(|turn| turn.checksum.cast_signed()));
    }
}

impl<'c> Changes<'c> {
    fn add(&mut self, member: i32, change: &'c RowChange) {
        let RowChange {
            status,
            execution,
            version,
            owed,
            wake_at_ms,
            blocked,
            full,
            attributes,
            published,
            ended_ms,
        } = change;
        let changed = [
            status.is_some(),
            execution.is_some(),
            version.is_some(),
            owed.is_some(),
            wake_at_ms.is_some(),
            blocked.is_some(),
            full.is_some(),
            attributes.is_some(),
            published.is_some(),
            ended_ms.is_some(),
        ];
        self.member.push(member);
        self.mask.push(changed.iter().rev().fold(0, |mask, changed| mask << 1 | i32::from(*changed)));
        self.status.push(status.map(status_code));
        self.execution.push(execution.map(bound));
        self.version.push(version.as_deref().map(Cow::Borrowed));
        self.owed.push(*owed);
        self.wake.push(wake_at_ms.flatten().map(bound));
        let blocked = blocked.as_ref().and_then(Option::as_ref);
        self.blocked.push(blocked.and_then(|blocked| json(blocked).ok()).map(Cow::Owned));
        self.full.push(*full);
        let attributes =
            attributes.as_ref().and_then(|attributes| attributes_json(attributes).ok().flatten());
        self.attributes.push(attributes.map(Cow::Owned));
        let published = published.as_ref().and_then(Option::as_ref);
        self.published.push(published.map(|published| Cow::Borrowed(published.as_json())));
        self.ended.push(ended_ms.flatten().map(bound));
    }
}

impl<'c> AttributeRows<'c> {
    fn add(&mut self, member: i32, send: Option<i32>, attributes: &'c Attributes) {
        for (name, value) in attributes {
            self.push(member, send, Cow::Borrowed(name), value);
        }
    }

    fn push(&mut self, member: i32, send: Option<i32>, name: Cow<'c, str>, value: &Payload) {
        self.member.push(member);
        self.send.push(send);
        self.name.push(name);
        self.order.push(indexed_key(value));
    }
}

impl<'c> Sends<'c> {
    fn add(&mut self, member: i32, stage: i32, message: &'c Outgoing) {
        self.member.push(member);
        self.stage.push(stage);
        self.body.push(message.body());
        let (kind, key, id, dedupe, urgent) = match message {
            Outgoing::ToKey { to, dedupe, urgent, .. } => {
                (1, Some(uuid(*to)), None, dedupe.as_deref(), *urgent)
            }
            Outgoing::ToId { id, dedupe, urgent, .. } => (2, None, Some(&**id), dedupe.as_deref(), *urgent),
            Outgoing::Start { row, .. } => (3, Some(uuid(row.key)), Some(&*row.id), None, false),
        };
        self.kind.push(kind);
        self.key.push(key);
        self.id.push(id.map(Cow::Borrowed));
        self.dedupe.push(dedupe.map(Cow::Borrowed));
        self.urgent.push(urgent);
        let (good, absent, other, replaces) = match message {
            Outgoing::ToKey { .. } | Outgoing::ToId { report: None, .. } => (None, None, None, false),
            Outgoing::ToId { report: Some(report), .. } => {
                (Some(&*report.delivered), Some(&*report.not_found), Some(&*report.ended), false)
            }
            Outgoing::Start { otherwise, replaces_ended, started, .. } => {
                (started.as_deref(), None, otherwise.as_deref(), *replaces_ended)
            }
        };
        self.good.push(good);
        self.absent.push(absent);
        self.other.push(other);
        self.replaces.push(replaces);
    }
}

/// Checks that PostgreSQL can store every value of a member unchanged.
pub(crate) fn check(member: &Commit) -> Result<(), String> {
    for turn in member.turn.iter().chain(&member.more_turns) {
        exact(turn.execution)?;
        if exact(turn.number)? == 0 {
            return Err("turns are counted from 1".to_owned());
        }
    }
    if let Some(row) = &member.insert {
        check_row(row)?;
    }
    check_change(&member.change)?;
    for change in &member.tasks {
        let id = match change {
            TaskChange::Put(row) => {
                storable(&row.name)?;
                storable(row.tag.as_deref().unwrap_or_default())?;
                if !row.past.is_empty() {
                    storable(&json(&row.past)?)?;
                }
                row.id
            }
            TaskChange::Cancel(id) => *id,
        };
        exact(id.execution)?;
        exact(id.event.0)?;
    }
    for message in &member.send {
        match message {
            Outgoing::ToKey { dedupe, .. } | Outgoing::ToId { dedupe, .. } => {
                storable(dedupe.as_deref().unwrap_or_default())?;
            }
            Outgoing::Start { row, .. } => check_row(row)?,
        }
        if let Outgoing::ToId { id, .. } = message {
            storable(id)?;
        }
    }
    Ok(())
}

fn check_change(change: &RowChange) -> Result<(), String> {
    change.execution.map(exact).transpose()?;
    change.ended_ms.flatten().map(exact).transpose()?;
    storable(change.version.as_deref().unwrap_or_default())?;
    if let Some(Some(blocked)) = &change.blocked {
        json(blocked)?;
    }
    if let Some(attributes) = &change.attributes {
        attributes_json(attributes)?;
        attributes.keys().try_for_each(|name| storable(name).map(drop))?;
    }
    Ok(())
}

//! Commits a plain batch with one statement.
//!
//! Most members append a turn, and at most insert their instance or change its version, status and times, and consume
//! messages. If all members of a batch are of this kind, and no two concern the same instance, one statement does what
//! `commit_batch` does at a multiple of the cost: it has a few arguments and one plan, and needs no function with settings
//! of its own.
//!
//! The statement writes all members or none. It writes none if one of them is not simply the next turn of an instance of
//! an owned shard; then `commit_batch` determines the outcome of each. One snapshot is enough for the checks: it is taken
//! before the session row is locked, and whoever takes shards away or deletes instances of this session's shards that have
//! not ended deletes that row first. If a concurrent transaction inserts the same rows, the statement fails as a whole.

use std::borrow::Cow;
use std::sync::LazyLock;

use perennial_core::store::{Commit, InstanceRow, RowChange, SessionId, TurnRow};
use rustc_hash::FxHashSet;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::batch::check;
use crate::row::{bound, shard, status_code, uuid};

/// Stands for a time that is null. Arrays without nulls are subscripted in constant time.
const NO_TIME: i64 = -1;

/// Bits of [`Changes::mask`].
const STATUS: i32 = 1;
const OWED: i32 = 2;
const WAKE: i32 = 4;
const ENDED: i32 = 8;
const VERSION: i32 = 16;

/// The members' columns: first the members that insert their instances, by id, so that two batches with the same ids
/// cannot deadlock; then those that change the row; then the others.
#[derive(Default)]
pub(crate) struct PlainBatch<'c> {
    session: Uuid,
    /// The members' shards, without duplicates.
    shards: Vec<i16>,
    epochs: Vec<i64>,
    turns: Turns<'c>,
    starts: Starts<'c>,
    changes: Changes<'c>,
    consumed: Consumed,
}

#[derive(Default)]
struct Turns<'c> {
    key: Vec<Uuid>,
    execution: Vec<i64>,
    number: Vec<i64>,
    checksum: Vec<i32>,
    body: Vec<&'c [u8]>,
}

#[derive(Default)]
struct Starts<'c> {
    id: Vec<Cow<'c, str>>,
    name: Vec<Cow<'c, str>>,
    version: Vec<Cow<'c, str>>,
    shard: Vec<i16>,
    status: Vec<i16>,
    execution: Vec<i64>,
    owed: Vec<bool>,
    wake: Vec<i64>,
    created: Vec<i64>,
    ended: Vec<i64>,
    full: Vec<bool>,
    checksum: Vec<i32>,
}

#[derive(Default)]
struct Changes<'c> {
    mask: Vec<i32>,
    version: Vec<&'c str>,
    status: Vec<i16>,
    owed: Vec<bool>,
    wake: Vec<i64>,
    ended: Vec<i64>,
}

/// The messages that members have read.
#[derive(Default)]
struct Consumed {
    shard: Vec<i16>,
    number: Vec<i64>,
}

impl<'c> PlainBatch<'c> {
    /// The columns of a batch; `None` if it needs `commit_batch`.
    pub(crate) fn of(session: SessionId, commits: &'c [Commit]) -> Option<PlainBatch<'c>> {
        if commits.is_empty() {
            return None;
        }
        let mut batch = PlainBatch { session: Uuid::from_u128(session.0), ..PlainBatch::default() };
        let (mut starts, mut changes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut keys, mut numbers) = (FxHashSet::default(), FxHashSet::default());
        let mut shards = [None; perennial_core::SHARDS];
        for member in commits {
            let turn = plain_turn(member)?;
            if !keys.insert(member.key) || check(member).is_err() {
                return None;
            }
            match shards[usize::from(member.shard.0)].replace(member.epoch) {
                None => {
                    batch.shards.push(shard(member.shard));
                    batch.epochs.push(bound(member.epoch));
                }
                Some(epoch) if epoch == member.epoch => {}
                Some(_) => return None,
            }
            for number in &member.consumed {
                if !numbers.insert(*number) {
                    return None;
                }
                batch.consumed.shard.push(shard(member.shard));
                batch.consumed.number.push(bound(*number));
            }
            match &member.insert {
                Some(row) => starts.push((member, turn, plain_row(row, &member.change)?)),
                None if member.change.is_empty() => steps.push((member, turn)),
                None if is_plain_change(&member.change) => changes.push((member, turn)),
                None => return None,
            }
        }
        starts.sort_unstable_by(|(_, _, one), (_, _, other)| one.id.cmp(&other.id));
        if starts.windows(2).any(|pair| pair[0].2.id == pair[1].2.id) {
            return None;
        }
        for (member, turn, row) in starts {
            batch.turns.add(member, turn);
            batch.starts.add(row);
        }
        for (member, turn) in changes {
            batch.turns.add(member, turn);
            batch.changes.add(&member.change);
        }
        for (member, turn) in steps {
            batch.turns.add(member, turn);
        }
        Some(batch)
    }

    /// The statement for this batch. It inserts as many rows as the batch has members, or none.
    pub(crate) fn statement(&self) -> &'static str {
        static FORMS: LazyLock<[String; 8]> = LazyLock::new(|| {
            std::array::from_fn(|form| statement(form & 1 != 0, form & 2 != 0, form & 4 != 0))
        });
        let bit = |is_set: bool, bit: usize| if is_set { bit } else { 0 };
        &FORMS[bit(self.has_starts(), 1) | bit(self.has_changes(), 2) | bit(self.has_consumed(), 4)]
    }

    fn has_starts(&self) -> bool {
        !self.starts.id.is_empty()
    }

    fn has_changes(&self) -> bool {
        !self.changes.mask.is_empty()
    }

    fn has_consumed(&self) -> bool {
        !self.consumed.number.is_empty()
    }

    /// The arguments of the statement.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        let PlainBatch { session, shards, epochs, turns: t, starts: n, changes: c, consumed: d } = self;
        let mut arguments = Arguments(vec![(session, Type::UUID)]);
        arguments.shorts(shards).longs(epochs);
        arguments.uuids(&t.key).longs(&t.execution).longs(&t.number).ints(&t.checksum).bytes(&t.body);
        if self.has_starts() {
            arguments.texts(&n.id).texts(&n.name).texts(&n.version).shorts(&n.shard).shorts(&n.status);
            arguments.longs(&n.execution).bools(&n.owed).longs(&n.wake).longs(&n.created).longs(&n.ended);
            arguments.bools(&n.full).ints(&n.checksum);
        }
        if self.has_changes() {
            arguments.ints(&c.mask).shorts(&c.status).bools(&c.owed).longs(&c.wake).longs(&c.ended);
            arguments.texts(&c.version);
        }
        if self.has_consumed() {
            arguments.shorts(&d.shard).longs(&d.number);
        }
        arguments
    }
}

/// The turn of a member that has nothing but a turn, its new instance, changed columns and consumed messages.
fn plain_turn(member: &Commit) -> Option<&TurnRow> {
    let Commit { more_turns, seen, tasks, replies, send, fired_ms, insert, turn, .. } = member;
    let is_plain = fired_ms.is_none()
        && more_turns.is_empty()
        && seen.is_empty()
        && tasks.is_empty()
        && replies.is_empty()
        && send.is_empty();
    turn.as_ref().filter(|turn| is_plain && (turn.number == 1 || insert.is_none()))
}

/// The row that a member inserts, if the rarer columns are empty.
fn plain_row<'c>(row: &'c InstanceRow, change: &RowChange) -> Option<Cow<'c, InstanceRow>> {
    let mut row = Cow::Borrowed(row);
    if !change.is_empty() {
        change.apply(row.to_mut());
    }
    let is_plain = row.blocked.is_none()
        && row.attributes.is_empty()
        && row.published.is_none()
        && row.parent.is_none()
        && change.execution.is_none();
    is_plain.then_some(row)
}

/// Whether a change is about version, status and times alone.
fn is_plain_change(change: &RowChange) -> bool {
    let RowChange {
        status: _,
        owed: _,
        wake_at_ms: _,
        ended_ms: _,
        version: _,
        execution,
        blocked,
        full,
        attributes,
        published,
    } = change;
    execution.is_none() && blocked.is_none() && full.is_none() && attributes.is_none() && published.is_none()
}

fn time(at_ms: Option<u64>) -> i64 {
    at_ms.map_or(NO_TIME, bound)
}

impl<'c> Turns<'c> {
    fn add(&mut self, member: &Commit, turn: &'c TurnRow) {
        self.key.push(uuid(member.key));
        self.execution.push(bound(turn.execution));
        self.number.push(bound(turn.number));
        self.checksum.push(turn.checksum.cast_signed());
        self.body.push(&turn.bytes);
    }
}

impl<'c> Starts<'c> {
    fn add(&mut self, row: Cow<'c, InstanceRow>) {
        self.shard.push(shard(row.shard));
        self.status.push(status_code(row.status));
        self.execution.push(bound(row.execution));
        self.owed.push(row.owed);
        self.wake.push(time(row.wake_at_ms));
        self.created.push(bound(row.created_ms));
        self.ended.push(time(row.ended_ms));
        self.full.push(row.full);
        self.checksum.push(row.checksum.cast_signed());
        let (id, name, version) = match row {
            Cow::Borrowed(row) => {
                (Cow::Borrowed(&*row.id), Cow::Borrowed(&*row.name), Cow::Borrowed(&*row.version))
            }
            Cow::Owned(row) => (Cow::Owned(row.id), Cow::Owned(row.name), Cow::Owned(row.version)),
        };
        self.id.push(id);
        self.name.push(name);
        self.version.push(version);
    }
}

impl<'c> Changes<'c> {
    fn add(&mut self, change: &'c RowChange) {
        let RowChange { status, owed, wake_at_ms, ended_ms, version, .. } = change;
        let bit = |is_set: bool, bit: i32| if is_set { bit } else { 0 };
        let mask = bit(status.is_some(), STATUS)
            | bit(owed.is_some(), OWED)
            | bit(wake_at_ms.is_some(), WAKE)
            | bit(ended_ms.is_some(), ENDED)
            | bit(version.is_some(), VERSION);
        self.mask.push(mask);
        self.version.push(version.as_deref().unwrap_or_default());
        self.status.push(status.map_or(0, status_code));
        self.owed.push(owed.unwrap_or_default());
        self.wake.push(time(wake_at_ms.flatten()));
        self.ended.push(time(ended_ms.flatten()));
    }
}

/// The statement with or without its parts for new instances, for changed rows and for consumed messages.
///
/// It unpacks one array of each part and subscripts the others, which is faster than unpacking all of them. Each `OFFSET 0`
/// keeps a lookup by index, whatever the statistics of the tables were when the plan was made.
fn statement(has_starts: bool, has_changes: bool, has_consumed: bool) -> String {
    let first_start = 9;
    let first_change = first_start + if has_starts { 12 } else { 0 };
    let first_consumed = first_change + if has_changes { 6 } else { 0 };
    let n = |number: usize| format!("${}", first_start + number);
    let c = |number: usize| format!("${}", first_change + number);
    let d = |number: usize| format!("${}", first_consumed + number);
    let starts = if has_starts { format!("cardinality({})", n(0)) } else { "0".to_owned() };
    let mut checks = format!(
        "EXISTS (SELECT FROM plain_commit) AND NOT EXISTS (SELECT FROM @.graves) \
         AND (SELECT count(*) FROM unnest($2) WITH ORDINALITY AS o (shard, m), LATERAL ( \
             SELECT FROM @.shards AS s WHERE s.shard = o.shard AND s.session = $1 AND s.epoch = $3[o.m] OFFSET 0 \
         ) AS s) = cardinality($2) \
         AND (SELECT count(*) FROM generate_series({starts} + 1, cardinality($4)) AS m, LATERAL ( \
             SELECT FROM @.instances AS i WHERE i.key = $4[m] AND i.status < 2 OFFSET 0 \
         ) AS i LEFT JOIN LATERAL ( \
             SELECT u.number FROM @.turns AS u WHERE u.key = $4[m] AND u.execution = $5[m] \
             ORDER BY u.number DESC LIMIT 1 \
         ) AS last ON true WHERE coalesce(last.number, 0) = $6[m] - 1) = cardinality($4) - {starts}"
    );
    let mut writes = String::new();
    if has_starts {
        checks.push_str(&format!(
            " AND NOT EXISTS (SELECT FROM unnest({}) AS n (id), LATERAL ( \
                 SELECT FROM @.instances AS i WHERE i.id = n.id OFFSET 0) AS i)",
            n(0)
        ));
        writes.push_str(&format!(
            ", started AS ( \
             INSERT INTO @.instances (key, id, shard, name, version, status, execution, owed, wake_at_ms, created_ms, \
                 ended_ms, is_full, checksum) \
             SELECT $4[n.k], n.id, {}[n.k], n.name, n.version, {}[n.k], {}[n.k], {}[n.k], nullif({}[n.k], {NO_TIME}), \
                 {}[n.k], nullif({}[n.k], {NO_TIME}), {}[n.k], {}[n.k] \
             FROM unnest({}, {}, {}) WITH ORDINALITY AS n (id, name, version, k) WHERE (SELECT ok FROM checked))",
            n(3), n(4), n(5), n(6), n(7), n(8), n(9), n(10), n(11), n(0), n(1), n(2)
        ));
    }
    if has_changes {
        let set = |column: &str, bit: i32, value: String| {
            format!("{column} = CASE WHEN c.mask & {bit} <> 0 THEN {value} ELSE i.{column} END")
        };
        let columns = [
            set("status", STATUS, format!("{}[c.k]", c(1))),
            set("owed", OWED, format!("{}[c.k]", c(2))),
            set("wake_at_ms", WAKE, format!("nullif({}[c.k], {NO_TIME})", c(3))),
            set("ended_ms", ENDED, format!("nullif({}[c.k], {NO_TIME})", c(4))),
            set("version", VERSION, format!("{}[c.k]", c(5))),
        ];
        writes.push_str(&format!(
            ", changed AS (UPDATE @.instances AS i SET {} FROM unnest({}) WITH ORDINALITY AS c (mask, k) \
             WHERE (SELECT ok FROM checked) AND i.key = $4[{starts} + c.k])",
            columns.join(", "),
            c(0)
        ));
    }
    if has_consumed {
        checks.push_str(&format!(
            " AND (SELECT count(*) FROM unnest({0}) WITH ORDINALITY AS d (number, k), LATERAL ( \
                 SELECT FROM @.inbox AS b WHERE b.shard = {1}[d.k] AND b.number = d.number OFFSET 0 \
             ) AS b) = cardinality({0})",
            d(1),
            d(0)
        ));
        writes.push_str(&format!(
            ", consumed AS (DELETE FROM @.inbox AS b USING unnest({}) WITH ORDINALITY AS d (number, k) \
             WHERE (SELECT ok FROM checked) AND b.shard = {}[d.k] AND b.number = d.number)",
            d(1),
            d(0)
        ));
    }
    format!(
        "WITH plain_commit AS MATERIALIZED (SELECT FROM @.sessions WHERE id = $1 FOR KEY SHARE), \
         checked AS MATERIALIZED (SELECT {checks} AS ok){writes} \
         INSERT INTO @.turns (key, execution, number, checksum, body) \
         SELECT $4[t.m], $5[t.m], $6[t.m], $7[t.m], t.body FROM unnest($8) WITH ORDINALITY AS t (body, m) \
         WHERE (SELECT ok FROM checked)"
    )
}

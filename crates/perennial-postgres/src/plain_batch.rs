//! Commits a plain batch with one statement.
//!
//! Most members append a turn, and at most insert their instance or change its status and times. If all members of a batch
//! are of this kind, and no two concern the same instance, one statement does what `commit_batch` does at a multiple of
//! the cost: it has a few arguments and one plan, and needs no function with settings of its own.
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
    changes: Changes,
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
struct Changes {
    mask: Vec<i32>,
    status: Vec<i16>,
    owed: Vec<bool>,
    wake: Vec<i64>,
    ended: Vec<i64>,
}

impl<'c> PlainBatch<'c> {
    /// The columns of a batch; `None` if it needs `commit_batch`.
    pub(crate) fn of(session: SessionId, commits: &'c [Commit]) -> Option<PlainBatch<'c>> {
        if commits.is_empty() {
            return None;
        }
        let mut batch = PlainBatch { session: Uuid::from_u128(session.0), ..PlainBatch::default() };
        let (mut starts, mut changes, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let mut keys = FxHashSet::default();
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
        static FORMS: LazyLock<[String; 4]> = LazyLock::new(|| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(starts, changes)| statement(starts, changes))
        });
        let form = 2 * usize::from(self.has_starts()) + usize::from(self.has_changes());
        &FORMS[form]
    }

    fn has_starts(&self) -> bool {
        !self.starts.id.is_empty()
    }

    fn has_changes(&self) -> bool {
        !self.changes.mask.is_empty()
    }

    /// The arguments of the statement.
    pub(crate) fn arguments(&self) -> Arguments<'_> {
        let PlainBatch { session, shards, epochs, turns: t, starts: n, changes: c } = self;
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
        }
        arguments
    }
}

/// The turn of a member that has nothing but a turn, its new instance and changed columns.
fn plain_turn(member: &Commit) -> Option<&TurnRow> {
    let Commit { more_turns, consumed, seen, tasks, replies, send, fired_ms, insert, turn, .. } = member;
    let is_plain = fired_ms.is_none()
        && more_turns.is_empty()
        && consumed.is_empty()
        && seen.is_empty()
        && tasks.is_empty()
        && replies.is_empty()
        && send.is_empty();
    turn.as_ref().filter(|turn| is_plain && (turn.number == 1) == insert.is_some())
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

/// Whether a change is about status and times alone.
fn is_plain_change(change: &RowChange) -> bool {
    let RowChange {
        status: _,
        owed: _,
        wake_at_ms: _,
        ended_ms: _,
        execution,
        version,
        blocked,
        full,
        attributes,
        published,
    } = change;
    execution.is_none()
        && version.is_none()
        && blocked.is_none()
        && full.is_none()
        && attributes.is_none()
        && published.is_none()
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

impl Changes {
    fn add(&mut self, change: &RowChange) {
        let RowChange { status, owed, wake_at_ms, ended_ms, .. } = change;
        let bit = |is_set: bool, bit: i32| if is_set { bit } else { 0 };
        let mask = bit(status.is_some(), STATUS)
            | bit(owed.is_some(), OWED)
            | bit(wake_at_ms.is_some(), WAKE)
            | bit(ended_ms.is_some(), ENDED);
        self.mask.push(mask);
        self.status.push(status.map_or(0, status_code));
        self.owed.push(owed.unwrap_or_default());
        self.wake.push(time(wake_at_ms.flatten()));
        self.ended.push(time(ended_ms.flatten()));
    }
}

/// The statement with or without its parts for new instances and for changed rows.
///
/// It unpacks one array of each part and subscripts the others, which is faster than unpacking all of them. Each `OFFSET 0`
/// keeps a lookup by index, whatever the statistics of the tables were when the plan was made.
fn statement(has_starts: bool, has_changes: bool) -> String {
    let (first_start, count_of_starts) = (9, 12);
    let n = |number: usize| format!("${}", first_start + number);
    let c =
        |number: usize| format!("${}", first_start + number + if has_starts { count_of_starts } else { 0 });
    let starts = if has_starts { format!("cardinality({})", n(0)) } else { "0".to_owned() };
    let mut checks = format!(
        "EXISTS (SELECT FROM plain_commit) AND NOT EXISTS (SELECT FROM @.graves) \
         AND (SELECT count(*) FROM unnest($2) WITH ORDINALITY AS o (shard, m), LATERAL ( \
             SELECT FROM @.shards AS s WHERE s.shard = o.shard AND s.session = $1 AND s.epoch = $3[o.m] OFFSET 0 \
         ) AS s) = cardinality($2) \
         AND (SELECT count(*) FROM generate_series({starts} + 1, cardinality($4)) AS m, LATERAL ( \
             SELECT FROM @.instances AS i WHERE i.key = $4[m] AND i.status < 2 OFFSET 0 \
         ) AS i, LATERAL ( \
             SELECT u.number FROM @.turns AS u WHERE u.key = $4[m] AND u.execution = $5[m] \
             ORDER BY u.number DESC LIMIT 1 \
         ) AS last WHERE last.number = $6[m] - 1) = cardinality($4) - {starts}"
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
        ];
        writes.push_str(&format!(
            ", changed AS (UPDATE @.instances AS i SET {} FROM unnest({}) WITH ORDINALITY AS c (mask, k) \
             WHERE (SELECT ok FROM checked) AND i.key = $4[{starts} + c.k])",
            columns.join(", "),
            c(0)
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

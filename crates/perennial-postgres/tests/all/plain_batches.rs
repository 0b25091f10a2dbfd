//! A batch that one statement can commit has the outcomes and writes the rows that the function would.

use std::thread;
use std::time::{Duration, Instant};

use perennial_core::store::{Commit, CommitOutcome, InstanceRow, RowChange, SessionId, Status};
use perennial_postgres::open;
use perennial_testkit::conformance::Subject;
use perennial_testkit::conformance::instances::{
    Build, member, message, outgoing, row, start, start_request, status,
};
use perennial_testkit::postgres::{ServerOptions, TestServer};

use crate::support::{Sql, durable, options};

const BATCHES: usize = 400;
const PATIENCE: Duration = Duration::from_secs(20);

/// A sequence of numbers from a seed (SplitMix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn is_one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What the generator expects to be stored: an instance, its last turn, and whether it has ended.
struct Known {
    row: InstanceRow,
    turn: u64,
    has_ended: bool,
}

fn change(draws: &mut Draws) -> RowChange {
    let time = |draws: &mut Draws| match draws.below(3) {
        0 => None,
        1 => Some(None),
        _ => Some(Some(draws.below(1 << 40))),
    };
    RowChange {
        owed: [None, Some(true), Some(false)][draws.below(3) as usize],
        wake_at_ms: time(draws),
        ended_ms: time(draws),
        ..RowChange::default()
    }
}

/// A member for an instance that exists, most often its next turn.
fn next(draws: &mut Draws, known: &mut Known) -> Commit {
    let number = match draws.below(20) {
        0 => known.turn,
        1 => known.turn + 2,
        2 => 1,
        _ => known.turn + 1,
    };
    // The same turn has the same bytes, most often.
    let body = if draws.is_one_in(30) { "other".to_owned() } else { format!("turn {number}") };
    let mut commit = member(&known.row).turn(number, &body);
    if number == known.turn + 1 && !known.has_ended {
        known.turn = number;
        if draws.is_one_in(3) {
            commit.change = change(draws);
        }
        if draws.is_one_in(6) {
            commit.change = RowChange { ended_ms: Some(Some(7)), ..status(Status::Completed) };
            known.has_ended = true;
        }
    }
    match draws.below(30) {
        0 => commit.sending([outgoing(&known.row, None, "hello")]),
        1 => Commit { epoch: 77, ..commit },
        _ => commit,
    }
}

/// A member that starts an instance, sometimes with an id or a key that exists.
fn first(draws: &mut Draws, all: &mut Vec<Known>) -> Commit {
    let number = all.len() as u64 + 1;
    let id = if draws.is_one_in(12) { draws.below(number) } else { number };
    let mut new = row(number, &format!("order-{id}"));
    new.wake_at_ms = draws.is_one_in(3).then(|| draws.below(1 << 40));
    new.owed = draws.is_one_in(2);
    if draws.is_one_in(10) {
        new.attributes = perennial_testkit::conformance::instances::attributes(&[("customer", "\"a\"")]);
    }
    if let Some(known) = all.first().filter(|_| draws.is_one_in(20)) {
        new.key = known.row.key;
    }
    let change = if draws.is_one_in(5) { change(draws) } else { RowChange::default() };
    let commit = start(&new).changing(change);
    if new.key != all.first().map_or(new.key, |known| known.row.key) || all.is_empty() {
        all.push(Known { row: new, turn: 1, has_ended: false });
    }
    commit
}

fn batch(draws: &mut Draws, all: &mut Vec<Known>) -> Vec<Commit> {
    let most = if draws.is_one_in(3) { 12 } else { 2 };
    let members = 1 + draws.below(most);
    let mut batch = Vec::new();
    for _ in 0..members {
        let place = draws.below(all.len() as u64 + 1) as usize;
        batch.push(match all.get_mut(place) {
            Some(known) if !draws.is_one_in(4) => next(draws, known),
            _ => first(draws, all),
        });
    }
    batch
}

/// All rows that commits write, as text.
fn rows(sql: &Sql) -> Vec<String> {
    let rows = "SELECT i::text FROM instances AS i UNION ALL SELECT t::text FROM turns AS t \
         UNION ALL SELECT a::text FROM attributes AS a UNION ALL SELECT key::text || body::text FROM inbox ORDER BY 1";
    sql.query(rows, &[]).iter().map(|row| row.get(0)).collect()
}

fn commit(store: &Subject, session: SessionId, batch: &[Commit]) -> Vec<CommitOutcome> {
    let epochs = |member: &Commit| match member.epoch {
        0 => Commit { epoch: store.epoch(session, member.shard), ..member.clone() },
        _ => member.clone(),
    };
    let batch = batch.iter().map(epochs).collect();
    let outcomes =
        perennial_testkit::conformance::wait_for(|reply| store.store().commit(session, batch, reply));
    // Numbers of messages differ.
    let without_numbers = |outcome| match outcome {
        CommitOutcome::Durable { .. } => CommitOutcome::Durable { sent: Vec::new() },
        other => other,
    };
    outcomes.unwrap().into_iter().map(without_numbers).collect()
}

fn calls_of_function(sql: &Sql) -> i64 {
    let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions \
         WHERE schemaname = current_schema() AND funcname = 'commit_batch'";
    sql.query(calls, &[])[0].get(0)
}

#[test]
fn s2_a_statement_commits_a_plain_batch_as_the_function_does() {
    let server = TestServer::start(&ServerOptions::default().unsynced().set("track_functions", "all"));
    let (one, other) = (server.new_schema(), server.new_schema());
    let as_usual = Subject::over(open(&one, options().hints(false)).unwrap());
    // Behind a pooler, every batch is a call of the function.
    let by_function = Subject::over(open(&format!("{other}&pooler=on"), options()).unwrap());
    let (session, other_session) = (as_usual.own_all(), by_function.own_all());
    let (mut draws, mut all) = (Draws(42), Vec::new());
    for number in 0..BATCHES {
        let batch = batch(&mut draws, &mut all);
        let outcomes = commit(&as_usual, session, &batch);
        assert_eq!(outcomes, commit(&by_function, other_session, &batch), "batch {number}: {batch:?}");
    }
    let (one, other) = (Sql::in_schema(&one), Sql::in_schema(&other));
    assert_eq!(rows(&one), rows(&other));
    drop((as_usual, by_function));
    // A connection reports its calls when it ends, at the latest.
    let begun = Instant::now();
    while calls_of_function(&other) < BATCHES as i64 {
        assert!(begun.elapsed() < PATIENCE, "{} calls", calls_of_function(&other));
        thread::sleep(Duration::from_millis(20));
    }
    let calls = calls_of_function(&one);
    assert!(
        (20..BATCHES as i64 * 3 / 4).contains(&calls),
        "both paths are taken: {calls} calls of the function"
    );
}

#[test]
fn s2_a_statement_commits_turns_that_consume_messages() {
    let server = TestServer::start(&ServerOptions::default().unsynced().set("track_functions", "all"));
    let url = server.new_schema();
    let store = Subject::over(open(&url, options().hints(false)).unwrap());
    let session = store.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    let begun = store.sent(start_request(&a, "start"));
    store.write(session, start(&b));
    let events = ["first", "second"].map(|body| store.sent(message("b", None, body)));
    let change = RowChange { version: Some("2.0.0".to_owned()), ..status(Status::Running) };
    let batch = [
        member(&a).turn(1, "started").changing(change).consuming([begun]),
        member(&b).turn(2, "read").consuming(events),
    ];
    assert_eq!(store.commit(session, batch.clone()), [durable(), durable()]);
    assert_eq!(store.inbox(session, 0, 10), []);
    let found = store.find("a").unwrap();
    assert_eq!((&*found.version, found.status), ("2.0.0", Status::Running));
    // The function tells what cannot be written simply.
    assert_eq!(store.commit(session, batch), [durable(), durable()], "the same bytes");
    let gone = store.commit(session, [member(&a).turn(2, "read again").consuming([begun])]);
    assert!(matches!(gone[..], [CommitOutcome::Conflict(_)]), "{gone:?}");
    assert_eq!(store.turns(&a, 1, 0, 10).len(), 1);
    let sql = Sql::in_schema(&url);
    drop(store);
    let started = Instant::now();
    while calls_of_function(&sql) < 2 {
        assert!(started.elapsed() < PATIENCE, "{} calls", calls_of_function(&sql));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(calls_of_function(&sql), 2);
}

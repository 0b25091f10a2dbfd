//! Measures the commit throughput of the store on a server with synchronous commits: `cargo run --release -p
//! perennial-postgres --example speed [URL] [hello | lone]`. Without a URL it starts a server.
//!
//! - `hello`: instances of two turns (row and turn 1; turn 2 and the changed row), in batches of 128 and of 16, over
//!   several concurrent lanes. Each batch starts some instances and ends as many.
//! - `lone`: turns of one instance, each in a transaction of its own, one after another.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use perennial_core::store::{
    Commit, CommitOutcome, InstanceRow, NewSession, RowChange, SessionId, SessionRole, Status, Store,
    StoreError, TurnRow,
};
use perennial_core::{Attributes, InstanceKey, SHARDS, ShardId};
use perennial_postgres::{PostgresOptions, open};
use perennial_testkit::postgres::{ServerOptions, TestServer};

const INSTANCES: usize = 25_600;
const LONE: usize = 2_000;
/// The size of batches and the number of concurrent lanes.
const SHAPES: [(usize, usize); 4] = [(128, 1), (128, 2), (128, 4), (16, 2)];
/// About the size of an encoded turn of `hello`.
const BODY: [u8; 300] = [b'x'; 300];

fn main() {
    let own = std::env::args().nth(1).is_none().then(|| TestServer::start(&ServerOptions::default()));
    let url = |schema: &str| match (&own, std::env::args().nth(1)) {
        (Some(server), _) => server.with_schema(schema),
        (None, url) => format!("{}?schema={schema}", url.unwrap_or_default()),
    };
    let only = std::env::args().nth(2);
    let is_asked = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let shapes = if is_asked("hello") { &SHAPES[..] } else { &[] };
    for &(batch, lanes) in shapes {
        let store =
            open(&url(&format!("speed_{batch}_{lanes}")), PostgresOptions::default()).expect("it opens");
        let took = hello(&store, batch, lanes);
        let per_second = INSTANCES as f64 / took.as_secs_f64();
        println!("hello, batches of {batch:>3}, {lanes} lanes: {per_second:>7.0} instances/s");
    }
    if !is_asked("lone") {
        return;
    }
    let store = open(&url("speed_lone"), PostgresOptions::default()).expect("it opens");
    let mut steps = lone(&store);
    let per_second = LONE as f64 / steps.iter().sum::<Duration>().as_secs_f64();
    steps.sort();
    let (middle, slow) = (steps[LONE / 2].as_micros(), steps[LONE * 99 / 100].as_micros());
    println!("lone: {per_second:.0} commits/s, p50 {middle} µs, p99 {slow} µs");
}

fn asked<T: Send + 'static>(call: impl FnOnce(perennial_core::store::Reply<T>)) -> T {
    let (sender, receiver) = mpsc::channel::<Result<T, StoreError>>();
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().expect("an answer").expect("no error")
}

/// Opens a lane. Returns its session and its shards.
fn lane(store: &dyn Store, number: u128, shards: usize) -> (SessionId, Vec<ShardId>) {
    let id = SessionId(number);
    let new = NewSession { id, role: SessionRole::Lane, node: id, lease_ms: 60_000, info: [].into() };
    asked(|reply| store.open_session(new, reply));
    let owned = asked(|reply| store.claim_shards(id, shards, reply));
    (id, owned.into_iter().map(|shard| shard.shard).collect())
}

fn row(shards: &[ShardId], lane: usize, number: usize) -> InstanceRow {
    // Tries ids until one is in the lane's shards.
    let id = (0..)
        .map(|draw| format!("hello-{lane}-{number}-{draw}"))
        .find(|id| shards.contains(&ShardId::of(id)))
        .expect("there are ids in every shard");
    InstanceRow {
        key: InstanceKey::new(1_700_000_000_000 + number as u64, (lane as u128) << 64 | number as u128),
        shard: ShardId::of(&id),
        id,
        name: "hello".to_owned(),
        version: "1.0.0".to_owned(),
        status: Status::Running,
        execution: 1,
        owed: true,
        wake_at_ms: None,
        blocked: None,
        full: false,
        attributes: Attributes::default(),
        published: None,
        parent: None,
        created_ms: 1,
        ended_ms: None,
        checksum: 0,
    }
}

fn turn(number: u64) -> TurnRow {
    TurnRow { execution: 1, number, bytes: Arc::from(&BODY[..]), checksum: 7 }
}

fn hello(store: &dyn Store, batch: usize, lanes: usize) -> Duration {
    let shares: Vec<_> = (0..lanes).map(|number| lane(store, number as u128 + 1, SHARDS / lanes)).collect();
    let work: Vec<(SessionId, Vec<Arc<[Commit]>>)> = shares
        .into_iter()
        .enumerate()
        .map(|(lane, (session, shards))| {
            let rows: Vec<_> = (0..INSTANCES / lanes).map(|number| row(&shards, lane, number)).collect();
            (session, batches(&rows, batch))
        })
        .collect();
    let begun = Instant::now();
    thread::scope(|scope| {
        for (session, batches) in work {
            scope.spawn(move || {
                for batch in batches {
                    let outcomes = asked(|reply| store.commit(session, batch, reply));
                    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
                }
            });
        }
    });
    begun.elapsed()
}

/// Half of each batch starts instances; the other half ends those that the previous batch started.
fn batches(rows: &[InstanceRow], size: usize) -> Vec<Arc<[Commit]>> {
    let started = |row: &InstanceRow| Commit {
        epoch: 1,
        insert: Some(Box::new(row.clone())),
        turn: Some(turn(1)),
        ..Commit::empty(row.key, row.shard)
    };
    let ended = |row: &InstanceRow| {
        let (status, owed, ended_ms) = (Some(Status::Completed), Some(false), Some(Some(2)));
        let change = RowChange { status, owed, ended_ms, ..RowChange::default() };
        Commit { epoch: 1, turn: Some(turn(2)), change, ..Commit::empty(row.key, row.shard) }
    };
    let halves: Vec<&[InstanceRow]> = rows.chunks(size / 2).collect();
    let before = std::iter::once(&[][..]).chain(halves.iter().copied());
    let now = halves.iter().copied().chain(std::iter::once(&[][..]));
    before
        .zip(now)
        .map(|(before, now)| before.iter().map(ended).chain(now.iter().map(started)).collect())
        .collect()
}

fn lone(store: &dyn Store) -> Vec<Duration> {
    let (session, shards) = lane(store, 1, SHARDS);
    let row = row(&shards, 0, 0);
    let mut steps = Vec::with_capacity(LONE);
    for number in 0..=LONE as u64 {
        let insert = (number == 0).then(|| Box::new(row.clone()));
        let commit =
            Commit { epoch: 1, insert, turn: Some(turn(number + 1)), ..Commit::empty(row.key, row.shard) };
        let begun = Instant::now();
        asked(|reply| store.commit(session, Arc::new([commit]), reply));
        if number > 0 {
            steps.push(begun.elapsed());
        }
    }
    steps
}

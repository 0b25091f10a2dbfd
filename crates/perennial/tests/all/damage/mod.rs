//! Damage of one stored row stays with its instance, and shows (I16).
//!
//! A store with an instance of every shape is damaged in one place, drawn from a seed. A runtime that is opened on it must
//! neither stop nor panic; every other instance finishes with its result; the damaged one finishes with its result too, or
//! shows as damaged, and can be deleted.
//!
//! - `PERENNIAL_CASES=10000` draws as many mutations as that.
//! - `PERENNIAL_SEED=17` draws that one; with `PERENNIAL_CASES`, as many from there on.

mod mutation;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use perennial::client::Damage;
use perennial::history::Ending;
use perennial::{Client, ClientError, Filter, InstanceView};
use perennial_core::shard::CallReply;
use perennial_testkit::Rng;
use rusqlite::Connection;

use crate::support::hands::Hands;
use mutation::{Mutation, mutate};
use shapes::{HOUR, RESULTS, concerned};

/// How many mutations the ordinary run draws.
const CASES: u64 = 300;
/// How long a store that should come to rest may take, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many looks in a row without a change mean that nothing more happens.
const STILL_LOOKS: usize = 25;

#[test]
fn i16_a_damaged_row_stays_with_its_instance_and_shows() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("PERENNIAL_SEED");
    let count = number("PERENNIAL_CASES").unwrap_or(if first.is_some() { 1 } else { CASES });
    let seeds = first.unwrap_or(0)..first.unwrap_or(0).saturating_add(count);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let template = directory.path().join("template.db");
    let prepared = Hands::new();
    tokio.block_on(shapes::prepare(&template, &prepared));
    let bytes = whole(&template);
    let panics: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&panics);
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // The hook is that of the whole process: where tests share one, others of them panic on purpose meanwhile.
        let is_of_another_test = panic.location().is_some_and(|place| {
            place.file().contains("tests/all/") && !place.file().contains("tests/all/damage/")
        });
        if std::thread::current().name() != Some("damage") && !is_of_another_test {
            heard.lock().unwrap().push(panic.to_string());
        }
        quiet(panic);
    }));
    let mut failures = Vec::new();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for seed in seeds {
        let path = directory.path().join(format!("{seed}.db"));
        std::fs::write(&path, &bytes).unwrap();
        let Some(mutation) = mutated(&path, seed) else { continue };
        let hands = Hands::new();
        let found = tokio.block_on(run(&path, &hands, &mutation));
        let mut found = found;
        found.extend(panics.lock().unwrap().drain(..).map(|panic| format!("panicked: {panic}")));
        let kind = mutation.what.split(' ').next().unwrap_or_default().to_owned();
        *kinds.entry(kind).or_default() += 1;
        if !found.is_empty() {
            eprintln!("PERENNIAL_SEED={seed}: {}\n    {}", mutation.what, found.join("\n    "));
            failures.push(seed);
        }
        for end in ["", "-wal", "-shm", "-lock"] {
            let _ = std::fs::remove_file(directory.path().join(format!("{seed}.db{end}")));
        }
    }
    drop(std::panic::take_hook());
    println!("{kinds:?}");
    assert_eq!(failures, [0; 0], "{} mutations were not contained", failures.len());
}

/// The bytes of a database whose log is empty.
fn whole(path: &Path) -> Vec<u8> {
    let connection = Connection::open(path).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(connection);
    std::fs::read(path).unwrap()
}

/// Damages a store by a seed; what cannot be done is drawn again.
fn mutated(path: &Path, seed: u64) -> Option<Mutation> {
    let mut rng = Rng::new(seed);
    let connection = Connection::open(path).unwrap();
    (0..20).find_map(|_| mutate(&connection, &mut rng))
}

/// Lets a runtime work on a damaged store; gives everything that is not as it should be.
async fn run(path: &Path, hands: &Arc<Hands>, mutation: &Mutation) -> Vec<String> {
    let mut wrong = Vec::new();
    let runtime = match tokio::time::timeout(PATIENCE, shapes::fixed(path, hands).start()).await {
        Ok(Ok(runtime)) => runtime,
        Ok(Err(error)) => return vec![format!("the runtime does not start: {error}")],
        Err(_) => return vec!["the runtime hangs at its start".to_owned()],
    };
    let client = runtime.client();
    let may_suffer: BTreeSet<&str> = mutation.victims.iter().flat_map(|id| concerned(id)).copied().collect();
    settle(&client, hands, &may_suffer).await;
    let named = named(&client, &mut wrong).await;
    let rows = listed(&client, &mut wrong).await;
    let refusals = refusals(path);
    for (id, result) in RESULTS {
        let row = rows.iter().find(|row| row.id == id);
        // A row that names no instance any more is named without one.
        let is_of_victim = |damage: &Damage| {
            may_suffer.contains(&*damage.id)
                || damage.id.is_empty()
                || damage.key.is_some_and(|key| mutation.keys.contains(&key))
        };
        let is_visible = named.iter().any(is_of_victim)
            || (id == "update" && refusals > 0)
            || may_suffer.iter().any(|id| rows.iter().any(|row| row.id == *id && row.blocked.is_some()))
            || row.is_some_and(|row| row.blocked.is_some());
        // What has not ended by now is not waited for.
        let patience = if row.is_some_and(|row| row.status.is_final()) { PATIENCE } else { Duration::ZERO };
        match tokio::time::timeout(patience, client.wait(id)).await {
            Ok(Ok(Ending::OrchestrationCompleted { output })) if output.as_json() == result => {
                if row.is_some_and(|row| row.blocked.is_some()) && !may_suffer.contains(id) {
                    wrong.push(format!("{id} has its result and is shown as blocked: {row:?}"));
                }
            }
            Ok(Ok(ending)) if may_suffer.contains(id) && mutation.is_silent_loss => drop(ending),
            Ok(Ok(ending)) => wrong.push(format!("{id} ended with {ending:?} instead of {result}")),
            _ if !may_suffer.contains(id) => {
                let is = client.status(id).await.map(|status| (status.status, status.blocked));
                wrong.push(format!("{id}, which was not touched, does not finish: {is:?}"));
            }
            _ if is_visible || mutation.is_silent_loss => {}
            _ => {
                let is = client.status(id).await.map(|status| (status.status, status.execution));
                wrong.push(format!("{id} is damaged and does not show it: {is:?}; named: {named:?}"));
            }
        }
    }
    wrong.extend(runtime.failure().map(|failure| format!("the node stopped: {failure}")));
    cure(&client, hands, &rows, &mut wrong).await;
    left(&client, &mut wrong).await;
    wrong.extend(runtime.failure().map(|failure| format!("the node stopped: {failure}")));
    if let Err(error) = runtime.shutdown().await {
        wrong.push(format!("the runtime does not shut down in good order: {error}"));
    }
    wrong
}

/// How many requests were refused because their instance was blocked: their senders know.
fn refusals(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    let mut replies = connection.prepare("SELECT body FROM replies").unwrap();
    let bodies = replies.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap().map(Result::unwrap);
    bodies.filter(|body| matches!(CallReply::decode(body), Ok(CallReply::Blocked { .. }))).count()
}

/// What a verification names.
async fn named(client: &Client, wrong: &mut Vec<String>) -> Vec<Damage> {
    match client.verify(|_| ()).await {
        Ok(report) => report.damage,
        Err(error) => {
            wrong.push(format!("verify fails: {error}"));
            Vec::new()
        }
    }
}

async fn listed(client: &Client, wrong: &mut Vec<String>) -> Vec<InstanceView> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        // Pages of a few, so that going on is tried, too.
        match client.list(Filter::new(), after, 3).await {
            Ok(page) => {
                rows.extend(page.rows);
                after = page.next;
            }
            Err(error) => wrong.push(format!("list fails: {error}")),
        }
        if after.is_none() {
            return rows;
        }
        if rows.len() > 4 * RESULTS.len() {
            wrong.push("list never ends".to_owned());
            return rows;
        }
    }
}

/// Everything that is left over can be deleted.
async fn cure(client: &Client, hands: &Arc<Hands>, rows: &[InstanceView], wrong: &mut Vec<String>) {
    for row in rows.iter().filter(|row| row.blocked.is_some() || !row.status.is_final()) {
        let deleting = client.delete(&row.id, true);
        let passing = async {
            loop {
                tokio::time::sleep(Duration::from_millis(2)).await;
                hands.pass(HOUR / 60);
            }
        };
        let deleted = tokio::select! {
            deleted = tokio::time::timeout(PATIENCE / 3, deleting) => deleted,
            () = passing => unreachable!("time passes for ever"),
        };
        match deleted {
            Ok(Ok(_)) => {}
            // Its parent took it along; or its id is none that can be asked for.
            Ok(Err(ClientError::NotFound { .. } | ClientError::InvalidName { .. })) => {
                if let Err(error) = client.delete_damaged(row.key).await {
                    wrong.push(format!("{} cannot be deleted by its key: {error}", row.id));
                }
            }
            Ok(Err(error)) => wrong.push(format!("{} cannot be deleted: {error}", row.id)),
            Err(_) => wrong.push(format!("{} cannot be deleted: it takes too long", row.id)),
        }
    }
}

/// Nothing is left that was to be deleted.
async fn left(client: &Client, wrong: &mut Vec<String>) {
    let rows = listed(client, wrong).await;
    let left = rows.iter().filter(|row| row.blocked.is_some() || !row.status.is_final());
    wrong.extend(left.map(|row| format!("{} was deleted, and is still there: {row:?}", row.id)));
}

/// Lets time pass until everything is settled, or everything but the damaged instances, with which nothing happens any
/// more. Others are waited for, however slow the machine is.
async fn settle(client: &Client, hands: &Arc<Hands>, may_suffer: &BTreeSet<&str>) {
    let deadline = Instant::now() + PATIENCE;
    let (mut before, mut still) = (String::new(), 0);
    while still < STILL_LOOKS && Instant::now() < deadline {
        let rows = client.list(Filter::new(), None, 100).await.map(|page| page.rows).unwrap_or_default();
        let is_settled = |id: &str| {
            rows.iter().any(|row| row.id == id && (row.status.is_final() || row.blocked.is_some()))
        };
        let mut unsettled = RESULTS.iter().map(|(id, _)| *id).filter(|id| !is_settled(id)).peekable();
        if unsettled.peek().is_none() {
            return;
        }
        let is_waited_for = unsettled.any(|id| !may_suffer.contains(id));
        let now =
            format!("{:?}", rows.iter().map(|row| (&row.id, row.status, row.execution)).collect::<Vec<_>>());
        still = if now == before && !is_waited_for { still + 1 } else { 0 };
        before = now;
        tokio::time::sleep(Duration::from_millis(2)).await;
        hands.pass(HOUR / 12);
    }
}

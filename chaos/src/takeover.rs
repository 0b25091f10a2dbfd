//! Measures how long the instances of a killed node are unavailable: from the kill until they respond again.

use std::path::Path;
use std::time::{Duration, Instant};

use perennial::Client;
use perennial_core::ShardId;
use tokio::task::JoinSet;

use crate::director::{SCHEMA, Stage};
use crate::kinds::number;

/// Number of instances that receive an update in each round. The killed node owns about a third of them.
const PROBES: usize = 30;
/// Number of nodes.
const NODES: usize = 3;
/// Pause before a request without a response is repeated.
const PAUSE: Duration = Duration::from_millis(5);

/// Kills a node `count` times. Returns for each kill how long it took until the first and the last of the node's
/// instances responded.
///
/// # Panics
///
/// If a node does not start, or an instance never responds again.
pub async fn measure(program: &Path, lease: Duration, count: usize) -> Vec<(Duration, Duration)> {
    let mut stage = Stage::new(program, lease).await;
    stage.add_nodes(NODES).await;
    let client = stage.client();
    let ids: Vec<String> = (0..PROBES).map(|probe| format!("account-probe-{probe}")).collect();
    for id in &ids {
        client.start("account", id, number(0)).await.expect("a start is accepted");
    }
    let mut measured = Vec::new();
    for round in 0..count {
        settle(&stage).await;
        let victim = stage.fleet.numbers()[0];
        let orphans = owned_by(&stage, &ids, victim).await;
        let mut node = stage.fleet.remove(victim).expect("a node of the fleet");
        node.kill().await;
        let killed = Instant::now();
        let mut answers = JoinSet::new();
        for id in orphans {
            answers.spawn(answered(client.clone(), id, round, killed));
        }
        let mut times = answers.join_all().await;
        times.sort_unstable();
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            measured.push((*first, *last));
        }
        stage.add_nodes(1).await;
    }
    measured
}

/// Repeats an update until it is recorded.
async fn answered(client: Client, id: String, round: usize, killed: Instant) -> Duration {
    let key = format!("round {round}");
    loop {
        if client.update(&id, "add", number(1)).once(&key).await.is_ok() {
            return killed.elapsed();
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the shards are divided evenly.
async fn settle(stage: &Stage) {
    loop {
        let owners = stage.owners().await;
        let is_even = owners.shards.values().all(|shards| (85..=86).contains(shards));
        if owners.shards.len() == NODES && owners.free == 0 && is_even {
            return;
        }
        tokio::time::sleep(4 * PAUSE).await;
    }
}

/// The instances whose shards a node owns.
async fn owned_by(stage: &Stage, ids: &[String], node: u64) -> Vec<String> {
    let sql = format!(
        "SELECT s.shard, n.info FROM {SCHEMA}.shards s JOIN {SCHEMA}.sessions l ON l.id = s.session \
         JOIN {SCHEMA}.sessions n ON n.id = l.node"
    );
    let rows = stage.database().await.query(&sql, &[]).await.expect("the server answers");
    let name = format!("\"node-{node}\"");
    let is_its = |info: &[u8]| String::from_utf8_lossy(info).contains(&name);
    let shards: Vec<i16> = rows.iter().filter(|row| is_its(row.get(1))).map(|row| row.get(0)).collect();
    let is_owned = |id: &&String| shards.contains(&i16::from(ShardId::of(id).0));
    ids.iter().filter(is_owned).cloned().collect()
}

/// Formats the measured times.
pub fn summary(lease: Duration, measured: &[(Duration, Duration)]) -> String {
    let mut last: Vec<Duration> = measured.iter().map(|(_, last)| *last).collect();
    let mut first: Vec<Duration> = measured.iter().map(|(first, _)| *first).collect();
    last.sort_unstable();
    first.sort_unstable();
    let at = |sorted: &[Duration], percent: usize| {
        sorted.get((sorted.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default()
    };
    let line = |name: &str, sorted: &[Duration]| {
        let [median, ninety, most] = [50, 90, 100].map(|percent| at(sorted, percent));
        format!("{name}: p50 {median:.2?}, p90 {ninety:.2?}, max {most:.2?}")
    };
    format!(
        "{} takeovers with a lease of {lease:?}, from the kill until instances of the node answer\n{}\n{}",
        measured.len(),
        line("first instance", &first),
        line("last instance", &last),
    )
}

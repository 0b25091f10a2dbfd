//! Support for the tests of this crate.

use std::path::Path;
use std::time::{Duration, Instant};

use perennial_chaos::callers::Callers;
use perennial_chaos::director::Stage;
use perennial_chaos::log::Entry;

/// The lease of nodes in tests.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

const PATIENCE: Duration = Duration::from_secs(60);

/// The node program.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_perennial-chaos-node"))
}

/// A stage with this many nodes, all of them ready.
pub(crate) async fn stage(nodes: usize) -> Stage {
    let mut stage = Stage::new(program(), LEASE).await;
    stage.add_nodes(nodes).await;
    stage
}

/// Waits until a condition is true.
#[track_caller]
pub(crate) fn until<F: Future<Output = bool>>(
    what: &str,
    mut is_true: impl FnMut() -> F,
) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !is_true().await {
            assert!(begun.elapsed() < PATIENCE, "{place}: {what} does not come true");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until all shards are divided evenly among this many nodes.
pub(crate) async fn until_divided(stage: &Stage, nodes: usize) {
    let share = |places: usize| i64::try_from(places).expect("few") / i64::try_from(nodes).expect("few");
    let (low, high) = (share(256), share(256 + nodes - 1));
    until("an even division", || async move {
        let owners = stage.owners().await;
        owners.free == 0
            && owners.shards.len() == nodes
            && owners.shards.values().all(|shards| (low..=high).contains(shards))
    })
    .await;
}

/// A load of callers that must not see any error.
pub(crate) struct Load {
    pub(crate) callers: Callers,
    lives: tokio::task::JoinSet<()>,
}

impl Load {
    pub(crate) fn begin(stage: &Stage, lives: &[&'static str]) -> Load {
        let callers = Callers::new(vec![stage.client()], stage.callers.clone());
        let lives = callers.begin_lives(lives, Duration::from_millis(10));
        Load { callers, lives }
    }

    /// Stops the load, and checks that no caller saw an error and that every instance ended as expected.
    pub(crate) async fn end(mut self, stage: &Stage) {
        self.callers.stop();
        let over = async { while self.lives.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(PATIENCE, over).await.expect("the load ends");
        assert_eq!((self.callers.problems(), self.callers.errors()), (Vec::new(), 0));
        let (problems, endings) = stage.problems().await;
        assert_eq!(problems, Vec::<String>::new());
        println!("{endings:?}");
    }
}

/// The longest time that a caller waited for an acknowledgement since `since_ms`.
pub(crate) fn longest_wait(entries: &[Entry], since_ms: u64) -> (u64, String) {
    let mut longest = (0, String::new());
    for (place, sent) in entries.iter().enumerate() {
        let kind = sent.fields.first().map_or("", String::as_str);
        // A request for the result waits until the instance ends.
        if sent.phase != "send" || sent.at_ms < since_ms || kind == "result" {
            continue;
        }
        let answers = entries[place + 1..].iter();
        let answer = answers.filter(|entry| entry.writer == sent.writer).find(|entry| entry.phase != "send");
        if let Some(answer) = answer {
            longest = longest.max((answer.at_ms - sent.at_ms, sent.fields.join(" ")));
        }
    }
    longest
}

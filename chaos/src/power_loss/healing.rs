//! After a power failure: opens what is left with the real product, lets callers continue, and checks that everything
//! finishes and nothing is lost or doubled.

use std::path::Path;
use std::time::Duration;

use crate::callers::Callers;
use crate::log::Log;
use crate::node;
use crate::sqlite_snapshot;
use crate::verdict;

use super::node_options;
use super::recording::Remains;

/// How often unfinished instances are counted.
const TICK: Duration = Duration::from_millis(20);

/// Number of requests that were acknowledged, by a log of callers.
pub(super) fn acknowledged(callers: &[u8]) -> usize {
    String::from_utf8_lossy(callers).matches("·ok·").count()
}

/// Puts the remains into a directory, and returns all problems with them.
pub(super) async fn heal(root: &Path, remains: &Remains, patience: Duration) -> Vec<String> {
    let written = || -> std::io::Result<()> {
        for name in ["store", "logs"] {
            std::fs::create_dir(root.join(name))?;
        }
        std::fs::write(root.join("logs/callers"), whole_lines(&remains.callers))?;
        std::fs::write(root.join("logs/effects"), whole_lines(&remains.effects))?;
        remains
            .files
            .iter()
            .try_for_each(|(name, bytes)| std::fs::write(root.join("store").join(name), bytes))
    };
    if let Err(error) = written() {
        return vec![format!("the remains cannot be written: {error}")];
    }
    let options = node_options(root, "healer");
    let log = Log::open(&options.callers_log(), "healer").expect("the log can be opened");
    let effects = Log::open(&options.effects_log(), "healer").expect("the log can be opened");
    let runtime = match node::build(&options).start().await {
        Ok(runtime) => runtime,
        Err(error) => return vec![format!("it does not open: {error}")],
    };
    let callers = Callers::resuming(runtime.client(), log.clone());
    let mut lives = callers.resume();
    let file = root.join("store/chaos.db");
    let finished = async {
        while let Some(life) = lives.join_next().await {
            life.expect("a caller does not panic");
        }
        while !sqlite_snapshot::unfinished(&file).is_ok_and(|open| open.is_empty()) {
            tokio::time::sleep(TICK).await;
        }
    };
    let mut problems = Vec::new();
    tokio::select! {
        _ = finished => {}
        () = tokio::time::sleep(patience) => {
            let open = sqlite_snapshot::unfinished(&file).unwrap_or_default();
            problems.push(format!("I17: instances never finish: {open:?}"));
        }
        error = runtime.failed() => problems.push(format!("the runtime failed: {error}")),
    }
    if let Err(error) = runtime.shutdown().await {
        problems.push(format!("it does not stop: {error}"));
    }
    problems.extend(callers.problems());
    match sqlite_snapshot::read(&file) {
        Ok(snapshot) => problems.extend(verdict::problems(snapshot, &log.entries(), &effects.entries())),
        Err(problem) => problems.push(format!("the file cannot be read: {problem}")),
    }
    problems
}

/// The lines of a log that were written completely. Whoever writes a line writes all of it, so there are no others.
fn whole_lines(log: &[u8]) -> &[u8] {
    let end = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    &log[..end]
}

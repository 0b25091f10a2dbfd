//! The doctor: what is wrong with a store, and what to do about it.
//!
//! It looks from outside first: what it cannot use it does not open, and what it opens it does not change.

use perennial::{Blocked, Filter, InstanceRow, StoreStats};
use perennial_sqlite::{Content, Inspection, Owner};
use serde_json::{Value, json};

use crate::exit::{ExitKind, Failure};
use crate::looking::{row_object, version};
use crate::output::{line, many, moment, object, span};
use crate::store::{self, Seen};
use crate::watching::{count, stats_object};

/// Later than this, and nobody seems to take care of the store.
const LATE_MS: u64 = 10_000;
/// How many blocked instances are shown.
const SHOWN_BLOCKED: usize = 20;
/// A log that is longer than this is not written back into the database as it should be.
const LONG_LOG_BYTES: u64 = 1 << 30;

/// One thing that was looked at.
enum Sign {
    /// It is as it should be.
    Ok(String),
    /// It may be meant so.
    Note { what: String, remedy: String },
    /// It is trouble.
    Trouble { what: String, remedy: String },
}

fn trouble(what: impl Into<String>, remedy: impl Into<String>) -> Sign {
    Sign::Trouble { what: what.into(), remedy: remedy.into() }
}

/// Looks for trouble. What it finds comes with what to do about it.
pub(crate) async fn run(url: Option<&str>, as_json: bool) -> Result<(), Failure> {
    let (url, found) = match store::look(url)? {
        Seen { url, inspection: Some(found) } => (url, found),
        // What is no file is refused here, in the words of everybody else.
        Seen { url, inspection: None } => return store::open(Some(url)).map(drop),
    };
    let mut signs = vec![schema_sign(&found), owner_sign(&found)];
    signs.extend(file_signs(&found));
    let (mut stats, mut blocked) = (None, Vec::new());
    if let Some(content) = &found.content {
        let client = store::open(Some(url))?;
        let counted = client.stats().await?;
        signs.extend(stats_signs(&counted, content, matches!(found.owner, Owner::Alive(_))));
        signs.push(match content.unreadable.as_slice() {
            [] => Sign::Ok("every message can be read".to_owned()),
            unreadable => {
                let named: Vec<String> =
                    unreadable.iter().map(|(number, id)| format!("{number} to {id:?}")).collect();
                trouble(
                    format!("messages that cannot be read: {}", named.join(", ")),
                    "run the program that is as new as those who sent them; each blocks its instance (PER-0308)",
                )
            }
        });
        let filter = Filter { blocked: Some(true), ..Filter::default() };
        blocked = client.list(filter, None, SHOWN_BLOCKED).await?.rows;
        stats = Some(counted);
    }
    let is_healthy = blocked.is_empty() && !signs.iter().any(|sign| matches!(sign, Sign::Trouble { .. }));
    if as_json {
        object(&report(url, &found, stats.as_ref(), &signs, &blocked, is_healthy))?;
    } else {
        line(format!("ok    {url} can be read"))?;
        signs.iter().try_for_each(tell)?;
        if let Some(stats) = &stats {
            tell_blocked(stats, &blocked)?;
        }
    }
    if is_healthy { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

fn schema_sign(found: &Inspection) -> Sign {
    let Inspection { schema, known_schema, .. } = found;
    match schema {
        0 => {
            trouble("the file is empty: it is no store yet", "start a runtime on it, which makes the tables")
        }
        schema if schema < known_schema => trouble(
            format!("its schema has version {schema}, this command knows {known_schema}"),
            "start the program with the newer Perennial, which migrates it; make a backup first. Until then, use the \
             command of the older one",
        ),
        schema => Sign::Ok(format!("its schema has version {schema}, the one that this command knows")),
    }
}

fn owner_sign(found: &Inspection) -> Sign {
    let owed = found.content.as_ref().map_or(0, |content| content.owed);
    match found.owner {
        Owner::Alive(Some(process)) => Sign::Ok(format!("a runtime owns it, in process {process}")),
        Owner::Alive(None) => Sign::Ok("a runtime owns it".to_owned()),
        Owner::Died(process) => trouble(
            format!("no runtime owns it; the last one, in process {process}, ended without a shutdown"),
            "start the program again; it goes on where that one stopped",
        ),
        Owner::Nobody if owed > 0 => trouble(
            format!("no runtime owns it, and instances with activities to be run: {owed}"),
            "start the program",
        ),
        Owner::Nobody => Sign::Ok("no runtime owns it; the last one was shut down".to_owned()),
    }
}

fn file_signs(found: &Inspection) -> Vec<Sign> {
    let Inspection { database_bytes, log_bytes, open_files, .. } = found;
    let sizes = format!("{} of database, {} of log", size(*database_bytes), size(*log_bytes));
    let mut signs = vec![if *log_bytes > LONG_LOG_BYTES {
        let remedy = "end processes that read it without pause (backups, shells), or start the program again";
        trouble(format!("the log is long: {sizes}"), remedy)
    } else {
        Sign::Ok(sizes)
    }];
    if open_files.is_empty() {
        signs.push(Sign::Ok("only its user can read its files".to_owned()));
    }
    for (path, mode) in open_files {
        let what = format!("others can reach {} (mode {mode:o}), and the payloads in it", path.display());
        let remedy = format!("if that is not meant: chmod 600 {}", path.display());
        signs.push(Sign::Note { what, remedy });
    }
    signs
}

fn stats_signs(stats: &StoreStats, content: &Content, is_owned: bool) -> Vec<Sign> {
    let lag = span(stats.lag_ms);
    let mut signs = vec![match &content.oldest_overdue {
        Some((id, since_ms)) if stats.lag_ms > LATE_MS => trouble(
            format!("something has been due for {lag}, first {id:?} since {}", moment(*since_ms)),
            "start a runtime on this store; if one runs, it has more to do than it can",
        ),
        _ => Sign::Ok(format!("nothing is late (lag {lag})")),
    }];
    if content.waiting > 0 && !is_owned {
        let what = format!("messages wait ({}), and no runtime takes them", content.waiting);
        signs.push(trouble(what, "start the program"));
    }
    if stats.requests.rows > 0 {
        let what = format!("questions without an answer: {}", count(stats.requests));
        signs.push(trouble(what, "a runtime answers them, or sweeps them later: start one"));
    }
    if !content.queued.is_empty() {
        let named = content.queued.iter().map(|(name, tag, count)| match tag {
            Some(tag) => format!("{name:?} with tag {tag:?} ({count})"),
            None => format!("{name:?} ({count})"),
        });
        let what = format!(
            "activities that wait for a process that can run them: {}",
            named.collect::<Vec<_>>().join(", ")
        );
        let remedy = "register them, and serve their tags, in the program that runs";
        signs.push(Sign::Note { what, remedy: remedy.to_owned() });
    }
    signs
}

fn tell(sign: &Sign) -> Result<(), Failure> {
    let (mark, what, remedy) = match sign {
        Sign::Ok(what) => return line(format!("ok    {what}")),
        Sign::Note { what, remedy } => ("note", what, remedy),
        Sign::Trouble { what, remedy } => ("look", what, remedy),
    };
    line(format!("{mark}  {what}"))?;
    line(format!("        remedy: {remedy}"))
}

fn tell_blocked(stats: &StoreStats, blocked: &[InstanceRow]) -> Result<(), Failure> {
    if blocked.is_empty() {
        return line("ok    no instance is blocked");
    }
    line(format!("look  blocked instances: {}", count(stats.blocked)))?;
    for row in blocked {
        let Some(blocked) = &row.blocked else { continue };
        line(format!("      {}  {} {}", row.id, row.name, version(&row.version)))?;
        let since = moment(blocked.since_ms);
        let tried = many(blocked.attempts.into(), "time");
        line(format!("        {} (since {since}, tried {tried})", blocked.reason))?;
        line(format!("        remedy: {}", remedy(blocked)))?;
    }
    Ok(())
}

fn report(
    url: &str,
    found: &Inspection,
    stats: Option<&StoreStats>,
    signs: &[Sign],
    blocked: &[InstanceRow],
    is_healthy: bool,
) -> Value {
    let told = |sign: &Sign| match sign {
        Sign::Ok(_) => None,
        Sign::Note { what, remedy } => Some(json!({"level": "note", "problem": what, "remedy": remedy})),
        Sign::Trouble { what, remedy } => {
            Some(json!({"level": "trouble", "problem": what, "remedy": remedy}))
        }
    };
    let findings: Vec<Value> = signs.iter().filter_map(told).collect();
    let (alive, process) = match found.owner {
        Owner::Alive(process) => (true, process),
        Owner::Died(process) => (false, Some(process)),
        Owner::Nobody => (false, None),
    };
    let blocked: Vec<Value> = blocked
        .iter()
        .map(|row| json!({"instance": row_object(row), "remedy": row.blocked.as_ref().map(remedy)}))
        .collect();
    let content = found.content.as_ref();
    let oldest = content.and_then(|content| content.oldest_overdue.as_ref());
    let unreadable = content.map(|content| {
        let named = content.unreadable.iter();
        named.map(|(number, id)| json!({"number": number, "instance": id})).collect::<Vec<Value>>()
    });
    json!({
        "store": url,
        "healthy": is_healthy,
        "schema": {"store": found.schema, "known": found.known_schema},
        "owner": {"alive": alive, "process": process},
        "database_bytes": found.database_bytes,
        "log_bytes": found.log_bytes,
        "oldest_overdue": oldest.map(|(id, since_ms)| json!({"instance": id, "since_ms": since_ms})),
        "unreadable_messages": unreadable,
        "stats": stats.map(stats_object),
        "findings": findings,
        "blocked": blocked,
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes.div_ceil(1_024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// What to do about a blocked instance, by the code of what blocks it.
fn remedy(blocked: &Blocked) -> &'static str {
    match blocked.code.as_str() {
        "PER-0101" => {
            "its history cannot be read; keep a copy of the store, then `perennial terminate` it, or `perennial delete \
             --force` it"
        }
        "PER-0508" => {
            "rows of it are damaged, and `perennial verify` names them; keep a copy of the store, then `perennial delete \
             --force` it, by its key if its id is damaged"
        }
        "PER-0102" => "check that this store is served by the newest program that wrote to it",
        "PER-0103" => {
            "let the type read what was sent or recorded, and start the program again; or terminate the instance"
        }
        "PER-0201" => "fix the panic, start the program again, and `perennial retry` it",
        "PER-0202" => "await only what the context gives; move other waiting into an activity",
        "PER-0203" => "`perennial show` tells where code and record differ; gate the change with patched()",
        "PER-0204" => "continue as new earlier, or keep payloads elsewhere and pass references",
        "PER-0205" => "move the long computation into an activity",
        "PER-0301" => "register that orchestration and version, and start the program again",
        "PER-0302" => "fix what ends the process, then `perennial retry` it",
        "PER-0308" => {
            "check that the program is as new as those who send to it; if nobody can read it, terminate the instance"
        }
        _ => "`perennial show` has the whole report; when it is fixed, `perennial retry` it",
    }
}

//! `perennial doctor`: checks a store and suggests remedies.
//!
//! It inspects the file before it opens the store: it does not open a store that it cannot use, and changes
//! nothing in one that it opens.

use perennial::client::{Count, StoreStats};
use perennial::explain::{FindingKind, StuckReport};
use perennial::moving::MoveSide;
use perennial::{Client, ErrorCode, Filter, InstanceView};
use perennial_sqlite::{Content, Inspection, Owner, UnreadableMessage};
use serde_json::{Value, json};

use crate::doctor_postgres;
use crate::exit::{ExitKind, Failure};
use crate::instances::version;
use crate::output::{line, many, moment, now_ms, object, span};
use crate::remedy::remedy;
use crate::store::{Seen, StoreAt, is_postgres};
use crate::top::{count, stats_object};

/// With a longer lag than this, the store seems to have no working runtime.
const LATE_MS: u64 = 10_000;
/// With a longer distance to the store's clock than this, the machine's clock was set back.
pub(crate) const BEHIND_MS: u64 = 5_000;
/// The number of blocked instances that are printed.
const SHOWN_BLOCKED: usize = 20;
/// The number of paused instances that are named.
const SHOWN_PAUSED: usize = 5;
/// A longer write-ahead log than this is not being checkpointed.
const LONG_LOG_BYTES: u64 = 1 << 30;

/// The result of one check.
pub(crate) enum Sign {
    Ok(String),
    /// This may be intended.
    Note {
        what: String,
        remedy: String,
    },
    Problem {
        what: String,
        remedy: String,
    },
}

pub(crate) fn problem(what: impl Into<String>, remedy: impl Into<String>) -> Sign {
    Sign::Problem { what: what.into(), remedy: remedy.into() }
}

/// Runs all checks. Each problem is printed with a remedy.
pub(crate) async fn run(store: &StoreAt, as_json: bool) -> Result<(), Failure> {
    let (url, found) = match store.look()? {
        Seen { url, inspection: Some(found) } => (url, found),
        Seen { url, inspection: None } if is_postgres(url) => {
            return doctor_postgres::run(store, url, as_json).await;
        }
        // Any other URL that is not a file is refused with the usual error.
        Seen { inspection: None, .. } => return store.open_to_look().map(drop),
    };
    let empty = "the file is empty and not a store yet";
    let mut signs = vec![schema_sign(found.schema, found.known_schema, empty), owner_sign(&found)];
    signs.extend(file_signs(&found));
    let (mut stats, mut instances) = (None, Instances::default());
    if let Some(content) = &found.content {
        let client = store.open_to_look()?;
        let counted = client.stats().await?;
        signs.extend(moved_sign(&client).await?);
        signs.extend(clock_sign(content, matches!(found.owner, Owner::Alive(_))));
        signs.extend(stats_signs(&counted, content, matches!(found.owner, Owner::Alive(_))));
        signs.extend(message_signs(content));
        signs.extend(stray_sign(content));
        instances = Instances::read(&client, &mut signs).await?;
        stats = Some(counted);
    }
    let is_healthy = instances.are_healthy(&signs);
    if as_json {
        object(&report(store, &found, stats.as_ref(), &signs, &instances, is_healthy))?;
    } else {
        line(format!("ok    {url} can be read"))?;
        signs.iter().try_for_each(|sign| tell(store, sign))?;
        if stats.is_some() {
            instances.tell_blocked(store)?;
        }
    }
    if is_healthy { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

/// The instances that need somebody.
#[derive(Default)]
pub(crate) struct Instances {
    blocked_count: Count,
    blocked: Vec<InstanceView>,
    pub(crate) stuck: StuckReport,
}

impl Instances {
    /// Reads them, and adds what they are signs of.
    pub(crate) async fn read(client: &Client, signs: &mut Vec<Sign>) -> Result<Instances, Failure> {
        signs.extend(paused_sign(client).await?);
        // A paused instance is blocked on purpose.
        let filter = Filter::new().blocked(true).paused(false);
        let blocked_count = client.count(filter.clone()).await?;
        let blocked = client.list(filter, None, SHOWN_BLOCKED).await?.rows;
        let stuck = client.find_stuck().await?;
        signs.extend(stuck_signs(&stuck));
        Ok(Instances { blocked_count, blocked, stuck })
    }

    pub(crate) fn are_healthy(&self, signs: &[Sign]) -> bool {
        self.blocked.is_empty() && !signs.iter().any(|sign| matches!(sign, Sign::Problem { .. }))
    }

    pub(crate) fn tell_blocked(&self, store: &StoreAt) -> Result<(), Failure> {
        if self.blocked.is_empty() {
            return line("ok    no instance is blocked");
        }
        line(format!("look  blocked instances: {}", count(self.blocked_count)))?;
        for row in &self.blocked {
            let Some(blocked) = &row.blocked else { continue };
            line(format!("      {}  {} {}", row.id, row.name, version(&row.version)))?;
            let since = moment(blocked.since_ms);
            let tried = many(blocked.attempts.into(), "time");
            line(format!("        {} (since {since}, tried {tried})", blocked.reason))?;
            line(format!("        remedy: {}", store.advice(&remedy(&row.id, &row.name, blocked))))?;
        }
        Ok(())
    }

    pub(crate) fn blocked_objects(&self, store: &StoreAt) -> Vec<Value> {
        let advice = |row: &InstanceView| {
            row.blocked.as_ref().map(|blocked| store.advice(&remedy(&row.id, &row.name, blocked)))
        };
        self.blocked.iter().map(|row| json!({"instance": row, "remedy": advice(row)})).collect()
    }
}

/// A store that was moved is not used by anybody.
pub(crate) async fn moved_sign(client: &Client) -> Result<Option<Sign>, Failure> {
    let mark = client.move_mark().await?;
    Ok(mark.map(|mark| {
        let remedy = match (mark.side, mark.is_done) {
            (MoveSide::Source, true) => {
                "use the other store; `perennial move --reopen` goes on with this one"
            }
            (MoveSide::Source, false) => {
                "repeat the same `perennial move`; `perennial move --reopen` goes on with this store instead"
            }
            (MoveSide::Target, _) => "repeat the same `perennial move`, or delete this store",
        };
        problem(mark.to_string(), remedy)
    }))
}

pub(crate) fn schema_sign(schema: u32, known_schema: u32, empty: &str) -> Sign {
    match schema {
        0 => problem(empty, "start a runtime on it, which creates the tables"),
        schema if schema < known_schema => problem(
            format!("the schema has version {schema}, but this command supports {known_schema}"),
            "make a backup, then start the program built with the newer Perennial, which migrates it; until then, use the \
             older command",
        ),
        schema => Sign::Ok(format!("the schema has version {schema}, which this command supports")),
    }
}

fn owner_sign(found: &Inspection) -> Sign {
    match found.owner {
        Owner::Alive(Some(process)) => Sign::Ok(format!("a runtime owns the store, in process {process}")),
        Owner::Alive(None) => Sign::Ok("a runtime owns the store".to_owned()),
        Owner::Died(process) => problem(
            format!(
                "no runtime owns the store; the last one, in process {process}, ended without a shutdown"
            ),
            "start the program again; it continues where that process stopped",
        ),
        Owner::Nobody => Sign::Ok("no runtime owns the store; the last one was shut down".to_owned()),
    }
}

fn file_signs(found: &Inspection) -> Vec<Sign> {
    let Inspection { database_bytes, log_bytes, open_files, .. } = found;
    let sizes = format!("{} of database, {} of log", size(*database_bytes), size(*log_bytes));
    let mut signs = vec![if *log_bytes > LONG_LOG_BYTES {
        let remedy = "end processes that keep it open for reading (backups, shells), or restart the program";
        problem(format!("the write-ahead log is large: {sizes}"), remedy)
    } else {
        Sign::Ok(sizes)
    }];
    if open_files.is_empty() {
        signs.push(Sign::Ok("only the owner of the files can read them".to_owned()));
    }
    for (path, mode) in open_files {
        let what =
            format!("other users can access {} (mode {mode:o}) and the payloads in it", path.display());
        let remedy = format!("if that is not intended: chmod 600 {}", path.display());
        signs.push(Sign::Note { what, remedy });
    }
    signs
}

/// The machine's clock was set back if it is behind the store's clock.
fn clock_sign(content: &Content, is_owned: bool) -> Option<Sign> {
    let behind_ms = content.clock.map_or(0, |(at_ms, ahead_ms)| {
        let ahead_ms = if is_owned { ahead_ms } else { 0 };
        at_ms.saturating_sub(now_ms()).max(ahead_ms)
    });
    let what = || {
        format!(
            "this machine's clock is {} behind the store's: it was set back ({})",
            span(behind_ms),
            ErrorCode::ClockFarOff
        )
    };
    let remedy = "if the clock is wrong, correct it (NTP); if it was ahead before and is correct now, no action is needed: until it \
                  has caught up, the store's time advances with the monotonic clock";
    (behind_ms > BEHIND_MS).then(|| problem(what(), remedy))
}

pub(crate) fn stats_signs(stats: &StoreStats, content: &Content, is_owned: bool) -> Vec<Sign> {
    let lag = span(stats.lag_ms);
    let mut signs = vec![match &content.oldest_overdue {
        Some((id, since_ms)) if stats.lag_ms > LATE_MS => problem(
            format!("work has been due for {lag}, the oldest is {id:?} since {}", moment(*since_ms)),
            "start a runtime on this store; if one is running, it is suspended, overloaded, or holds back an \
             activity whose process crashed while it ran (see `perennial show`)",
        ),
        _ => Sign::Ok(format!("nothing has been due for more than {} (lag {lag})", span(LATE_MS))),
    }];
    if content.waiting > 0 && !is_owned {
        let what = format!("waiting messages that no runtime handles: {}", content.waiting);
        signs.push(problem(what, "start the program"));
    }
    match stats.requests.rows {
        0 => {}
        _ if is_owned => signs.push(Sign::Ok(format!("requests in progress: {}", count(stats.requests)))),
        _ => {
            let what = format!("requests that no runtime answers: {}", count(stats.requests));
            let remedy = "their callers wait until their own deadlines; a runtime answers or deletes them";
            signs.push(Sign::Note { what, remedy: remedy.to_owned() });
        }
    }
    if !content.queued.is_empty() && !is_owned {
        let named = content.queued.iter().map(|(name, tag, count)| match tag {
            Some(tag) => format!("{name:?} with tag {tag:?} ({count})"),
            None => format!("{name:?} ({count})"),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let what = format!("activities waiting for a process that can run them: {named}");
        let remedy = "register them in the running program, and serve their tags";
        signs.push(Sign::Note { what, remedy: remedy.to_owned() });
    }
    signs
}

/// Instances that somebody paused. They stay so until somebody resumes them.
async fn paused_sign(client: &Client) -> Result<Option<Sign>, Failure> {
    let filter = Filter::new().paused(true);
    let paused = client.count(filter.clone()).await?;
    let first = client.list(filter, None, SHOWN_PAUSED).await?.rows;
    let named = first.iter().filter_map(|row| {
        let pause = row.blocked.as_ref()?.pause.as_ref()?;
        Some(format!("{:?} {}", row.id, pause.why))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let what = format!("paused instances: {}, the first: {named}", count(paused));
    let remedy = "`perennial list --paused` lists them, and `perennial resume` resumes them".to_owned();
    Ok((!first.is_empty()).then_some(Sign::Note { what, remedy }))
}

/// Stuck work. Blocked instances are listed one by one instead.
fn stuck_signs(stuck: &StuckReport) -> Vec<Sign> {
    let findings = stuck.findings.iter().filter(|finding| finding.kind != FindingKind::Blocked);
    let told = |finding: &perennial::explain::Finding| {
        let named = finding.instances.iter().map(|id| format!("{id:?}")).collect::<Vec<_>>().join(", ");
        let more = finding.count.saturating_sub(finding.instances.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (format!("{}: {named}{more}", finding.text), finding.remedy.clone())
    };
    let mut signs: Vec<Sign> = findings.map(told).map(|(what, remedy)| problem(what, remedy)).collect();
    signs.extend(stuck.waiting.iter().map(told).map(|(what, remedy)| Sign::Note { what, remedy }));
    if stuck.findings.is_empty() {
        signs.push(Sign::Ok("no work is stuck".to_owned()));
    }
    if !stuck.is_complete {
        let what = "only the oldest unfinished instances and activities were checked".to_owned();
        let remedy = "`perennial list --blocked` and `perennial show` tell more".to_owned();
        signs.push(Sign::Note { what, remedy });
    }
    signs
}

pub(crate) fn message_signs(content: &Content) -> Vec<Sign> {
    let (newer, damaged): (Vec<&UnreadableMessage>, Vec<_>) =
        content.unreadable.iter().partition(|message| message.is_newer);
    if newer.is_empty() && damaged.is_empty() {
        return vec![Sign::Ok("every message can be read".to_owned())];
    }
    let named = |messages: &[&UnreadableMessage]| {
        let name = |message: &&UnreadableMessage| match message.instance.as_str() {
            "" => format!("{} without an instance", message.number),
            id => format!("{} to {id:?}", message.number),
        };
        messages.iter().map(name).collect::<Vec<_>>().join(", ")
    };
    let mut signs = Vec::new();
    if !newer.is_empty() {
        signs.push(problem(
            format!("messages of a newer Perennial: {}", named(&newer)),
            format!(
                "run a program at least as new as the senders; each message blocks its instance until then ({})",
                ErrorCode::UnreadableMessage
            ),
        ));
    }
    if !damaged.is_empty() {
        signs.push(problem(
            format!("damaged messages: {}", named(&damaged)),
            "keep a copy of the store, then `perennial delete --force` their instances",
        ));
    }
    signs
}

/// Damaged rows that belong to no instance. Undecodable messages are reported with the other messages.
fn stray_sign(content: &Content) -> Option<Sign> {
    let is_named =
        |what: &str| content.unreadable.iter().any(|one| what == format!("message {}", one.number));
    let strays = content.strays.iter().filter(|(what, _)| !is_named(what));
    let named: Vec<String> = strays.map(|(what, problem)| format!("{what} ({problem})")).collect();
    let what = format!("damaged rows that belong to no instance: {}", named.join(", "));
    let remedy = "they do not affect any instance; keep a copy of the store, and run `perennial verify`, which reads \
                  the whole store";
    (!named.is_empty()).then(|| problem(what, remedy))
}

pub(crate) fn tell(store: &StoreAt, sign: &Sign) -> Result<(), Failure> {
    let (mark, what, remedy) = match sign {
        Sign::Ok(what) => return line(format!("ok    {what}")),
        Sign::Note { what, remedy } => ("note", what, remedy),
        Sign::Problem { what, remedy } => ("look", what, remedy),
    };
    line(format!("{mark}  {what}"))?;
    line(format!("        remedy: {}", store.advice(remedy)))
}

/// What needs attention, for programs.
pub(crate) fn findings(store: &StoreAt, signs: &[Sign]) -> Vec<Value> {
    let as_finding = |sign: &Sign| match sign {
        Sign::Ok(_) => None,
        Sign::Note { what, remedy } => {
            Some(json!({"level": "note", "problem": what, "remedy": store.advice(remedy)}))
        }
        Sign::Problem { what, remedy } => {
            Some(json!({"level": "look", "problem": what, "remedy": store.advice(remedy)}))
        }
    };
    signs.iter().filter_map(as_finding).collect()
}

fn report(
    store: &StoreAt,
    found: &Inspection,
    stats: Option<&StoreStats>,
    signs: &[Sign],
    instances: &Instances,
    is_healthy: bool,
) -> Value {
    let (alive, process) = match found.owner {
        Owner::Alive(process) => (true, process),
        Owner::Died(process) => (false, Some(process)),
        Owner::Nobody => (false, None),
    };
    let content = found.content.as_ref();
    let oldest = content.and_then(|content| content.oldest_overdue.as_ref());
    let unreadable = content.map(|content| {
        let named = content.unreadable.iter();
        let object = |message: &UnreadableMessage| {
            let UnreadableMessage { number, instance, is_newer } = message;
            json!({"number": number, "instance": instance, "newer": is_newer})
        };
        named.map(object).collect::<Vec<Value>>()
    });
    json!({
        "store": store.url,
        "healthy": is_healthy,
        "schema": {"store": found.schema, "known": found.known_schema},
        "owner": {"alive": alive, "process": process},
        "database_bytes": found.database_bytes,
        "log_bytes": found.log_bytes,
        "oldest_overdue": oldest.map(|(id, since_ms)| json!({"instance": id, "since_ms": since_ms})),
        "unreadable_messages": unreadable,
        "stats": stats.map(stats_object),
        "findings": findings(store, signs),
        "stuck": instances.stuck,
        "blocked": instances.blocked_objects(store),
    })
}

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes.div_ceil(1_024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

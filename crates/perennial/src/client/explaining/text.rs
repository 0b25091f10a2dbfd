//! Waits as English text: one line each.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial_core::store::Status;
use perennial_core::{ErrorCode, Timestamp};

use super::wait::{ActivityState, ActivityWait, Wait, WaitReason};

/// How many characters of a text that users wrote are shown.
pub(super) const SHOWN_CHARS: usize = 200;
/// How many names of events are shown.
const NAMED_EVENTS: usize = 5;
/// The first moment of the year 10000. A timer that is due then never fires.
const FOR_EVER: Timestamp = Timestamp::from_millis(253_402_300_800_000);

/// A time to the second.
fn utc(time: Timestamp) -> String {
    Timestamp::from_millis(time.as_millis() / 1_000 * 1_000).to_string()
}

/// A wait in one line.
pub(super) fn line(reason: &WaitReason, now: Timestamp) -> String {
    match reason {
        WaitReason::NoRuntime { since: Some(since), .. } => {
            format!("no runtime is running on this store; the last one is known to have run until {}", utc(*since))
        }
        WaitReason::NoRuntime { since: None, .. } => "no runtime has run on this store yet".to_owned(),
        WaitReason::NoOwner { since: Some(since) } => {
            format!("no node has owned its shard for {}; another one takes it over", age(*since, now))
        }
        WaitReason::NoOwner { since: None } => "no node owns its shard yet; one takes it over".to_owned(),
        WaitReason::Paused { since, reason, by, orchestration } => {
            let what = if *orchestration { "paused with its orchestration" } else { "paused" };
            let by = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let colon = if reason.is_empty() { "" } else { ": " };
            format!("{what}{by} since {}{colon}{}", utc(*since), cut(reason))
        }
        WaitReason::Blocked { reason, since, attempts, .. } => {
            let tried = many(u64::from(*attempts), "time");
            format!("blocked for {}, tried {tried}: {}", age(*since, now), cut(reason))
        }
        WaitReason::MissingCode { name, version, nodes, similar, since, until } => {
            let (age, until) = (age(*since, now), at_text(*until, now));
            let missing = missing_code(name, version, nodes, similar.as_deref());
            format!("waiting for code for {age}: {missing}; it is blocked {until} if that does not change")
        }
        WaitReason::OrchestrationNotRegistered { name, version, registered, similar } => {
            let version = if version.is_empty() { String::new() } else { format!(" {version}") };
            let instead = match (registered.is_empty(), similar) {
                (true, None) => String::new(),
                (true, Some(similar)) => format!("; did you mean `{similar}`?"),
                (false, _) => format!("; live nodes have {}", registered.join(", ")),
            };
            format!("no live node has orchestration `{name}`{version} registered{instead}")
        }
        WaitReason::Start { due } => format!("its delayed start {}", until_text(*due, now)),
        WaitReason::Messages { count, more, since } => {
            let count = if *more { format!("more than {count} messages") } else { many(*count as u64, "message") };
            format!("its next turn: {count} not applied yet, the oldest for {}", age(*since, now))
        }
        WaitReason::Full => "a turn that reads events: it has so many unread that senders are refused".to_owned(),
        WaitReason::Cancellation { reason, since, until } => {
            let colon = if reason.is_empty() { "" } else { ": " };
            let asked = format!("cancellation requested {} ago", age(*since, now));
            format!("{asked}, ends at the latest {}{colon}{}", at_text(*until, now), cut(reason))
        }
        WaitReason::Activity(activity) => activity_line(activity, now),
        WaitReason::Event { name, since, timer, .. } => {
            let timer = match timer.filter(|due| *due < FOR_EVER) {
                Some(due) if due <= now => "; a timer set with it is due".to_owned(),
                Some(due) => format!("; a timer set with it fires in {}", span(due - now)),
                None => String::new(),
            };
            format!("event `{name}` for {}{timer}", age(*since, now))
        }
        WaitReason::Timer { due, .. } => format!("timer {}", until_text(*due, now)),
        WaitReason::Child { id, name, event, since, status, waits } => {
            let child = format!("child `{id}` (event {event})");
            match status {
                None => {
                    let age = age(*since, now);
                    format!("{child}: orchestration `{name}`, scheduled {age} ago, has not been started yet")
                }
                Some(status) => format!("{child}{}", child_state(*status, waits)),
            }
        }
        WaitReason::Update { name, event, since } => {
            format!("the handler of update `{name}` (event {event}) for {}", age(*since, now))
        }
        WaitReason::Delivery { to, event, since } => {
            let age = age(*since, now);
            format!("a report on what it sent to `{to}` (event {event}) {age} ago")
        }
        WaitReason::Condition => {
            "a condition of its own code: nothing is open in its history, so an event or an update has to change it"
                .to_owned()
        }
        WaitReason::Unread { problem, .. } => format!("its history was not read: {}", cut(problem)),
    }
}

/// The code that a node does not have, and who has it.
fn missing_code(name: &str, version: &str, nodes: &[String], similar: Option<&str>) -> String {
    let version = if version.is_empty() { String::new() } else { format!(" {version}") };
    let others = match nodes.is_empty() {
        true => "no live node has it".to_owned(),
        false => format!("{} has it", listed(nodes)),
    };
    let instead = similar.map_or_else(String::new, |similar| format!(" (did you mean `{similar}`?)"));
    format!("its node does not have `{name}`{version}{instead}, {others}")
}

/// What a child that exists waits for, or is.
fn child_state(status: Status, waits: &[Wait]) -> String {
    match waits.split_first() {
        _ if status.is_final() => format!(", which has {}: its outcome has not arrived yet", ended(status)),
        None => format!(", which is {}", status.name()),
        Some((first, others)) => {
            let which = if first.reason.is_state() { ":" } else { ", which waits for" };
            let more = match others.len() {
                0 => String::new(),
                others => format!("; and {others} more"),
            };
            format!("{which} {first}{more}")
        }
    }
}

/// A wait in a few words, for a column.
pub(super) fn short(reason: &WaitReason, now: Timestamp) -> String {
    match reason {
        WaitReason::NoRuntime { .. } => "no runtime".to_owned(),
        WaitReason::NoOwner { .. } => "no owner".to_owned(),
        WaitReason::Paused { .. } => "paused".to_owned(),
        WaitReason::Blocked { code, .. } => format!("blocked {code}"),
        WaitReason::MissingCode { .. } => "missing code".to_owned(),
        WaitReason::OrchestrationNotRegistered { .. } => "orchestration not registered".to_owned(),
        WaitReason::Start { due } => format!("start {}", due_in(*due, now)),
        WaitReason::Messages { .. } => "next turn".to_owned(),
        WaitReason::Full => "too many unread events".to_owned(),
        WaitReason::Cancellation { .. } => "cancelling".to_owned(),
        WaitReason::Activity(activity) => {
            format!("activity {}: {}", activity.name, short_state(activity, now))
        }
        WaitReason::Event { name, .. } => format!("event {name}"),
        WaitReason::Timer { due, .. } => format!("timer {}", due_in(*due, now)),
        WaitReason::Child { id, waits, .. } => match waits.first().map(|wait| &wait.reason) {
            Some(state) if state.is_state() => format!("child {id}: {}", short(state, now)),
            _ => format!("child {id}"),
        },
        WaitReason::Update { name, .. } => format!("update {name}"),
        WaitReason::Delivery { to, .. } => format!("delivery to {to}"),
        WaitReason::Condition => "a condition".to_owned(),
        WaitReason::Unread { too_long: true, .. } => {
            "history too long for a list, see `perennial show`".to_owned()
        }
        WaitReason::Unread { .. } => "history not readable".to_owned(),
    }
}

fn short_state(activity: &ActivityWait, now: Timestamp) -> String {
    match &activity.state {
        ActivityState::WithOwner { node, .. } => format!("with {node}"),
        ActivityState::Running { node, .. } => format!("running on {node}"),
        ActivityState::Interrupted { .. } => "interrupted".to_owned(),
        ActivityState::NotStarted => "not started".to_owned(),
        ActivityState::Retry { due } => format!("retry {}", due_in(*due, now)),
        ActivityState::Held { .. } => "held back".to_owned(),
        ActivityState::Due { .. } => "due".to_owned(),
        ActivityState::Queued { .. } => "queued".to_owned(),
        ActivityState::NotRegistered { .. } => "not registered".to_owned(),
        ActivityState::Token { .. } => "waits for its token".to_owned(),
        ActivityState::Open => "open".to_owned(),
    }
}

fn activity_line(activity: &ActivityWait, now: Timestamp) -> String {
    let ActivityWait { name, id, event, tag, attempt, .. } = activity;
    let id = id.as_ref().map_or_else(String::new, |id| format!(" with id `{id}`"));
    let tag = tag.as_ref().map_or_else(String::new, |tag| format!(" with tag `{tag}`"));
    let mut line = format!("activity `{name}`{id}{tag} (event {event}): ");
    line += &match &activity.state {
        ActivityState::WithOwner { node, since } => {
            let age = age(*since, now);
            format!(
                "{} has been with {node} for {age}, running or waiting for a slot",
                ordinal(activity, *attempt)
            )
        }
        ActivityState::Running { node, since, heard, details } => {
            let running = since.map_or_else(String::new, |since| format!(" for {}", age(since, now)));
            let heard = heard.map_or_else(String::new, |at| format!(", heartbeat {} old", age(at, now)));
            let details = details.as_ref().map_or_else(String::new, |details| format!(": {}", cut(details)));
            format!("{} running on {node}{running}{heard}{details}", ordinal(activity, *attempt))
        }
        ActivityState::Interrupted { node, since } => {
            let node = node.as_deref().unwrap_or("a node");
            let since = since.map_or_else(String::new, |since| format!(" {} ago", age(since, now)));
            format!(
                "{} was running on {node}, which stopped{since}; it runs again",
                ordinal(activity, *attempt)
            )
        }
        ActivityState::NotStarted => format!("{} runs once there is a runtime", ordinal(activity, *attempt)),
        ActivityState::Retry { due } => {
            format!("{}, next {}", failure(activity, now), at_text(*due, now))
        }
        ActivityState::Held { due } => {
            let times = many(u64::from(activity.interruptions), "time");
            let until = at_text(*due, now);
            format!("delayed because its process ended {times} while it ran; next {until}")
        }
        ActivityState::Due { since } => {
            let failed = activity.failed.as_ref().map(|_| format!("{}, ", failure(activity, now)));
            let due = age(*since, now);
            format!("{}{} due for {due}", failed.unwrap_or_default(), ordinal(activity, *attempt))
        }
        ActivityState::Queued { since, nodes, queued } => {
            let since = since.map_or_else(String::new, |since| format!(" for {}", age(since, now)));
            let behind = many(*queued, "queued activity").replace("activitys", "activities");
            let who = listed(nodes);
            format!(
                "{} queued{since}; {who} can run it once a slot is free ({behind})",
                ordinal(activity, *attempt)
            )
        }
        ActivityState::NotRegistered { since, nodes } => {
            let since = since.map_or_else(String::new, |since| format!(" for {}", age(since, now)));
            let who = match (nodes, &activity.tag) {
                (0, _) => "no node is alive".to_owned(),
                (_, None) => "no live node has it registered".to_owned(),
                (_, Some(_)) => "no live node has it registered and serves the tag".to_owned(),
            };
            format!("queued{since}, {who}")
        }
        ActivityState::Open => format!("without a result for {}", age(activity.scheduled, now)),
        ActivityState::Token { since, gives_up } => {
            let gives_up = gives_up.map_or_else(String::new, |at| gives_up_text(at, now));
            let age = age(*since, now);
            format!("{} has waited for its completion token for {age}{gives_up}", ordinal(activity, *attempt))
        }
    };
    if activity.stopping {
        line += "; it was asked to stop";
    }
    line
}

/// The number of an attempt, and how many are allowed.
fn ordinal(activity: &ActivityWait, attempt: u32) -> String {
    match activity.max_attempts {
        Some(most) => format!("attempt {attempt} of {most}"),
        None => format!("attempt {attempt}"),
    }
}

/// The failed attempt before the next one.
fn failure(activity: &ActivityWait, now: Timestamp) -> String {
    let past = ordinal(activity, activity.attempt.saturating_sub(1).max(1));
    match &activity.failed {
        Some(failed) => {
            let node = failed.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"));
            format!("{past} failed{node} {} ago with {}", age(failed.at, now), cut(&failed.error))
        }
        None => format!("{past} failed"),
    }
}

/// The action for an instance with too many unread events.
pub(super) const FULL_REMEDY: &str = "see what the code waits for instead with `perennial show`; let it read its events, or send \
     them to more instances";

/// The action for a wait that does not end without intervention.
pub(super) fn remedy(reason: &WaitReason) -> Option<String> {
    match reason {
        WaitReason::NoRuntime { .. } => {
            Some("start the program that runs this store's orchestrations".to_owned())
        }
        _ if !reason.is_stuck() => None,
        WaitReason::OrchestrationNotRegistered { name, version, .. } => {
            let version = if version.is_empty() { "" } else { &format!(" {version}") };
            Some(format!("register `{name}`{version} in the program, and start it again"))
        }
        WaitReason::Blocked { code, .. } => Some(blocked_remedy(code).to_owned()),
        WaitReason::Activity(activity) => Some(activity_remedy(activity)),
        WaitReason::Child { waits, .. } => waits.iter().find_map(|wait| wait.remedy.clone()),
        WaitReason::Unread { .. } => {
            Some("`perennial verify` names what is damaged; keep a copy of the store first".to_owned())
        }
        _ => None,
    }
}

/// The action for an instance that is blocked with a code.
pub(super) fn blocked_remedy(code: &str) -> &'static str {
    // A newer version may have written a code that this one does not know.
    code.parse().map_or("read its report, fix the cause, then retry the instance", ErrorCode::remedy)
}

fn activity_remedy(activity: &ActivityWait) -> String {
    let name = &activity.name;
    match (&activity.state, &activity.tag) {
        (ActivityState::NotRegistered { .. }, Some(tag)) => {
            format!("register `{name}` in a program that serves tag `{tag}`, and start it")
        }
        (ActivityState::NotRegistered { .. }, None) => {
            format!("register `{name}` in a program that runs on this store, and start it")
        }
        _ if activity.interruptions > 0 => format!("find out why the process ends while `{name}` runs"),
        _ => format!(
            "fix the cause of the failures of `{name}`; a running program retries it by its policy. Or cancel the instance"
        ),
    }
}

/// Events that no wait has taken, in one line. Only some names are shown: senders choose them.
pub(in crate::client) fn untaken(events: &BTreeMap<String, usize>) -> Option<String> {
    let named = |(name, count): (&String, &usize)| format!("`{}` ({count})", cut(name));
    let shown: Vec<String> = events.iter().take(NAMED_EVENTS).map(named).collect();
    let others = match events.len() - shown.len() {
        0 => String::new(),
        others => format!(" and {}", many(others as u64, "other name")),
    };
    let list = shown.join(", ");
    (!events.is_empty()).then(|| {
        format!(
            "events that no wait has taken, so they are unread unless a handler takes them: {list}{others}"
        )
    })
}

/// How an instance has ended.
pub(super) fn ended(status: Status) -> &'static str {
    match status {
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::Cancelled => "been cancelled",
        Status::Terminated => "been terminated",
        Status::Pending | Status::Running => "not ended",
    }
}

fn until_text(due: Timestamp, now: Timestamp) -> String {
    match due {
        _ if due >= FOR_EVER => "that never fires".to_owned(),
        _ if due <= now => format!("due since {}", utc(due)),
        _ => format!("until {} (in {})", utc(due), span(due - now)),
    }
}

fn at_text(due: Timestamp, now: Timestamp) -> String {
    match due {
        _ if due >= FOR_EVER => "never".to_owned(),
        _ if due <= now => "now".to_owned(),
        _ => format!("at {} (in {})", utc(due), span(due - now)),
    }
}

fn gives_up_text(at: Timestamp, now: Timestamp) -> String {
    match at {
        _ if at >= FOR_EVER => String::new(),
        _ if at <= now => ", gives up now".to_owned(),
        _ => format!(", gives up in {}", span(at - now)),
    }
}

fn due_in(due: Timestamp, now: Timestamp) -> String {
    match due {
        _ if due >= FOR_EVER => "never".to_owned(),
        _ if due <= now => "due".to_owned(),
        _ => format!("in {}", span(due - now)),
    }
}

fn age(since: Timestamp, now: Timestamp) -> String {
    span(now - since)
}

/// A duration in its two largest units.
pub(super) fn span(duration: Duration) -> String {
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.subsec_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

fn many(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "no node".to_owned(),
        [one] => one.clone(),
        [first, others @ ..] => format!("{first} or {}", many(others.len() as u64, "other node")),
    }
}

/// The beginning of a text written by users, on one line.
pub(super) fn cut(text: &str) -> String {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    match text.chars().nth(SHOWN_CHARS) {
        None => text.chars().map(one_line).collect(),
        Some(_) => text.chars().take(SHOWN_CHARS - 1).map(one_line).chain(['…']).collect(),
    }
}

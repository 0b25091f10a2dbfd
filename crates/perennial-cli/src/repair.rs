//! Commands that repair instances: pause, resume, reset, rerun.

use perennial::client::{ResetReport, Resetting};
use perennial::{Action, Client, Why};
use serde_json::json;

use crate::arguments::{Pausing, Which};
use crate::bulk::{Verb, act};
use crate::exit::Failure;
use crate::output::{line, many, object};
use crate::requests::done;

pub(crate) async fn pause(client: &Client, pausing: Pausing, as_json: bool) -> Result<(), Failure> {
    let (which, why) = (&pausing.which, pausing.why.into_why());
    let Some(name) = &pausing.orchestration else {
        let verb = Verb::new(Action::Pause { why }, "pause", "pause requested");
        return act(client, &verb, which, as_json).await;
    };
    only_orchestration(which)?;
    let notified = client.pause_orchestration(name, why).await?;
    if as_json {
        return object(&json!({"orchestration": name, "outcome": "paused", "instances": notified.done}));
    }
    line(format!(
        "{name}: paused; {} notified, and every runtime learns of it when it renews its lease",
        many(notified.done, "instance")
    ))
}

pub(crate) async fn resume(client: &Client, pausing: Pausing, as_json: bool) -> Result<(), Failure> {
    let (which, why) = (&pausing.which, pausing.why.into_why());
    let Some(name) = &pausing.orchestration else {
        let verb = Verb::new(Action::Resume { why }, "resume", "resume requested");
        return act(client, &verb, which, as_json).await;
    };
    only_orchestration(which)?;
    let outcome = if client.resume_orchestration(name, why).await? { "resumed" } else { "was not paused" };
    if as_json {
        return object(&json!({"orchestration": name, "outcome": outcome}));
    }
    done(false, name, outcome)
}

fn only_orchestration(which: &Which) -> Result<(), Failure> {
    match which.ids.is_empty() && !which.filter.is_given() {
        true => Ok(()),
        false => {
            Err(Failure::usage("name instances, use a filter, or use --orchestration; not several of these"))
        }
    }
}

pub(crate) async fn reset(
    reset: Resetting<'_>,
    version: Option<String>,
    why: Why,
    id: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let reset = reset.reason(why.reason);
    let reset = why.by.into_iter().fold(reset, Resetting::by);
    let report = version.into_iter().fold(reset, Resetting::version).await?;
    if as_json {
        return object(&json!({"id": id, "outcome": "reset", "report": report}));
    }
    let ResetReport { execution, turn, .. } = report;
    if report.already_made {
        return line(format!("{id}: already reset to turn {turn}, as execution {execution}"));
    }
    line(format!("{id}: reset to turn {turn}; it continues as execution {execution}"))?;
    let counts = [
        ("dropped", many(report.left_turns, "turn")),
        ("delivered again", many(report.messages, "message")),
        ("kept", many(report.results, "result")),
        ("rerun", format!("{} activities", report.activities)),
        ("continued", format!("{} children", report.children_kept)),
        ("restarted", format!("{} children", report.children_started)),
        ("cancelled", format!("{} children", report.children_cancelled)),
    ];
    for (what, count) in counts.into_iter().filter(|(_, count)| !count.starts_with("0 ")) {
        line(format!("  {what}: {count}"))?;
    }
    Ok(())
}

//! `perennial verify`: reads a whole store and reports damage.

use perennial::client::Damage;
use serde_json::json;

use crate::exit::{ExitKind, Failure};
use crate::output::{line, many, object, progress};
use crate::remedy::quoted;
use crate::store::StoreAt;

pub(crate) async fn run(store: &StoreAt, as_json: bool) -> Result<(), Failure> {
    let client = store.open_to_look()?;
    let bar = progress(Some(0), "verifying");
    let verified = client
        .verify(|progress| {
            bar.set_length(progress.of);
            bar.set_position(progress.instances);
        })
        .await;
    bar.finish_and_clear();
    let report = verified?;
    if as_json {
        let damage = |damage: &Damage| {
            let Damage { id, key, what, problem, .. } = damage;
            json!({"instance": id, "key": key, "what": what, "problem": problem, "remedy": store.advice(&remedy_for(damage))})
        };
        object(&json!({
            "instances": report.instances,
            "executions": report.executions,
            "turns": report.turns,
            "messages": report.messages,
            "tasks": report.tasks,
            "requests": report.requests,
            "replies": report.replies,
            "damaged": report.damaged,
            "damage": report.damage.iter().map(damage).collect::<Vec<_>>(),
        }))?;
    } else {
        for damage in &report.damage {
            let id = if damage.id.is_empty() { "(no instance)" } else { &damage.id };
            line(format!("{id}  {}: {}", damage.what, damage.problem))?;
            line(format!("  remedy: {}", store.advice(&remedy_for(damage))))?;
        }
        let more = report.damaged - report.damage.len() as u64;
        if more > 0 {
            line(format!("… and {more} more"))?;
        }
        line(format!(
            "{}, {}, {}, {}, {}, {}: {}",
            many(report.instances, "instance"),
            many(report.turns, "turn"),
            many(report.messages, "message"),
            many(report.tasks, "task"),
            many(report.requests, "request"),
            if report.replies == 1 { "1 reply".to_owned() } else { format!("{} replies", report.replies) },
            if report.damaged == 0 { "sound".to_owned() } else { format!("{} damaged", report.damaged) },
        ))?;
    }
    if report.damaged == 0 { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

/// The advice for a damaged row.
fn remedy_for(damage: &Damage) -> String {
    let name = match (damage.id.as_str(), damage.key) {
        ("", Some(key)) => key.to_string(),
        (id, _) => quoted(id),
    };
    let kind = damage.what.split(' ').next().unwrap_or_default();
    match kind {
        _ if damage.what == "the file" => {
            "keep a copy of the store, then restore a backup, or rebuild the file with SQLite's `.recover`"
                .to_owned()
        }
        "request" | "reply" => {
            "the caller gets no answer and can send the request again; the row is deleted after its deadline"
                .to_owned()
        }
        _ if name.is_empty() => "it does not affect any instance; keep a copy of the store".to_owned(),
        "message" => format!(
            "keep a copy of the store; if a newer program sent it, run that program; otherwise `perennial delete --force {name}`"
        ),
        "task" => format!("keep a copy of the store; restore a backup, or `perennial terminate {name}`"),
        _ => format!("keep a copy of the store; restore a backup, or `perennial delete --force {name}`"),
    }
}

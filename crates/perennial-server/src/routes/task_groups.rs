//! Activities that are retried, queued or run elsewhere, by name: how many, why they fail, and who could run them.

use std::collections::BTreeMap;

use perennial::InstanceKey;
use perennial::client::{NodeView, TaskRow, TaskState};
use perennial::history::EventId;
use serde::Serialize;

use crate::ask::Ask;
use crate::route::Answered;
use crate::schema::{Schema, array, boolean, component, integer, named, object, string, time};

/// How many rows are read.
const ROWS: usize = 50_000;
/// How many groups, and how many errors of each, are shown.
const GROUPS: usize = 200;
const ERRORS: usize = 20;

pub(crate) fn schema() -> Schema {
    let error = object(
        &[
            ("text", string()),
            ("count", integer()),
            ("key", string()),
            ("event", integer()),
            ("sample", string()),
        ],
        &[],
    );
    let group = object(
        &[
            ("name", string()),
            ("state", named(&["queued", "leased", "waiting"])),
            ("count", integer()),
            ("retried", integer()),
            ("max_attempt", integer()),
            ("nodes", integer()),
            ("errors", array(component("TaskError", error))),
            ("other_errors", integer()),
        ],
        &[("tag", string()), ("next_ms", time()), ("oldest_ms", time()), ("silent_since_ms", time())],
    );
    let members =
        [("groups", array(component("TaskGroup", group))), ("scanned", integer()), ("partial", boolean())];
    component("TaskGroups", object(&members, &[]))
}

/// An error of several activities, with ids and numbers left out.
#[derive(Serialize)]
struct ErrorGroup {
    text: String,
    count: u64,
    /// One activity that failed like this, and its error as it is.
    key: InstanceKey,
    event: EventId,
    sample: String,
}

#[derive(Serialize)]
struct Group {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    state: &'static str,
    count: u64,
    /// How many of them have failed at least once.
    retried: u64,
    max_attempt: u32,
    /// How many live nodes can run them.
    nodes: usize,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_ms: Option<u64>,
    /// Since when the one that has been in this state for the longest is.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ms: Option<u64>,
    /// Since when the one that has been silent for the longest, of those that run and have reported, is.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_since_ms: Option<u64>,
    errors: Vec<ErrorGroup>,
    other_errors: u64,
}

pub(crate) async fn groups(ask: Ask) -> Answered {
    #[derive(Serialize)]
    struct Groups {
        groups: Vec<Group>,
        scanned: usize,
        partial: bool,
    }
    let client = ask.client()?;
    let nodes: Vec<NodeView> = client.nodes().await?.into_iter().filter(|node| node.is_live).collect();
    let mut found: BTreeMap<(String, Option<String>, &'static str), Gathered> = BTreeMap::new();
    let (mut after, mut scanned) = (None, 0);
    loop {
        let page = client.task_page(after, 1_000).await?;
        scanned += page.rows.len();
        for task in &page.rows {
            let place = (task.name.clone(), task.tag.clone(), task.state.name());
            found.entry(place).or_default().note(task, ask.hides_payloads());
        }
        after = page.next;
        if after.is_none() || scanned >= ROWS {
            break;
        }
    }
    let mut groups: Vec<Group> = found
        .into_iter()
        .map(|((name, tag, state), gathered)| gathered.group(name, tag, state, &nodes))
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(GROUPS);
    ask.ok(&Groups { groups, scanned, partial: after.is_some() })
}

/// What was read of a group.
#[derive(Default)]
struct Gathered {
    count: u64,
    retried: u64,
    max_attempt: u32,
    next_ms: Option<u64>,
    oldest_ms: Option<u64>,
    silent_since_ms: Option<u64>,
    errors: BTreeMap<String, ErrorGroup>,
}

impl Gathered {
    fn note(&mut self, task: &TaskRow, hides: bool) {
        let earliest = |known: Option<u64>, other: Option<u64>| known.into_iter().chain(other).min();
        self.count += 1;
        self.max_attempt = self.max_attempt.max(task.attempt);
        self.oldest_ms = earliest(self.oldest_ms, task.since_ms);
        if task.state == TaskState::Waiting {
            self.next_ms = earliest(self.next_ms, task.due_ms);
        }
        if matches!(task.state, TaskState::Leased { .. }) {
            self.silent_since_ms = earliest(self.silent_since_ms, task.heard_ms);
        }
        let Some(error) = task.past.iter().last().and_then(|past| past.error.as_deref()) else { return };
        self.retried += 1;
        let text = if hides { "hidden".to_owned() } else { without_names(error) };
        let (key, event) = (task.id.key, task.id.event);
        let sample = if hides { "hidden".to_owned() } else { error.to_owned() };
        let group =
            self.errors.entry(text.clone()).or_insert(ErrorGroup { text, count: 0, key, event, sample });
        group.count += 1;
    }

    fn group(self, name: String, tag: Option<String>, state: &'static str, nodes: &[NodeView]) -> Group {
        let mut errors: Vec<ErrorGroup> = self.errors.into_values().collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        let other_errors = errors.drain(ERRORS.min(errors.len())..).map(|error| error.count).sum();
        let nodes = nodes.iter().filter(|node| node.can_run(&name, tag.as_deref())).count();
        Group {
            name,
            tag,
            state,
            count: self.count,
            retried: self.retried,
            max_attempt: self.max_attempt,
            nodes,
            next_ms: self.next_ms,
            oldest_ms: self.oldest_ms,
            silent_since_ms: self.silent_since_ms,
            errors,
            other_errors,
        }
    }
}

/// A text in which each word with a digit is a `#`, so that errors that differ by ids and numbers are alike.
fn without_names(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    let (mut told, mut word) = (String::new(), String::new());
    for c in text.chars().chain([' ']) {
        if is_of_word(c) {
            word.push(c);
            continue;
        }
        let core = word.trim_end_matches(['.', ':', '-']);
        match core.chars().any(|c| c.is_ascii_digit()) {
            true => {
                told.push('#');
                told.push_str(&word[core.len()..]);
            }
            false => told.push_str(&word),
        }
        word.clear();
        told.push(c);
    }
    told.pop();
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d35_errors_that_differ_by_ids_and_numbers_are_alike() {
        assert_eq!(without_names("order-17: card service 503"), "#: card service #");
        assert_eq!(without_names("\"no 0190b5a1-aaaa at 10.0.0.1:80\""), "\"no # at #\"");
        assert_eq!(without_names("out of stock"), "out of stock");
        assert_eq!(without_names(""), "");
        assert_eq!(without_names("é1é, ok."), "#, ok.");
    }
}

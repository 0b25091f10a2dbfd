//! Compares the guide's page on logs with the code: every event that the library logs has a row there, and
//! vice versa.
//!
//! The library logs through the macros of `tracing`, with a target from `perennial_core::log`, fields, and a
//! message that starts with constant text. The table contains the part of the message before the first
//! punctuation or value.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use crate::sources::Source;

const PAGE: &str = "docs/src/logs.md";

/// The crates whose events users see.
const CRATES: &[&str] = &[
    "crates/perennial-core/src",
    "crates/perennial-postgres/src",
    "crates/perennial-sqlite/src",
    "crates/perennial/src",
];

const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];

/// An event as a row of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    target: String,
    level: String,
    message: String,
    /// Sorted by name, separated by commas.
    fields: String,
}

impl Event {
    fn row(&self) -> String {
        format!("| {} | {} | {} |", self.level, self.message, self.fields)
    }
}

/// The differences, one line each.
pub(crate) fn violations(workspace_root: &Path, sources: &[Source]) -> Vec<String> {
    let page = match fs::read_to_string(workspace_root.join(PAGE)) {
        Ok(page) => page,
        Err(error) => return vec![format!("{PAGE}: {error}")],
    };
    let sources = sources.iter().filter(|source| CRATES.iter().any(|one| source.path.starts_with(one)));
    let mut violations = Vec::new();
    let mut logged = BTreeSet::new();
    for source in sources {
        for event in events(&source.syntax) {
            match event {
                Ok(event) => drop(logged.insert(event)),
                Err(problem) => violations.push(format!("{}: {problem}", source.path)),
            }
        }
    }
    violations.extend(logged.iter().filter_map(missing_fields));
    let documented = rows(&page);
    let of = |event: &Event| format!("under `{}`: {}", event.target, event.row());
    violations.extend(logged.difference(&documented).map(|event| format!("{PAGE}: missing {}", of(event))));
    violations.extend(
        documented
            .difference(&logged)
            .map(|event| format!("{PAGE}: not logged by the library: {}", of(event))),
    );
    violations
}

/// What an event does not tell: the instance, and for an activity also the execution and the event.
fn missing_fields(event: &Event) -> Option<String> {
    let has = |name: &str| event.fields.contains(&format!("`{name}`"));
    let names_instance = has("instance") || has("key");
    let is_complete = match event.target.as_str() {
        "perennial::instance" => names_instance,
        // The span of the attempt has the fields.
        "perennial::activity" if event.message == "attempt started" => true,
        "perennial::activity" => names_instance && has("execution") && has("event"),
        _ => true,
    };
    let needed = "it has to name its instance (`instance` or `key`), and an activity's execution and event";
    (!is_complete).then(|| format!("{:?}: {needed}", event.message))
}

/// The rows below the headings that name a target.
fn rows(page: &str) -> BTreeSet<Event> {
    let (mut target, mut rows) = (String::new(), BTreeSet::new());
    for line in page.lines() {
        if line.starts_with('#') {
            target = line.split('`').nth(1).unwrap_or_default().to_owned();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, level, message, fields, _] = cells.as_slice()
            && LEVELS.contains(&level.to_lowercase().as_str())
        {
            let [level, message, fields] = [*level, *message, *fields].map(str::to_owned);
            rows.insert(Event { target: target.clone(), level, message, fields });
        }
    }
    rows
}

fn events(file: &syn::File) -> Vec<Result<Event, String>> {
    let mut found = Found(Vec::new());
    found.visit_file(file);
    found.0
}

struct Found(Vec<Result<Event, String>>);

impl Visit<'_> for Found {
    fn visit_macro(&mut self, call: &syn::Macro) {
        let path: Vec<String> = call.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [first, level] = path.as_slice()
            && first == "tracing"
            && LEVELS.contains(&level.as_str())
        {
            let event = event(level, call.tokens.clone());
            self.0.push(event.map_err(|problem| format!("tracing::{level}!({}): {problem}", call.tokens)));
        }
        syn::visit::visit_macro(self, call);
    }
}

fn event(level: &str, tokens: TokenStream) -> Result<Event, String> {
    let targets = BTreeMap::from([
        ("ACTIVITY", "perennial::activity"),
        ("INSTANCE", "perennial::instance"),
        ("NODE", "perennial::node"),
        ("STORE", "perennial::store"),
    ]);
    let (mut target, mut fields, mut message) = (None, BTreeSet::new(), None);
    for argument in arguments(tokens) {
        let text = argument.iter().map(ToString::to_string).collect::<Vec<_>>().join("");
        match text.strip_prefix("target:log::") {
            Some(name) => target = targets.get(name),
            // Further arguments are formatted into the message.
            None if message.is_some() => {}
            None if text.starts_with('"') => message = Some(constant_part(&text)),
            None => {
                let name = text.split('=').next().unwrap_or_default().trim_start_matches(['%', '?']);
                fields.insert(format!("`{}`", name.rsplit('.').next().unwrap_or(name)));
            }
        }
    }
    Ok(Event {
        target: (*target.ok_or("its target is not one of perennial_core::log")?).to_owned(),
        level: level.to_uppercase(),
        message: message.filter(|message| !message.is_empty()).ok_or("it has no constant message")?,
        fields: fields.into_iter().collect::<Vec<_>>().join(", "),
    })
}

/// The arguments of a macro, split at commas.
fn arguments(tokens: TokenStream) -> Vec<Vec<TokenTree>> {
    let mut arguments = vec![Vec::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => arguments.push(Vec::new()),
            _ => arguments.last_mut().expect("there is always one").push(token),
        }
    }
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// The part of a message before its first value or punctuation.
fn constant_part(literal: &str) -> String {
    let text = literal.trim_matches('"');
    text.split([':', ';', '{', '(', ',', '\\']).next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Event, events, missing_fields, rows, violations};
    use crate::{command, sources};

    fn only(code: &str) -> Result<Event, String> {
        let file = syn::parse_file(&format!("fn f() {{ {code}; }}")).unwrap();
        events(&file).pop().expect("one event")
    }

    #[test]
    fn an_event_is_read_with_its_target_fields_and_message() {
        let code = r#"tracing::warn!(target: log::STORE, %error, id = &*self.id, took, "it failed: {reason}", reason)"#;
        let event = only(code).unwrap();
        assert_eq!((event.target.as_str(), event.level.as_str()), ("perennial::store", "WARN"));
        assert_eq!((event.message.as_str(), event.fields.as_str()), ("it failed", "`error`, `id`, `took`"));
    }

    #[test]
    fn an_event_without_a_target_of_ours_or_a_message_is_refused() {
        assert!(only(r#"tracing::info!("hello")"#).is_err());
        assert!(only(r#"tracing::info!(target: "x", "hello")"#).is_err());
        assert!(only(r#"tracing::info!(target: log::NODE, "{reason}")"#).is_err());
    }

    #[test]
    fn an_event_of_an_instance_or_an_activity_has_to_name_it() {
        let told = |code: &str| missing_fields(&only(code).unwrap()).is_none();
        assert!(told(r#"tracing::info!(target: log::INSTANCE, instance, "paused")"#));
        assert!(!told(r#"tracing::info!(target: log::INSTANCE, reason, "paused")"#));
        assert!(told(r#"tracing::info!(target: log::ACTIVITY, %key, execution, event, "refused")"#));
        assert!(!told(r#"tracing::info!(target: log::ACTIVITY, instance, event, "refused")"#));
    }

    #[test]
    fn rows_belong_to_the_heading_above_them() {
        let page = "### `perennial::node`\n| level | message | fields |\n|---|---|---|\n| INFO | up | `a` |\n# Other\n";
        let found = rows(page).pop_first().unwrap();
        assert_eq!((found.target.as_str(), found.row().as_str()), ("perennial::node", "| INFO | up | `a` |"));
    }

    #[test]
    fn the_page_on_logs_lists_what_is_logged() {
        let root = command::workspace_root();
        let sources = sources::read(&root).unwrap();
        assert_eq!(violations(&root, &sources), Vec::<String>::new());
    }
}

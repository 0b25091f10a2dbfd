//! The items at the root of the crate. Everything that their signatures mention can be named.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The public items at the root of the crate's sources, hidden ones aside.
fn root_items() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let source = fs::read_to_string(path).unwrap();
    let mut lines = source.lines();
    let (mut items, mut is_hidden) = (BTreeSet::new(), false);
    while let Some(line) = lines.next() {
        let mut item = line.to_owned();
        if line.starts_with("#[") {
            is_hidden |= line.contains("doc(hidden)");
            continue;
        }
        if line.starts_with("pub mod ") && line.ends_with('{') {
            let _body = lines.by_ref().take_while(|line| *line != "}").count();
        } else if line.starts_with("pub use ") {
            while !item.ends_with(';') {
                item.push_str(lines.next().expect("the statement ends"));
            }
        }
        if let Some(module) = item.strip_prefix("pub mod ") {
            items.insert(format!("mod {}", module.trim_end_matches([' ', ';', '{'])));
        } else if let Some(path) = item.strip_prefix("pub use ").filter(|_| !is_hidden) {
            let names = path.trim_end_matches(';').rsplit("::").next().unwrap();
            let names = names.trim_matches(['{', '}']).split(',').map(str::trim);
            items.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        }
        is_hidden = false;
    }
    items
}

/// A new item belongs here only if most programs name it; the modules have room for all others.
#[test]
fn the_root_holds_what_most_programs_name_and_nothing_else() {
    let expected = "\
        Action Activity ActivityContext ActivityError Backoff ChildError Client ClientError ClosePolicy Condition \
        Delivery Either Either3 Elapsed Error ErrorCode ExternalEvent Filter FilterError InstanceKey InstancePage InstanceView \
        Later NameError NotOfType OnExisting OnTakenId Orchestration OrchestrationContext OrchestrationError Payload Prune \
        Query Registrations Result RetryPolicy Run RunError Runtime RuntimeBuilder RuntimeOptions Saga StartError StartOptions \
        Status StoreError TimeoutKind Timestamp TimestampError Update UpdateError Why activity attribute orchestration";
    let modules =
        "client codec context explain history metrics moving options prelude replay store traces typed";
    let expected: BTreeSet<String> = expected
        .split_whitespace()
        .map(str::to_owned)
        .chain(modules.split_whitespace().map(|module| format!("mod {module}")))
        .collect();
    assert_eq!(root_items(), expected);
}

/// Names every type that a public signature of the crate mentions, where it is documented to be.
#[test]
fn what_signatures_mention_can_be_named() {
    use perennial::{client, codec, context, history, options, replay, store, typed};
    type Unit = ();
    macro_rules! named {
        ($($type:ty),* $(,)?) => {
            [$(std::any::type_name::<Option<&$type>>()),*].len()
        };
    }
    let count = named![
        context::ActivityFuture<Unit>,
        context::Branches<Unit>,
        context::Cancelled,
        context::ChildFuture<Unit>,
        context::ChildStarted,
        context::Completions<context::TimerFuture>,
        context::ContinueAsNewFuture<Unit>,
        context::DeliveryFuture,
        context::EndCancelledFuture<Unit>,
        context::Events<Unit>,
        context::HandlersIdle,
        context::Info,
        context::Receive<'static, Unit>,
        context::Select2<context::TimerFuture, context::TimerFuture>,
        context::Sent,
        context::Shield<Unit>,
        context::State<Unit>,
        context::SystemCallFuture<Unit>,
        context::Timeout<context::TimerFuture>,
        context::UnitHandle<Unit>,
        context::WaitFuture<Unit>,
        client::AttributeName,
        client::Blocked,
        client::Cancel<'static>,
        client::Comparison,
        client::Count,
        client::Counters,
        client::Damage,
        client::Divergence,
        client::ExportedExecution,
        client::ExportedInstance,
        client::InstanceRow,
        client::NodeView,
        client::Page,
        client::PageKey,
        client::Pause,
        client::PausedOrchestration,
        client::Progress,
        client::RaiseEvent<'static>,
        client::ResetReport,
        client::Resetting<'static>,
        client::SendUpdate<'static, Unit, Unit>,
        client::Skippable,
        client::StoreStats,
        client::TaskRow,
        client::Tree,
        client::VerifyProgress,
        client::VerifyReport,
        codec::Codecs,
        history::ActivityOptions,
        history::Attributes,
        history::CancelRequest,
        history::CorruptHistory,
        history::Ending,
        history::EventId,
        history::History,
        history::HistoryError,
        history::ParentLink,
        history::StaleReason,
        history::TurnFailure,
        options::ExecutionOptions,
        options::FailurePolicy,
        options::Limits,
        options::OnFailure,
        options::ShardOptions,
        options::TokenKey,
        replay::Handlers,
        replay::Incompatible,
        replay::MissingVersion,
        replay::Nondeterminism,
        replay::PreflightProgress,
        replay::PreflightReport,
        replay::ReplayReport,
        replay::Replayer,
        replay::Side,
        store::Criteria,
        typed::Call<Unit, Unit>,
    ];
    assert!(count > 70);
}

/// The public methods in the `impl OrchestrationContext` blocks of some files.
fn methods_of_the_context(directory: &str) -> BTreeSet<String> {
    let mut methods = BTreeSet::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)).unwrap() {
        let source = fs::read_to_string(entry.unwrap().path()).unwrap();
        let blocks = source.split("\nimpl OrchestrationContext {\n").skip(1);
        for block in blocks.map(|block| block.split("\n}\n").next().unwrap()) {
            let names = block.split("\n    pub fn ").skip(1);
            methods.extend(names.map(|rest| rest.split(['<', '(']).next().unwrap().to_owned()));
        }
    }
    methods
}

#[test]
fn the_context_has_every_call_of_the_core_itself() {
    let own = methods_of_the_context("src/typed");
    let core = methods_of_the_context("../perennial-core/src/context");
    assert!(core.len() > 50, "{core:?}");
    // For the typed layer alone.
    let hidden = ["encode", "refuse", "refuse_payload", "try_receive_by", "validate_update"];
    let missing: Vec<&String> =
        core.difference(&own).filter(|name| !hidden.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "these are not on `perennial::OrchestrationContext`: {missing:?}");
}

/// All source files below a directory.
fn sources(directory: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(sources(&path)),
            false => all.push((path.display().to_string(), fs::read_to_string(&path).unwrap())),
        }
    }
    all
}

/// Spans are `Duration`s and moments are `Timestamp`s: nobody has to know which integers are milliseconds.
#[test]
fn public_functions_and_fields_take_no_milliseconds_as_integers() {
    let is_open = |line: &str| line.starts_with("pub fn ") || line.starts_with("pub async fn ");
    let mut found = Vec::new();
    for (path, source) in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        // Hidden: the test environment runs attempts with it.
        if path.ends_with("standalone_attempt.rs") {
            continue;
        }
        let visible = source.split("#[doc(hidden)]\nimpl ").next().unwrap();
        for line in visible.lines().map(str::trim) {
            let is_field = line.starts_with("pub ") && line.contains("_ms: u64,");
            if is_field || is_open(line) && line.contains("_ms: u64") {
                found.push(format!("{path}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

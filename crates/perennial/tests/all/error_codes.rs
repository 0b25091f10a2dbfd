//! The table of error codes, the guide's page of errors and the sources agree.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use perennial::history::{CorruptHistory, HistoryError};
use perennial::moving::MoveError;
use perennial::store::StoreError;
use perennial::{
    ActivityError, ChildError, ClientError, Elapsed, Error, ErrorCode, OrchestrationError, RunError,
    StartError, UpdateError,
};
use perennial::{Payload, TimeoutKind};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_guide_explains_every_code_of_the_table_in_order_with_cause_and_remedy() {
    let page = fs::read_to_string(root().join("docs/src/errors.md")).unwrap();
    let sections: Vec<(&str, &str)> =
        page.split("\n### ").skip(1).map(|section| section.split_once('\n').unwrap()).collect();
    let headings: Vec<&str> = sections.iter().map(|(heading, _)| *heading).collect();
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.prefix()).collect();
    assert_eq!(
        headings, codes,
        "docs/src/errors.md has other headings than the table in perennial-core/src/code.rs"
    );
    for (heading, text) in sections {
        for word in ["**Cause.**", "**Remedy.**"] {
            let (_, said) = text.split_once(word).unwrap_or_else(|| panic!("{heading} has no {word}"));
            assert!(!said.trim().is_empty(), "{heading}: nothing after {word}");
        }
    }
}

/// Whether a line of a source file is code, not a comment.
fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["tests", "target"].contains(&name) {
            rust_files(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_writes_a_code_by_hand() {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    assert!(files.len() > 200, "only {} files were found", files.len());
    for path in files.iter().filter(|path| !path.ends_with("perennial-core/src/code.rs")) {
        let text = fs::read_to_string(path).unwrap();
        let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap();
        for line in shipped.lines().filter(|line| is_code(line)) {
            let code = line.split("PER-").skip(1).find(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            // A group of codes may be named by its first two digits.
            let is_whole = code.is_some_and(|rest| rest.bytes().take(4).all(|byte| byte.is_ascii_digit()));
            assert!(!is_whole, "{}: take the code from `ErrorCode`: {line}", path.display());
        }
    }
}

/// One error of each public type, with its code, text and remedy.
fn told() -> Vec<(ErrorCode, String, bool, &'static str)> {
    macro_rules! told {
        ($($error:expr),* $(,)?) => {
            vec![$({ let error = $error; (error.code(), error.to_string(), error.is_retryable(), error.remedy()) }),*]
        };
    }
    let id = || "order-1".to_owned();
    let not_a_number = Payload::from("x").decode_as::<u32>().unwrap_err();
    told![
        Error::from(StartError::NoTokio),
        Error::from(StoreError::Unavailable("busy".to_owned())),
        StartError::RegisteredTwice { what: "activity \"charge\"".to_owned() },
        ClientError::NotFound { id: id() },
        ClientError::Store { id: id(), source: StoreError::Unavailable("busy".to_owned()) },
        ClientError::NotAnswered { id: id(), patience: Duration::from_secs(1) },
        OrchestrationError::Terminated { id: id(), reason: "late".to_owned() },
        MoveError::Refused { reason: "it is in use".to_owned() },
        RunError::Failed { id: id(), error: "declined" },
        UpdateError::Failed { id: id(), error: "declined" },
        ActivityError::<String>::Timeout(TimeoutKind::Total),
        ActivityError::<String>::Cancelled,
        ActivityError::<String>::Poisoned,
        ChildError::<String>::Terminated { reason: "late".to_owned() },
        ChildError::<String>::NotStarted {
            reason: "PER-0306 child id taken: an instance \"a\" exists".to_owned()
        },
        StoreError::Closed,
        HistoryError::from(CorruptHistory { turn: 1, event: None, problem: "it is empty".to_owned() }),
        not_a_number,
        Elapsed,
        "status=asleep".parse::<perennial::Filter>().unwrap_err(),
        "a".repeat(300).parse::<perennial::store::InstanceKey>().unwrap_err(),
    ]
}

#[test]
fn every_error_begins_with_its_code_and_has_a_remedy() {
    for (code, words, is_retryable, remedy) in told() {
        assert!(words.starts_with(code.prefix()), "{code}: {words}");
        assert_eq!(words.matches("PER-").count(), 1, "{words}");
        assert_eq!((is_retryable, remedy), (code.is_retryable(), code.remedy()), "{words}");
    }
    let retryable: Vec<ErrorCode> =
        told().into_iter().filter(|(_, _, is_retryable, _)| *is_retryable).map(|(code, ..)| code).collect();
    assert_eq!(
        retryable,
        [
            ErrorCode::StoreUnavailable,
            ErrorCode::StoreUnavailable,
            ErrorCode::NotAnswered,
            ErrorCode::ActivityTimeout
        ]
    );
}

#[test]
fn what_an_activity_or_a_child_says_itself_is_shown_as_it_is() {
    let error = ActivityError::Application("card declined");
    assert_eq!((error.code(), error.to_string().as_str()), (ErrorCode::ActivityFailed, "card declined"));
    let error = ChildError::Application("card declined");
    assert_eq!((error.code(), error.to_string().as_str()), (ErrorCode::ChildFailed, "card declined"));
    let broken = |message: &str| ActivityError::<u32>::Broken { message: message.to_owned() };
    assert_eq!(broken("the activity panicked: oh").code(), ErrorCode::ActivityBroken);
    assert_eq!(broken("PER-0406 bad input: the activity takes a u8").code(), ErrorCode::BadActivityInput);
}

#[test]
fn the_reason_of_serde_is_shown_without_the_value() {
    #[derive(Debug, serde::Deserialize)]
    struct Card {
        #[allow(dead_code, reason = "it is only read")]
        number: u32,
    }
    let error = Payload::from_json(r#"{"number":"4111-1111"}"#).unwrap().decode_as::<Card>().unwrap_err();
    let words = error.to_string();
    assert!(words.contains("invalid type: string, expected u32"), "{words}");
    assert!(!words.contains("4111"), "{words}");
}

#[test]
fn every_page_of_the_guide_is_in_its_summary_and_its_code_is_compiled() {
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    // The page about HTTP is compiled with the crate that it is about.
    let compiled = ["crates/perennial/src/guide.rs", "crates/perennial-server/src/lib.rs"];
    let compiled = compiled.map(|path| fs::read_to_string(root().join(path)).unwrap()).concat();
    for entry in fs::read_dir(root().join("docs/src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "SUMMARY.md" || !name.ends_with(".md") {
            continue;
        }
        assert!(summary.contains(&format!("({name})")), "{name} is not in the summary");
        // The rules are a page that includes another file, and hold no code.
        assert!(
            name == "rules.md" || compiled.contains(&format!("docs/src/{name}")),
            "{name} is not compiled"
        );
    }
}

#[test]
fn g18_a_full_instance_is_described_even_if_its_events_are_not_counted() {
    let told = |unread| ClientError::Full { id: "order-7".to_owned(), unread }.to_string();
    assert!(told(10_000).contains(r#"instance "order-7" has too many unread events (10000); try again"#));
    assert!(told(0).contains(r#"instance "order-7" has too many unread events; try again"#));
}

#[test]
fn p3_an_error_that_main_returns_is_printed_with_its_code_and_message() {
    let client = ClientError::NotFound { id: "order-7".to_owned() };
    let message = client.to_string();
    assert!(message.starts_with("PER-0605 not found"), "{message}");
    let boxed: Box<dyn std::error::Error> = client.clone().into();
    assert_eq!(format!("{boxed:?}"), message);
    assert_eq!(format!("{:?}", Error::from(client)), message);
}

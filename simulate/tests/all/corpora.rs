use std::path::Path;

use perennial_simulate::corpus;
use perennial_simulate::outcome::run;
use perennial_testkit::simulator::Case;

#[test]
fn i17_no_past_failure_fails_again() {
    let cases =
        corpus::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))).expect("all are cases");
    assert!(!cases.is_empty());
    for (file, case) in cases {
        // The engine without the bug that was planted then.
        let outcome = run(&Case { flaw: None, ..case });
        assert!(
            outcome.is_ok(),
            "{}: {}",
            file.display(),
            outcome.err().map_or(String::new(), |it| it.headline())
        );
    }
}

#[test]
fn a_file_that_is_not_a_case_is_refused_by_name() {
    let directory = std::env::temp_dir().join(format!("perennial-corpus-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("it can be made");
    for text in [
        "{",
        r#"{"seed": 1, "seeds": 2}"#,
        r#"{"seed": 1, "flaw": "Nothing"}"#,
        r#"{"seed": 1, "cuts": [{"Ease": "x"}]}"#,
    ] {
        std::fs::write(directory.join("broken.json"), text).expect("it can be written");
        let complaint = corpus::read(&directory).expect_err("it is not a case");
        assert!(complaint.contains("broken.json"), "{complaint}");
    }
    std::fs::remove_dir_all(&directory).expect("it can be removed");
}

//! What the compiler says to misuse, and what it has to infer by itself (P1).
//!
//! The cases under `tests/ui` are checked against the crates that cargo has built for this very test; nothing is built
//! a second time. A case of misuse begins with the words (`//~ …`) that the compiler has to say.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates that cases use.
const CRATES: [&str; 3] = ["perennial", "serde", "serde_json"];

/// Where cargo has put the crates, by their names. Everything is fresh: the test itself was just built of it.
fn crates() -> BTreeMap<&'static str, PathBuf> {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().and_then(Path::parent).unwrap();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(profile) => profile,
    };
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--package", "perennial", "--test", "compile", "--message-format", "json"])
        .args(["--quiet", "--profile", profile, "--target-dir"])
        .arg(directory.parent().unwrap())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let Some(name) = CRATES.into_iter().find(|name| message["target"]["name"] == *name) else { continue };
        let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(library) = files.map(PathBuf::from).find(|file| file.extension() == Some("rlib".as_ref()))
        {
            assert_eq!(found.insert(name, library), None, "{name} was built in two ways");
        }
    }
    found
}

/// What the compiler says to a file, if it does not accept it.
fn refusal(case: &Path, crates: &BTreeMap<&str, PathBuf>, out: &Path) -> Option<String> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--cap-lints", "allow"]);
    command.arg("--out-dir").arg(out).arg(case);
    for (name, library) in crates {
        command.arg("--extern").arg(format!("{name}={}", library.display()));
        command.arg("-L").arg(format!("dependency={}", library.parent().unwrap().display()));
    }
    let output = command.output().unwrap();
    (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
}

fn cases(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui").join(directory);
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<PathBuf> = files.filter(|path| path.extension() == Some("rs".as_ref())).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

#[test]
fn p1_the_compiler_refuses_misuse_in_words_that_say_what_to_do_and_infers_the_rest() {
    let (crates, out) = (crates(), tempfile::tempdir().unwrap());
    for case in cases("pass") {
        assert_eq!(refusal(&case, &crates, out.path()), None, "{}", case.display());
    }
    let mut complaints = Vec::new();
    for case in cases("") {
        let text = fs::read_to_string(&case).unwrap();
        let words: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//~ ")).collect();
        assert!(!words.is_empty(), "{} expects nothing", case.display());
        match refusal(&case, &crates, out.path()) {
            None => complaints.push(format!("{} is accepted", case.display())),
            Some(said) => {
                let missing = words.iter().filter(|words| !said.contains(**words));
                complaints.extend(missing.map(|words| format!("{words:?} is missing from:\n{said}")));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

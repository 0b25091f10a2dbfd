//! Every error code of the sources is on the guide's page of errors, with its cause and its cure; and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "PER-";
const DIGITS: usize = 4;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The codes in a text.
fn codes(text: &str) -> impl Iterator<Item = String> {
    text.match_indices(PREFIX).filter_map(|(at, _)| {
        let code = text.get(at..at + PREFIX.len() + DIGITS)?;
        code[PREFIX.len()..].bytes().all(|byte| byte.is_ascii_digit()).then(|| code.to_owned())
    })
}

/// The codes of all Rust files below a directory, tests and built things aside, each with a file that has it.
fn collect(directory: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["tests", "target"].contains(&name) {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(codes(&text).map(|code| (code, path.clone())));
        }
    }
}

/// What the page says about each code: all below its heading.
fn explained() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("docs/src/errors.md")).unwrap();
    let sections = page.split("\n### ").skip(1);
    sections
        .map(|section| {
            let (heading, text) = section.split_once('\n').unwrap();
            let code = codes(heading).next().unwrap_or_else(|| panic!("{heading:?} has no code"));
            (code, text.split("\n## ").next().unwrap_or_default().to_owned())
        })
        .collect()
}

#[test]
fn every_error_code_has_its_cause_and_cure_in_the_guide() {
    let mut found = BTreeMap::new();
    collect(&root().join("crates"), &mut found);
    assert!(found.len() > 50, "only {} codes were found", found.len());
    let explained = explained();
    for (code, path) in &found {
        let text = explained.get(code).unwrap_or_else(|| {
            panic!("{code} ({}) has no heading in docs/src/errors.md", path.display());
        });
        for word in ["**Cause.**", "**Cure.**"] {
            let (_, said) = text.split_once(word).unwrap_or_else(|| panic!("{code} has no {word}"));
            assert!(!said.trim().is_empty(), "{code}: nothing behind {word}");
        }
    }
    let unknown: BTreeSet<&String> = explained.keys().filter(|code| !found.contains_key(*code)).collect();
    assert!(unknown.is_empty(), "the guide explains codes that nothing has: {unknown:?}");
}

#[test]
fn every_page_of_the_guide_is_in_its_summary_and_its_code_is_compiled() {
    let summary = fs::read_to_string(root().join("docs/src/SUMMARY.md")).unwrap();
    let compiled = fs::read_to_string(root().join("crates/perennial/src/guide.rs")).unwrap();
    for entry in fs::read_dir(root().join("docs/src")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "SUMMARY.md" {
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

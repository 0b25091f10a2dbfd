//! Limits of the dashboard: how much a browser loads, and what it is built from.
//!
//! Both are read from committed files, so that they hold where Node is not installed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::licences;
use crate::sizes::{FILE_LINES, LINE_COLUMNS};

/// What a browser loads to show the first page, compressed.
const FIRST_LOAD: usize = 120 << 10;
/// Each part that is loaded later, compressed.
const LATER_PART: usize = 40 << 10;
/// All files as they are committed.
const WHOLE: usize = 600 << 10;
/// Direct dependencies, those of the build and the tests included.
const DEPENDENCIES: usize = 12;

/// Licences of programs that build or test the dashboard, besides those that are allowed for everything. Nothing of these
/// programs is shipped.
const FOR_TOOLS: &[&str] = &["MPL-2.0", "Python-2.0"];

/// The sizes over a limit, one line each.
pub(crate) fn sizes(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let mut violations = Vec::new();
    let first = first_load(files);
    let packed = |name: &String| files.get(name).map_or(0, |bytes| gzipped(bytes));
    let first_size: usize = first.iter().map(packed).sum();
    if first_size > FIRST_LOAD {
        let names =
            first.iter().map(|name| format!("{name} {}", packed(name))).collect::<Vec<_>>().join(", ");
        violations.push(format!(
            "the first load has {first_size} bytes compressed, {FIRST_LOAD} are allowed: {names}"
        ));
    }
    for name in files.keys().filter(|name| !first.contains(*name)) {
        let size = packed(name);
        if size > LATER_PART {
            violations.push(format!("{name} has {size} bytes compressed, {LATER_PART} are allowed"));
        }
    }
    let whole: usize = files.values().map(Vec::len).sum();
    if whole > WHOLE {
        violations.push(format!("all files have {whole} bytes, {WHOLE} are allowed"));
    }
    violations
}

/// The files of the dashboard that are longer or wider than those of the workspace may be, one line each. What a program
/// generates is not read by people.
pub(crate) fn shapes(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let is_written = |name: &str| {
        let kinds = [".ts", ".tsx", ".mjs", ".css"];
        kinds.iter().any(|kind| name.ends_with(kind)) && !name.ends_with(".d.ts")
    };
    let mut violations = Vec::new();
    for (name, bytes) in files.iter().filter(|(name, _)| is_written(name)) {
        let text = String::from_utf8_lossy(bytes);
        let lines = text.lines().count();
        if lines > FILE_LINES {
            violations.push(format!("ui/{name}: {lines} lines, the limit is {FILE_LINES}"));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.chars().count() > LINE_COLUMNS {
                violations.push(format!("ui/{name}:{number}: more than {LINE_COLUMNS} columns"));
            }
        }
    }
    violations
}

/// The page, and what it needs before it shows anything: files that it names, and what these import at once.
fn first_load(files: &BTreeMap<String, Vec<u8>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut to_read = vec!["index.html".to_owned()];
    while let Some(name) = to_read.pop() {
        let text = files.get(&name).map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        for other in files.keys() {
            let relative =
                other.strip_prefix(directory).map_or(other.as_str(), |rest| rest.trim_start_matches('/'));
            if !found.contains(other) && *other != name && is_needed(&text, relative) {
                to_read.push(other.clone());
            }
        }
        found.insert(name);
    }
    found
}

/// Whether a text names a file other than in a dynamic import or the URL of a worker.
fn is_needed(text: &str, name: &str) -> bool {
    ['"', '\'', '`'].iter().any(|quote| {
        let quoted = format!("{quote}./{name}{quote}");
        text.match_indices(&quoted).any(|(place, _)| {
            let before = text[..place].trim_end();
            before.ends_with("from") || before.ends_with("import") || before.ends_with('=')
        })
    })
}

fn gzipped(bytes: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.map_or(usize::MAX, |packed| packed.len())
}

/// What is wrong with the dependencies, one line each.
pub(crate) fn dependencies(manifest: &str, lock: &str) -> Vec<String> {
    let (Ok(manifest), Ok(lock)) =
        (serde_json::from_str::<Value>(manifest), serde_json::from_str::<Value>(lock))
    else {
        return vec!["ui/package.json or ui/package-lock.json cannot be read".to_owned()];
    };
    let mut violations = Vec::new();
    let direct: Vec<(&String, &Value)> =
        ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"]
            .iter()
            .filter_map(|kind| manifest[*kind].as_object())
            .flatten()
            .collect();
    if direct.len() > DEPENDENCIES {
        violations.push(format!("{} direct dependencies, {DEPENDENCIES} are allowed", direct.len()));
    }
    for (name, version) in direct {
        let version = version.as_str().unwrap_or_default();
        if !version.starts_with(|first: char| first.is_ascii_digit())
            || version.contains([' ', 'x', '*', '|'])
        {
            violations.push(format!("{name}: the version {version:?} is not exact"));
        }
    }
    for (place, package) in
        lock["packages"].as_object().into_iter().flatten().filter(|(place, _)| !place.is_empty())
    {
        let name = place.rsplit_once("node_modules/").map_or(place.as_str(), |(_, name)| name);
        if !package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")) {
            violations.push(format!("{name}: the lock file has no hash of it"));
        }
        let licence = package["license"].as_str().unwrap_or_default();
        let is_tool = package["dev"] == true || package["devOptional"] == true;
        let is_allowed = licences::is_allowed(licence) == Ok(true) || is_tool && FOR_TOOLS.contains(&licence);
        if !is_allowed {
            violations.push(format!("{name}: licence {licence:?} is not allowed"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(given: &[(&str, String)]) -> BTreeMap<String, Vec<u8>> {
        given.iter().map(|(name, text)| ((*name).to_owned(), text.clone().into_bytes())).collect()
    }

    /// Text that does not compress.
    fn noise(bytes: usize) -> String {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b' ' + u8::try_from((state >> 33) % 90).unwrap_or(0))
        };
        (0..bytes).map(|_| next()).filter(|c| !"\"'`".contains(*c)).collect()
    }

    #[test]
    fn d57_the_first_load_is_what_the_page_imports_at_once() {
        let index =
            r#"import{a}from"./shared-2.js";import("./page-3.js");new Worker(new URL("./worker-4.js",x))"#;
        let built = files(&[
            ("index.html", r#"<script type="module" src="./assets/index-1.js"></script>"#.to_owned()),
            ("assets/index-1.js", index.to_owned()),
            ("assets/shared-2.js", "export{}".to_owned()),
            ("assets/page-3.js", r#"import"./part-5.js""#.to_owned()),
            ("assets/part-5.js", String::new()),
            ("assets/worker-4.js", String::new()),
        ]);
        let first: Vec<String> = first_load(&built).into_iter().collect();
        assert_eq!(first, ["assets/index-1.js", "assets/shared-2.js", "index.html"]);
        assert!(sizes(&built).is_empty());
    }

    #[test]
    fn d57_each_budget_is_checked() {
        let index = r#"<script src="./assets/a.js"></script>"#.to_owned();
        let large = files(&[
            ("index.html", index),
            ("assets/a.js", noise(160 << 10)),
            ("assets/b.js", noise(60 << 10)),
            ("assets/c.txt", "x".repeat(500 << 10)),
        ]);
        let found = sizes(&large);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("the first load has ") && found[0].contains("assets/a.js"), "{found:?}");
        assert!(found[1].starts_with("assets/b.js has "), "{found:?}");
        assert!(found[2].starts_with("all files have "), "{found:?}");
    }

    #[test]
    fn long_files_and_wide_lines_of_the_pages_are_noticed() {
        let long = "a\n".repeat(FILE_LINES + 1);
        let wide = format!("// fine\n// {}\n", "ä".repeat(LINE_COLUMNS));
        let written = files(&[
            ("src/a.tsx", long),
            ("src/b.css", wide.clone()),
            ("src/schema.d.ts", wide.clone()),
            ("tests/data.json", wide),
        ]);
        assert_eq!(
            shapes(&written),
            ["ui/src/a.tsx: 601 lines, the limit is 600", "ui/src/b.css:2: more than 130 columns"]
        );
    }

    #[test]
    fn d55_dependencies_are_few_exact_hashed_and_allowed() {
        let lock =
            |members: &str| format!(r#"{{"packages": {{"": {{}}, "node_modules/a": {{{members}}}}}}}"#);
        let fine = lock(r#""integrity": "sha512-x", "license": "MIT""#);
        assert!(dependencies(r#"{"dependencies": {"a": "1.2.3"}}"#, &fine).is_empty());
        for inexact in ["^1.2.3", "~1", "*", "latest", "1.x", ">=1", "git+https://a"] {
            let manifest = format!(r#"{{"devDependencies": {{"a": "{inexact}"}}}}"#);
            assert_eq!(dependencies(&manifest, &fine).len(), 1, "{inexact}");
        }
        let thirteen: Vec<String> = (0..13).map(|number| format!("\"a{number}\": \"1.0.0\"")).collect();
        let many = dependencies(&format!(r#"{{"dependencies": {{{}}}}}"#, thirteen.join(",")), &fine);
        assert_eq!(many, ["13 direct dependencies, 12 are allowed"]);
        for (members, allowed) in [
            (r#""license": "MIT""#, false),
            (r#""integrity": "sha1-x", "license": "MIT""#, false),
            (r#""integrity": "sha512-x""#, false),
            (r#""integrity": "sha512-x", "license": "GPL-3.0-only", "dev": true"#, false),
            (r#""integrity": "sha512-x", "license": "MPL-2.0""#, false),
            (r#""integrity": "sha512-x", "license": "MPL-2.0", "dev": true"#, true),
            (r#""integrity": "sha512-x", "license": "(MIT OR CC0-1.0)""#, true),
        ] {
            assert_eq!(dependencies("{}", &lock(members)).is_empty(), allowed, "{members}");
        }
        assert!(!dependencies("{", "{}").is_empty());
    }
}

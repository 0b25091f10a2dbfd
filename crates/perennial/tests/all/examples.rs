//! Every example ends and prints the expected output.
//!
//! Cargo builds examples along with the tests of a package, in a directory beside the tests. If only this
//! test was selected they may be missing or outdated; then they are built here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// Examples and their exact output.
const EXAMPLES: &[(&str, &str)] = &[
    ("hello", "Hello, Ada!\n"),
    ("fan_out", "[1, 4, 9, 16, 25], together 55\n"),
    ("timeout_race", "Slow & Sons took too long\nfirst: Quick offers\n"),
    (
        "human_approval",
        "lunch: waits for somebody to approve 2500 cents\n\
         lunch: paid, approved by Grace\n\
         yacht: refused by Ada\n",
    ),
    (
        "approval_by_token",
        "to Grace: please approve 2500 cents (attempt 1)\n\
         the shop is closed, and order-7 waits\n\
         Grace follows the link\n\
         order-7: ordered\n\
         too late: true\n",
    ),
    ("saga", "undone: hotel-7\nundone: flight-7\nnot booked: no cars left\n"),
    (
        "sub_orchestrations",
        "a lemon cake\n\
         none (onion is not a flavour)\n\
         a poppy cake\n\
         birthday is completed\n  \
           lemon for birthday is completed\n  \
           onion for birthday is failed\n  \
           poppy for birthday is completed\n",
    ),
    ("eternal_loop", "closed in round 3 with 23\nexecutions: 3\n"),
    (
        "retries_and_heartbeats",
        "attempt 1 begins after row 0\n\
         attempt 2 begins after row 3\n\
         attempt 3 begins after row 7\n\
         charge, attempt 1\n\
         imported 10 rows of prices.csv; charged: Err(Application(\"card expired\"))\n",
    ),
    (
        "versioning_and_patch",
        "old (1.0.0): pack, ship\n\
         patched (1.0.0): wrap, pack, ship\n\
         new (2.0.0): send by drone\n",
    ),
    (
        "queries_and_updates",
        "added tea: 1 in the cart\n\
         added milk: 2 in the cart\n\
         refused: tea is in the cart\n\
         query: tea, milk\n\
         bought: tea, milk\n",
    ),
    ("shared_pool", "balance: 1000\n"),
    (
        "searching",
        "city begins with Os: [\"d-1\", \"d-2\"]\n\
         70 to 120: [\"d-2\", \"d-4\"]\n\
         after Oslo: [\"d-4\"]\n\
         arrived: 2\n\
         Oslo Øystese\n",
    ),
    ("channels_and_streams", "Oslo: 4\nBergen: 6\nÅ: 2\n"),
    (
        "encrypted_payloads",
        "with the keys: sent to account 4711\n\
         without: transfer with {\"@codec\":[[\"xchacha20poly1305\",\"may\"]],\"size\":14}\n\
         without: completed with {\"@codec\":[[\"xchacha20poly1305\",\"june\"]],\"size\":22}\n",
    ),
    (
        "delayed_and_policies",
        "r-1 is pending\n\
         reminded Ada\n\
         not early: true\n\
         in Oslo: 1\n\
         PER-0606 already exists: instance \"r-1\" is completed; choose another id, or use the existing instance\n\
         Use: existed, reminded Ada\n\
         ReplaceEnded: started, reminded Bob\n\
         socks: a new parcel\n\
         hats: into the parcel\n\
         p-1: [\"socks\",\"hats\"]\n",
    ),
    (
        "testing_with_time_skipping",
        "approved: receipt for 500\n\
         days: 32\n\
         forgotten: not approved\n\
         fourth attempt: receipt for 500\n\
         survives every crash: true\n",
    ),
];

/// Examples that print a duration: the last line has to begin like this.
const TIMED: &[(&str, &str)] = &[("survive", "started 200, completed 200, lost 0, kills 5, ")];

/// The directory that the examples are built into.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("examples")
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// The example's program, built if it is missing or older than its source.
fn program(name: &str) -> PathBuf {
    let program = built().join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let source = Path::new(SOURCES).join(format!("{name}.rs"));
    if changed(&program) < changed(&source) {
        let directory = built().parent().unwrap().to_owned();
        let profile = match directory.file_name().and_then(|name| name.to_str()) {
            None | Some("debug") => "dev",
            Some(profile) => profile,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--package", "perennial", "--examples", "--profile", profile])
            .arg("--target-dir")
            .arg(directory.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success(), "the examples do not build");
    }
    assert!(program.exists(), "{} was not built", program.display());
    program
}

fn output(name: &str) -> String {
    let output = Command::new(program(name)).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_example_prints_what_it_is_meant_to() {
    for (name, expected) in EXAMPLES {
        assert_eq!(output(name), *expected, "the output of {name}");
    }
}

#[test]
fn an_example_that_kills_its_workers_loses_nothing() {
    for (name, expected) in TIMED {
        let output = output(name);
        let last = output.lines().last().unwrap_or_default();
        assert!(last.starts_with(expected), "{name} ended with {last:?}");
    }
}

#[test]
fn no_example_is_left_out() {
    let names = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let there: BTreeSet<String> =
        std::fs::read_dir(SOURCES).unwrap().filter_map(|entry| names(entry.unwrap().path())).collect();
    let run: BTreeSet<String> = EXAMPLES.iter().chain(TIMED).map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(there, run);
    assert!(there.len() > 12);
}

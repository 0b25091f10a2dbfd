//! Every example ends and prints the expected output.
//!
//! Cargo builds examples along with the tests of a package, in a directory beside the tests. If only this
//! test was selected they may be missing or outdated; then they are built here.

use std::collections::BTreeSet;
#[cfg(unix)]
use std::io::{BufRead, BufReader, Read, Write};
#[cfg(unix)]
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(unix)]
use std::process::Stdio;
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

/// Serves until it is told to stop; a test of its own talks to it.
const SERVICE: &str = "web_service";

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

/// Sends one HTTP request and returns the status and the body.
#[cfg(unix)]
fn request(address: &str, line: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

#[cfg(unix)]
#[test]
fn p5_a_web_service_takes_orders_and_shuts_down_when_it_is_terminated() {
    let mut service =
        Command::new(program(SERVICE)).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(service.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    let address = first.strip_prefix("listening on ").unwrap();
    let status = |line: &str, body: &str| request(address, line, body).0;
    assert_eq!(status("GET /orders/7", ""), "404");
    assert_eq!(status("PUT /orders/7", "\"socks\""), "202");
    assert_eq!(status("PUT /orders/7", "\"socks\""), "202", "it finds the same order");
    let (code, waits) = request(address, "GET /orders/7", "");
    assert_eq!((code.as_str(), waits.starts_with("event `approved` for ")), ("202", true), "{waits}");
    assert_eq!(status("POST /orders/7/approval", ""), "202");
    assert_eq!(
        request(address, "GET /orders/7", ""),
        ("200".to_owned(), "socks are on their way".to_owned())
    );
    assert_eq!(status("POST /orders/7/approval", ""), "409", "it has ended");
    let killed = Command::new("kill").args(["-TERM", &service.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(lines.next().as_deref(), Some("stopped"));
    assert!(service.wait().unwrap().success());
}

#[test]
fn no_example_is_left_out() {
    let names = |path: PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let there: BTreeSet<String> =
        std::fs::read_dir(SOURCES).unwrap().filter_map(|entry| names(entry.unwrap().path())).collect();
    let run = EXAMPLES.iter().chain(TIMED).map(|(name, _)| *name).chain([SERVICE]);
    let run: BTreeSet<String> = run.map(str::to_owned).collect();
    assert_eq!(there, run);
    assert!(there.len() > 12);
}

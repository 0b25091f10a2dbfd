//! P8: the command against hostile data, paths and arguments.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use perennial::prelude::*;

use crate::support::{CommandResult, Shop};

/// Clears a terminal, turns the order of text around, rings, and goes back to the start of the line.
const HOSTILE: &str = "x\u{1b}[2J\u{202e}\u{9b}31m\u{7}\r\u{8}\u{2066}y";

async fn hostile(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ctx.set_status(HOSTILE);
    ctx.set_attribute("hostile", HOSTILE);
    let _child = ctx.schedule_sub_orchestration("fails", Payload::from(HOSTILE));
    let failing = ctx.schedule_activity("failing", Payload::from(HOSTILE));
    ctx.select2(ctx.schedule_wait(HOSTILE), failing).await;
    Ok(Payload::from(HOSTILE))
}

async fn fails(_: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    Err(Payload::from(HOSTILE))
}

async fn panics(_: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    panic!("{HOSTILE}")
}

/// A closed store full of hostile data.
async fn hostile_shop() -> Shop {
    let mut shop = Shop::stocked().await;
    let runtime = Runtime::open(shop.url())
        .orchestration("hostile", "1.0.0", hostile)
        .orchestration("fails", "1.0.0", fails)
        .orchestration("panics", "1.0.0", panics)
        .activity("failing", |_: ActivityContext, _: Payload| async {
            Err::<Payload, Payload>(HOSTILE.into())
        })
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    for (name, id) in [("hostile", "hostile-1"), ("fails", "fails-1"), ("panics", "panics-1")] {
        client.start(name, id, Payload::from(HOSTILE)).await.unwrap();
    }
    client.wait("fails-1").await.unwrap();
    while client.status("panics-1").await.unwrap().blocked.is_none()
        || client.status("hostile-1").await.unwrap().published.is_none()
    {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    shop.runtime = None;
    // Ids and names that no client would take.
    let connection = rusqlite::Connection::open(shop.path()).unwrap();
    connection.execute("UPDATE instances SET id = ?1 WHERE id = 'order-1'", [HOSTILE]).unwrap();
    connection.execute("UPDATE instances SET name = ?1 WHERE id = 'order-2'", [HOSTILE]).unwrap();
    connection.execute("UPDATE instances SET version = ?1 WHERE id = 'counter-1'", [HOSTILE]).unwrap();
    shop
}

#[track_caller]
fn assert_visible(arguments: &[&str], result: &CommandResult) {
    for text in [&result.stdout, &result.stderr] {
        let hidden = text.chars().find(|c| {
            (c.is_control() && *c != '\n')
                || ('\u{202a}'..='\u{202e}').contains(c)
                || ('\u{2066}'..='\u{2069}').contains(c)
        });
        assert_eq!(hidden, None, "{arguments:?}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_nothing_of_a_store_reaches_the_terminal_as_a_command() {
    let shop = hostile_shop().await;
    let mut shown = String::new();
    let commands: &[&[&str]] = &[
        &["list"],
        &["list", "--json"],
        &["show", "hostile-1"],
        &["show", "hostile-1", "--json"],
        &["show", "fails-1"],
        &["show", "panics-1"],
        &["show", "order-2"],
        &["show", HOSTILE],
        &["history", "hostile-1"],
        &["history", "hostile-1", "--json"],
        &["history", "hostile-1", "--timeline"],
        &["history", HOSTILE],
        &["history", HOSTILE, "--timeline"],
        &["tree", "hostile-1"],
        &["tree", HOSTILE],
        &["tree", "hostile-1", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["verify"],
        &["verify", "--json"],
        &["top", "--once"],
        &["nodes"],
        &["raise", HOSTILE, HOSTILE, "1"],
        &["cancel", HOSTILE, "--yes"],
        &["delete", HOSTILE],
        &["list", "--filter", HOSTILE],
        &["list", "--status", HOSTILE],
        &[HOSTILE],
    ];
    for arguments in commands {
        let result = shop.run(arguments).await;
        assert_visible(arguments, &result);
        shown += &result.stdout;
    }
    assert!(shown.contains("\\u001b[2J\\u202e"), "it is shown as escapes: {shown}");
}

#[tokio::test]
async fn p8_an_export_never_replaces_a_file_of_the_store() {
    let shop = Shop::stocked().await;
    let before = shop.files();
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("link.db");
    std::fs::hard_link(shop.path(), &link).unwrap();
    let beside = |suffix: &str| format!("{}{suffix}", shop.path().display());
    for path in [beside(""), beside("-wal"), beside("-shm"), beside("-lock"), link.display().to_string()] {
        let result = shop.run(&["export", "--output", &path]).await;
        assert_eq!(result.code, 2, "{path}: {result:?}");
        assert!(result.stderr.contains("belongs to the store"), "{result:?}");
    }
    std::fs::remove_file(link).unwrap();
    assert!(shop.files() == before, "{:?}", shop.files().keys());
}

#[tokio::test]
async fn p8_an_export_follows_no_link_and_is_private() {
    let shop = Shop::stocked().await;
    let directory = tempfile::tempdir().unwrap();
    let (victim, output) = (directory.path().join("victim"), directory.path().join("out.jsonl"));
    std::fs::write(&victim, "precious").unwrap();
    let path = output.to_str().unwrap();
    symlink(&victim, &output).unwrap();
    let result = shop.run(&["export", "--output", path]).await;
    assert_eq!((result.code, result.stderr.contains("symbolic link")), (2, true), "{result:?}");
    // The name of an earlier version's temporary file.
    symlink(&victim, directory.path().join("out.jsonl.part")).unwrap();
    std::fs::remove_file(&output).unwrap();
    assert_eq!(shop.run(&["export", "--output", path]).await.code, 0);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(std::fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
    let lines = std::fs::read_to_string(&output).unwrap().lines().count();
    assert!(lines >= 3, "{lines}");
    // Again, over its own output; nothing else is left.
    assert_eq!(shop.run(&["export", "--output", path]).await.code, 0);
    let names = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["out.jsonl", "out.jsonl.part", "victim"]);
}

#[tokio::test]
async fn p8_an_export_of_a_store_in_use_ends_with_what_was_there() {
    let shop = Shop::open().await;
    let client = shop.client();
    client.start("counter", "counter-1", Payload::from_json("7").unwrap()).await.unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let starting = async {
        for number in 0_u64.. {
            if done.load(std::sync::atomic::Ordering::Relaxed) {
                break;
            }
            client
                .start("counter", &format!("late-{number}"), Payload::from_json("7").unwrap())
                .await
                .unwrap();
        }
    };
    let exporting = async {
        let result = shop.run(&["export"]).await;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        result
    };
    let (result, ()) = tokio::join!(exporting, starting);
    assert_eq!(result.code, 0, "{result:?}");
    assert!(result.stdout.contains("counter-1"), "{result:?}");
}

#[test]
fn p8_arguments_that_are_not_text_get_a_message() {
    let invalid = OsStr::from_bytes(b"order-\xff");
    for arguments in [
        vec![OsStr::new("show"), invalid],
        vec![OsStr::new("show"), invalid, OsStr::new("--json")],
        vec![invalid],
        vec![OsStr::new("list"), OsStr::new("--store"), invalid],
        vec![OsStr::new("list"), OsStr::new("--name"), invalid],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_perennial")).args(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains("error") && !text.contains("panicked"), "{arguments:?}: {text}");
    }
    let listed =
        Command::new(env!("CARGO_BIN_EXE_perennial")).arg("list").env("PERENNIAL_STORE", invalid).output();
    let listed = listed.unwrap();
    let text = String::from_utf8_lossy(&listed.stderr);
    assert_eq!(listed.status.code(), Some(2), "{text}");
    assert!(text.contains("error") && !text.contains("panicked"), "{text}");
}

#[tokio::test]
async fn p8_a_lock_file_that_is_a_link_is_not_followed() {
    let shop = Shop::stocked().await;
    let victim = shop.path().with_file_name("victim");
    std::fs::write(&victim, "precious").unwrap();
    let lock = shop.path().with_file_name("shop.db-lock");
    let _ = std::fs::remove_file(&lock);
    symlink(&victim, &lock).unwrap();
    let refused = Runtime::open(shop.url()).start().await.err().unwrap().to_string();
    assert!(refused.contains("symbolic link"), "{refused}");
    for arguments in [&["list"][..], &["doctor"], &["prune", "--older-than", "1d", "--yes"]] {
        shop.run(arguments).await;
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious", "{arguments:?}");
    }
}

#[tokio::test]
async fn p8_a_store_that_cannot_be_written_can_be_looked_at() {
    let shop = Shop::stocked().await;
    let mounted = tempfile::tempdir().unwrap();
    let directory = shop.path().parent().unwrap().to_owned();
    for name in ["shop.db", "shop.db-lock"] {
        let _ = std::fs::set_permissions(directory.join(name), std::fs::Permissions::from_mode(0o400));
    }
    let mut url = shop.url();
    // The permissions do not stop a privileged user, but a read-only mount does.
    let mount = |arguments: &[&OsStr]| {
        Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
    };
    let bind = [OsStr::new("--bind"), directory.as_os_str(), mounted.path().as_os_str()];
    let is_mounted = mount(&bind);
    if is_mounted {
        assert!(mount(&[OsStr::new("-o"), OsStr::new("remount,bind,ro"), mounted.path().as_os_str()]));
        url = format!("sqlite:{}", mounted.path().join("shop.db").display());
    }
    for (arguments, code) in [
        (&["list"][..], 0),
        (&["show", "order-1"], 0),
        (&["history", "order-1"], 0),
        (&["export"], 0),
        (&["verify"], 0),
        (&["doctor"], 1),
    ] {
        let arguments: Vec<&str> = [&["--store", &url], arguments].concat();
        let result = crate::support::run(&arguments, &[]);
        assert_eq!(result.code, code, "{arguments:?}: {result:?}");
    }
    if is_mounted {
        let changed = crate::support::run(&["--store", &url, "raise", "counter-1", "stop", "null"], &[]);
        assert_eq!(changed.code, 5, "{changed:?}");
        let _ = Command::new("umount").arg("--lazy").arg(mounted.path()).status();
    }
}

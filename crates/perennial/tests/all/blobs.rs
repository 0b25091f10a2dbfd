//! Large payloads in a directory of blobs (S13, S14): where they are stored, the effect of a missing one, and
//! which are deleted.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use perennial::codec::{BlobDirectory, BlobStore, Codecs, Offload};
use perennial::prelude::*;
use tempfile::TempDir;

use super::support::{Place, relaxed, soon};

const GO: ExternalEvent<String> = ExternalEvent::named("go");
const HOUR: Duration = Duration::from_secs(3_600);

#[orchestration(version = "1.0.0")]
async fn length(ctx: OrchestrationContext, text: String) -> Result<usize, String> {
    Ok(text.len() + ctx.schedule_wait(GO).await.len())
}

struct Home {
    place: Place,
    directory: TempDir,
}

impl Home {
    fn new() -> Home {
        Home { place: Place::new(), directory: tempfile::tempdir().unwrap() }
    }

    fn url(&self) -> String {
        self.place.url()
    }

    fn blobs(&self) -> Arc<BlobDirectory> {
        Arc::new(BlobDirectory::open(self.directory.path().join("blobs")).unwrap())
    }

    async fn runtime(&self) -> Runtime {
        let codecs = Codecs::default().with(Offload::above_shared(1_000, self.blobs()));
        Runtime::open(self.url()).options(relaxed()).codecs(codecs).register(length).start().await.unwrap()
    }

    /// The files of all blobs.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for directory in std::fs::read_dir(self.directory.path().join("blobs")).unwrap() {
            let directory = directory.unwrap().path();
            if directory.is_dir() {
                files.extend(std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()));
            }
        }
        files.sort();
        files
    }

    /// As if all blobs had been written two hours ago.
    fn age(&self) {
        for file in self.files() {
            File::options()
                .append(true)
                .open(file)
                .unwrap()
                .set_modified(SystemTime::now() - 2 * HOUR)
                .unwrap();
        }
    }
}

fn text(letter: &str) -> String {
    letter.repeat(5_000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s13_a_large_payload_is_a_blob_over_a_restart_and_small_ones_are_not() {
    let home = Home::new();
    let runtime = home.runtime().await;
    runtime.client().start(length, "a", text("x")).await.unwrap();
    drop(runtime);
    assert_eq!(home.files().len(), 1, "written before the start was acknowledged");
    let runtime = home.runtime().await;
    runtime.client().raise_event("a", GO, "small".to_owned()).await.unwrap();
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "5005");
    assert_eq!(home.files().len(), 1);
    assert!(!home.place.stored_text().contains(&text("x")[..500]));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s13_a_missing_blob_blocks_and_is_named_and_its_return_cures() {
    let home = Home::new();
    let runtime = home.runtime().await;
    runtime.client().start(length, "a", text("x")).await.unwrap();
    drop(runtime);
    let [file] = &home.files()[..] else { panic!("{:?}", home.files()) };
    let (name, elsewhere) =
        (file.file_name().unwrap().to_str().unwrap(), home.directory.path().join("elsewhere"));
    std::fs::rename(file, &elsewhere).unwrap();
    let runtime = home.runtime().await;
    let client = runtime.client();
    client.raise_event("a", GO, "".to_owned()).await.unwrap();
    let blocked = soon(async {
        loop {
            if let Some(blocked) = client.status("a").await.unwrap().blocked {
                break blocked;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(blocked.code, "PER-0104");
    assert!(blocked.reason.contains(&format!("blob {name:?} is missing")), "{}", blocked.reason);
    std::fs::rename(&elsewhere, file).unwrap();
    client.retry("a").await.unwrap();
    assert_eq!(soon(client.result("a")).await.unwrap().as_json(), "5000");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s14_a_sweep_deletes_old_blobs_that_nothing_refers_to() {
    let home = Home::new();
    let runtime = home.runtime().await;
    let client = runtime.client();
    for (id, letter) in [("a", "x"), ("b", "y"), ("c", "z")] {
        client.start(length, id, text(letter)).await.unwrap();
    }
    client.raise_event("b", GO, text("w")).await.unwrap();
    client.raise_event("c", GO, "".to_owned()).await.unwrap();
    soon(client.result("b")).await.unwrap();
    soon(client.result("c")).await.unwrap();
    let blobs: Arc<dyn BlobStore> = home.blobs();
    client.delete("c", false).await.unwrap();
    let swept = client.sweep_blobs(Arc::clone(&blobs), HOUR).await.unwrap();
    assert_eq!((swept.deleted, swept.kept), (0, 0), "all are young");
    home.age();
    let swept = client.sweep_blobs(Arc::clone(&blobs), Duration::ZERO).await.unwrap();
    assert_eq!((swept.deleted, swept.kept), (1, 3), "that of the deleted instance");
    client.delete("b", false).await.unwrap();
    // Putting an existing blob makes it young: the caller is about to refer to it.
    client.start(length, "d", text("y")).await.unwrap();
    let swept = client.sweep_blobs(blobs, HOUR).await.unwrap();
    assert_eq!((swept.deleted, swept.kept), (1, 1), "the event of b, but not what d has too");
    for (id, length) in [("a", "5000"), ("d", "5000")] {
        client.raise_event(id, GO, "".to_owned()).await.unwrap();
        assert_eq!(soon(client.result(id)).await.unwrap().as_json(), length);
    }
    runtime.shutdown().await.unwrap();
}

#[test]
fn s14_a_blob_that_is_put_again_is_young_and_not_deleted() {
    let home = Home::new();
    let blobs = home.blobs();
    let name = "0".repeat(64);
    blobs.put(&name, b"bytes").unwrap();
    home.age();
    assert_eq!(blobs.older_than(HOUR).unwrap(), std::slice::from_ref(&name));
    blobs.put(&name, b"bytes").unwrap();
    assert!(!blobs.delete_older_than(&name, HOUR).unwrap());
    assert_eq!(blobs.get(&name).unwrap().unwrap(), b"bytes");
    home.age();
    assert!(blobs.delete_older_than(&name, HOUR).unwrap());
    assert_eq!(blobs.get(&name).unwrap(), None);
    assert!(blobs.get("../../etc/passwd").is_err(), "a name is no path");
}

#[test]
fn s13_a_damaged_blob_is_whole_again_once_it_is_put() {
    let home = Home::new();
    let blobs = home.blobs();
    let name = "0".repeat(64);
    blobs.put(&name, b"all of the bytes").unwrap();
    let [file] = &home.files()[..] else { panic!("{:?}", home.files()) };
    for damaged in [&b"all of"[..], b"", b"all of the bytez"] {
        std::fs::write(file, damaged).unwrap();
        blobs.put(&name, b"all of the bytes").unwrap();
        assert_eq!(blobs.get(&name).unwrap().unwrap(), b"all of the bytes");
    }
}

#[cfg(unix)]
#[test]
fn s13_a_blob_that_cannot_be_written_leaves_nothing_behind() {
    let home = Home::new();
    let blobs = home.blobs();
    // Where its directory would be is a link to nowhere.
    std::os::unix::fs::symlink("nowhere", home.directory.path().join("blobs").join("00")).unwrap();
    for _ in 0..3 {
        assert!(blobs.put(&"0".repeat(64), b"bytes").is_err());
    }
    assert_eq!(home.files(), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s13_a_blob_that_was_cut_or_swapped_blocks_and_is_named() {
    let home = Home::new();
    let runtime = home.runtime().await;
    runtime.client().start(length, "a", text("x")).await.unwrap();
    runtime.client().start(length, "b", text("y")).await.unwrap();
    drop(runtime);
    let [one, other] = &home.files()[..] else { panic!("{:?}", home.files()) };
    let cut = std::fs::read(one).unwrap();
    std::fs::write(one, &cut[..100]).unwrap();
    std::fs::write(other, &cut).unwrap();
    let runtime = home.runtime().await;
    let client = runtime.client();
    for id in ["a", "b"] {
        client.raise_event(id, GO, "".to_owned()).await.unwrap();
        let blocked = crate::support::until_blocked(&client, id, "PER-0104").await.blocked.unwrap();
        assert!(blocked.reason.contains("was changed"), "{}", blocked.reason);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s14_a_sweep_keeps_what_messages_and_pending_starts_refer_to() {
    let home = Home::new();
    let runtime = home.runtime().await;
    runtime.client().start(length, "a", "".to_owned()).await.unwrap();
    runtime.shutdown().await.unwrap();
    let codecs = Codecs::default().with(Offload::above_shared(1_000, home.blobs()));
    let guest = Client::open_with_codecs(&home.url(), codecs).unwrap();
    guest.raise_event("a", GO, text("m")).await.unwrap();
    guest.start("length", "b", text("p")).await.unwrap();
    home.age();
    assert_eq!(home.files().len(), 2);
    // A sweep needs no codec.
    let sweeper = Client::open(&home.url()).unwrap();
    let swept = sweeper.sweep_blobs(home.blobs(), HOUR).await.unwrap();
    assert_eq!((swept.deleted, swept.kept), (0, 2));
    let runtime = home.runtime().await;
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "5000");
    runtime.client().raise_event("b", GO, "".to_owned()).await.unwrap();
    assert_eq!(soon(runtime.client().result("b")).await.unwrap().as_json(), "5000");
    runtime.shutdown().await.unwrap();
}

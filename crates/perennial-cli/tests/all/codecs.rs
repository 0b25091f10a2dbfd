//! S12: without codecs the command shows the history with markers instead of payloads, and can make changes.
//! A command built with the codecs shows payloads.

use perennial::codec::{BlobDirectory, CodecError, Codecs, Encoded, Offload, PayloadCodec, PayloadContext};
use perennial::prelude::*;
use serde_json::{Value, json};

use super::support::{Shop, run_example};

struct Flipped;

impl PayloadCodec for Flipped {
    fn name(&self) -> &str {
        "flipped"
    }

    fn encode(&self, bytes: &[u8], _: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        Ok(Some(Encoded { key: Some("may".to_owned()), bytes: bytes.iter().map(|byte| !byte).collect() }))
    }

    fn decode(&self, encoded: &Encoded, _: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        Ok(encoded.bytes.iter().map(|byte| !byte).collect())
    }
}

#[tokio::test]
async fn s12_commands_without_the_codec_print_markers_and_find_nothing_wrong() {
    let mut shop = Shop::open().await;
    shop.reopen_with(Codecs::default().with(Flipped)).await;
    let client = shop.client();
    client.start("checkout", "order-1", Payload::from_json("1200").unwrap()).await.unwrap();
    client.raise_event("order-1", ExternalEvent::<bool>::named("approved"), true).await.unwrap();
    client.wait("order-1").await.unwrap();
    let history = shop.run(&["history", "order-1", "--json"]).await.stdout;
    assert!(history.contains(r#"{"@codec":[["flipped","may"]],"size":4}"#), "{history}");
    for look in [
        &["history", "order-1"][..],
        &["show", "order-1"],
        &["show", "order-1", "--json"],
        &["list", "--json"],
    ] {
        let result = shop.run(look).await;
        assert!(result.stdout.contains("checkout"), "{look:?}: {result:?}");
        assert!(
            !result.stdout.contains("\"data\"") && !result.stdout.contains("rose"),
            "{look:?}: {result:?}"
        );
    }
    let published: Value =
        serde_json::from_str(&shop.run(&["show", "order-1", "--json"]).await.stdout).unwrap();
    assert_eq!(published["published"], json!({"@codec": [["flipped", "may"]], "size": 10}));
    let verified = shop.run(&["verify"]).await;
    assert_eq!(verified.code, 0, "{verified:?}");
    shop.runtime.take().unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn s11_a_command_terminates_an_instance_that_cannot_be_decoded() {
    let mut shop = Shop::open().await;
    shop.reopen_with(Codecs::default().with(Flipped)).await;
    shop.client().start("counter", "c", Payload::from_json("7").unwrap()).await.unwrap();
    shop.client().query("c", "count", ()).await.unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let ended = shop.run(&["terminate", "c"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let history = shop.run(&["history", "c"]).await;
    assert!(history.stdout.contains("OrchestrationTerminated"), "{history:?}");
}

#[tokio::test]
async fn s12_a_command_with_the_codecs_reads_and_writes_payloads() {
    let directory = tempfile::tempdir().unwrap();
    let blobs = BlobDirectory::open(directory.path()).unwrap();
    let mut shop = Shop::open().await;
    shop.reopen_with(Codecs::default().with(Offload::above(64, blobs))).await;
    let (url, item) = (shop.url(), "roses, ".repeat(20));
    let environment = [("PERENNIAL_STORE", &*url), ("SHOP_BLOBS", directory.path().to_str().unwrap())];
    let started = run_example("command_with_codecs", &["start", "parcel", "p", &item], &environment);
    assert_eq!(started.code, 0, "{started:?}");
    assert_eq!(shop.client().result("p").await.unwrap().to_text(), format!("{item}, wrapped"));
    let decoded = run_example("command_with_codecs", &["history", "p", "--json"], &environment);
    assert!(decoded.stdout.contains(&item) && !decoded.stdout.contains("@codec"), "{decoded:?}");
    let marked = shop.run(&["history", "p", "--json"]).await;
    assert!(!marked.stdout.contains(&item) && marked.stdout.contains("@codec"), "{marked:?}");
    shop.runtime.take().unwrap().shutdown().await.unwrap();
}

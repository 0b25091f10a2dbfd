//! Encoded payloads (S10 to S12): the stored form, the view of code and clients, and the effect of a missing
//! key.

use std::collections::BTreeMap;

use perennial::Filter;
use perennial::codec::{CodecError, Codecs, Encoded, PayloadCodec, PayloadContext};
use perennial::prelude::*;

use super::support::{Place, relaxed, soon};

/// Masks text in the file under named keys, and detects payloads that were moved to another instance.
#[derive(Clone)]
pub(crate) struct Masked {
    keys: BTreeMap<&'static str, u8>,
    current: &'static str,
}

impl Masked {
    pub(crate) fn with(keys: &[&'static str]) -> Masked {
        let of = |key: &&'static str| (*key, key.bytes().fold(0x55, |mask, byte| mask ^ byte) | 0x80);
        Masked { keys: keys.iter().map(of).collect(), current: keys.last().expect("a key") }
    }

    pub(crate) fn codecs(keys: &[&'static str]) -> Codecs {
        Codecs::default().with(Masked::with(keys))
    }
}

fn bound_to(context: &PayloadContext) -> String {
    context.instance.map_or_else(String::new, |key| key.to_string())
}

impl PayloadCodec for Masked {
    fn name(&self) -> &str {
        "masked"
    }

    fn encode(&self, bytes: &[u8], context: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        let mask = self.keys[self.current];
        let mut plain = format!("{}|", bound_to(context)).into_bytes();
        plain.extend_from_slice(bytes);
        let bytes = plain.iter().map(|byte| byte ^ mask).collect();
        Ok(Some(Encoded { key: Some(self.current.to_owned()), bytes }))
    }

    fn decode(&self, encoded: &Encoded, context: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        let key = encoded.key.as_deref().unwrap_or_default();
        let mask = self.keys.get(key).ok_or_else(|| CodecError::MissingKey(key.to_owned()))?;
        let plain: Vec<u8> = encoded.bytes.iter().map(|byte| byte ^ mask).collect();
        let head = format!("{}|", bound_to(context));
        let bytes = plain.strip_prefix(head.as_bytes());
        bytes
            .map(<[u8]>::to_vec)
            .ok_or_else(|| CodecError::Failed("it belongs to another instance".to_owned()))
    }
}

const GO: ExternalEvent<String> = ExternalEvent::named("go");

#[activity]
async fn whisper(ctx: ActivityContext, text: String) -> Result<String, String> {
    if ctx.attempt() == 1 {
        ctx.heartbeat("secret details");
        return Err("once more".to_owned());
    }
    let details: Option<String> = ctx.decode_details();
    Ok(format!("{text} and {}", details.unwrap_or_default()))
}

#[orchestration(version = "1.0.0")]
async fn child(_: OrchestrationContext, text: String) -> Result<String, String> {
    Ok(format!("child of {text}"))
}

#[orchestration(version = "1.0.0")]
async fn keeper(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    ctx.set_status("secret status");
    ctx.upsert_attributes([("place", "open attribute")]);
    let state = ctx.state(text.clone());
    ctx.on_query("held", &state, |state, (): ()| state.read(Clone::clone));
    let done = ctx
        .schedule_activity(whisper, text)
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(3))
        .await?;
    let child =
        ctx.schedule_sub_orchestration(child, done.clone()).await.map_err(|error| error.to_string())?;
    let word = ctx.schedule_wait(GO).await;
    Ok(format!("{child}, {word}"))
}

struct Home(Place);

impl Home {
    fn new() -> Home {
        let place = Place::new();
        place.expect_encoded();
        Home(place)
    }

    fn url(&self) -> String {
        self.0.url()
    }

    async fn runtime(&self, codecs: Codecs) -> Runtime {
        let runtime = Runtime::open(self.url()).options(relaxed()).codecs(codecs);
        runtime.register(whisper).register(child).register(keeper).start().await.unwrap()
    }

    fn guest(&self, codecs: Codecs) -> Client {
        Client::open_with_codecs(&self.url(), codecs).unwrap()
    }

    /// An instance waits whose payloads have the key k1, and no runtime is there.
    async fn leave_waiting(&self) {
        let runtime = self.runtime(Masked::codecs(&["k1"])).await;
        runtime.client().start(keeper, "a", "x".to_owned()).await.unwrap();
        until_waiting(&runtime.client(), "a").await;
    }
}

async fn until_blocked(client: &Client, id: &str) -> perennial::client::Blocked {
    soon(async {
        loop {
            if let Some(blocked) = client.status(id).await.unwrap().blocked {
                return blocked;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn lines(history: &perennial::history::History) -> Vec<String> {
    history.turns.iter().flat_map(|turn| &turn.events).map(|event| format!("{event:?}")).collect()
}

async fn until_waiting(client: &Client, id: &str) {
    soon(async {
        loop {
            let lines = lines(&client.history(id).await.unwrap());
            if lines.iter().any(|line| line.contains("ExternalSubscribed")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_payloads_are_encoded_on_disk_and_plain_for_code_over_a_restart() {
    let home = Home::new();
    let codecs = Masked::codecs(&["k1"]);
    let guest;
    {
        let runtime = home.runtime(codecs.clone()).await;
        guest = home.guest(codecs.clone());
        guest.start("keeper", "a", "secret input").await.unwrap();
        until_waiting(&runtime.client(), "a").await;
        assert_eq!(guest.query("a", "held", ()).await.unwrap().to_text(), "secret input");
    }
    guest.raise_event("a", GO, "secret event".to_owned()).await.unwrap();
    let on_disk = home.0.stored_text();
    assert!(
        !on_disk.contains("secret"),
        "payloads are in plain: {:?}",
        on_disk.find("secret").map(|at| &on_disk[at - 40..at + 40])
    );
    assert!(on_disk.contains("open attribute") && on_disk.contains("@codec"));

    let runtime = home.runtime(codecs.clone()).await;
    let result = soon(guest.result("a")).await.unwrap().to_text();
    assert_eq!(result, "child of secret input and secret details, secret event");
    assert_eq!(guest.status("a").await.unwrap().published.unwrap().to_text(), "secret status");
    assert!(guest.verify(|_| ()).await.unwrap().damage.is_empty());
    runtime.shutdown().await.unwrap();
    assert!(!home.0.stored_text().contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_a_new_key_is_used_and_the_old_one_still_read() {
    let home = Home::new();
    home.leave_waiting().await;
    let runtime = home.runtime(Masked::codecs(&["k1", "k2"])).await;
    runtime.client().raise_event("a", GO, "y".to_owned()).await.unwrap();
    assert!(soon(runtime.client().result("a")).await.unwrap().to_text().ends_with(", y"));
    let history = home.guest(Codecs::default()).history("a").await.unwrap();
    let lines = lines(&history);
    assert!(lines.first().unwrap().contains(r#""k1""#), "{lines:?}");
    assert!(lines.last().unwrap().contains(r#""k2""#), "{lines:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s11_a_missing_key_blocks_its_instance_alone_and_is_named() {
    let home = Home::new();
    home.leave_waiting().await;
    drop({
        // The key is gone. Other instances continue.
        let runtime = home.runtime(Masked::codecs(&["k2"])).await;
        let client = runtime.client();
        client.raise_event("a", GO, "y".to_owned()).await.unwrap();
        let blocked = until_blocked(&client, "a").await;
        assert_eq!(blocked.code, "PER-0104");
        assert!(
            blocked.reason.contains("codec masked with key \"k1\": key \"k1\" is missing"),
            "{}",
            blocked.reason
        );
        client.start(child, "b", "z".to_owned()).await.unwrap();
        assert_eq!(soon(client.result("b")).await.unwrap().to_text(), "child of z");
        runtime
    });
    let runtime = home.runtime(Masked::codecs(&["k1", "k2"])).await;
    assert!(soon(runtime.client().result("a")).await.unwrap().to_text().ends_with(", y"));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s11_a_runtime_without_the_codec_runs_no_code_on_encoded_payloads() {
    let home = Home::new();
    drop(home.runtime(Masked::codecs(&["k1"])).await);
    home.guest(Masked::codecs(&["k1"])).start("keeper", "a", "x").await.unwrap();
    drop({
        let runtime = home.runtime(Codecs::default()).await;
        let blocked = until_blocked(&runtime.client(), "a").await;
        assert_eq!(blocked.code, "PER-0104");
        assert!(blocked.reason.contains("codec masked with key \"k1\""), "{}", blocked.reason);
        runtime
    });
    let runtime = home.runtime(Masked::codecs(&["k1"])).await;
    runtime.client().raise_event("a", GO, "y".to_owned()).await.unwrap();
    assert!(soon(runtime.client().result("a")).await.unwrap().to_text().ends_with(", y"));
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s12_a_client_without_the_codec_sees_markers() {
    let home = Home::new();
    let runtime = home.runtime(Masked::codecs(&["k1"])).await;
    runtime.client().start(keeper, "a", "secret".to_owned()).await.unwrap();
    runtime.client().raise_event("a", GO, "y".to_owned()).await.unwrap();
    soon(runtime.client().result("a")).await.unwrap();
    let guest = home.guest(Codecs::default());
    let history = guest.history("a").await.unwrap();
    let started = history.turns[0].started().unwrap();
    assert_eq!(started.input.as_json(), r#"{"@codec":[["masked","k1"]],"size":8}"#);
    let status = guest.status("a").await.unwrap();
    assert_eq!(status.published.unwrap().as_json(), r#"{"@codec":[["masked","k1"]],"size":15}"#);
    let listed = guest.list(Filter::new(), None, 10).await.unwrap().rows;
    assert!(listed.iter().all(|row| row.published.as_ref().is_none_or(|it| !it.as_json().contains("data"))));
    assert_eq!(guest.verify(|_| ()).await.unwrap().damage, []);
    let result = guest.result("a").await.unwrap_err().to_string();
    assert!(result.starts_with("PER-0104") && result.contains("masked"), "{result}");
    let status = guest.wait_for("a", |_: &serde_json::Value| true).await.unwrap_err().to_string();
    assert!(status.starts_with("PER-0104") && status.contains("masked"), "{status}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s12_a_client_without_the_codec_asks_and_is_told_that_it_cannot_read_the_answer() {
    let home = Home::new();
    let runtime = home.runtime(Masked::codecs(&["k1"])).await;
    runtime.client().start(keeper, "a", "secret".to_owned()).await.unwrap();
    until_waiting(&runtime.client(), "a").await;
    let guest = home.guest(Codecs::default());
    let answer = soon(guest.query("a", "held", ())).await;
    let answer = answer.map_err(|error| error.to_string()).unwrap_err();
    assert!(answer.contains("PER-0104") && answer.contains("masked"), "{answer}");
    guest.cancel("a", "in plain").await.unwrap();
    soon(guest.wait("a")).await.unwrap();
    runtime.shutdown().await.unwrap();
}

/// Payloads are bound to their instance: one copied to another instance is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_a_codec_is_told_whose_payload_it_is() {
    let home = Home::new();
    let codecs = Masked::codecs(&["k1"]);
    let runtime = home.runtime(codecs.clone()).await;
    runtime.client().start(child, "a", "x".to_owned()).await.unwrap();
    soon(runtime.client().result("a")).await.unwrap();
    runtime.shutdown().await.unwrap();
    let guest = home.guest(Codecs::default());
    let row = guest.status("a").await.unwrap();
    let history = guest.history("a").await.unwrap();
    assert!(format!("{:?}", history.turns[0]).contains("@codec"));
    let payload = "x".into();
    let mine = codecs.encode(&payload, &PayloadContext::of(row.key)).unwrap();
    assert_eq!(codecs.decode(&mine, &PayloadContext::of(row.key)).unwrap(), payload);
    assert!(codecs.decode(&mine, &PayloadContext::default()).is_err());
}

/// Heartbeat details are values like any other, even if they look like a payload of a codec.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_details_that_look_encoded_come_back_and_block_nobody() {
    #[activity]
    async fn quoting(ctx: ActivityContext) -> Result<serde_json::Value, String> {
        if ctx.attempt() < 3 {
            let details = ctx.decode_details().unwrap_or_else(
                || serde_json::json!({ "@codec": [["elsewhere", "k1"]], "size": 1, "data": "QQ==" }),
            );
            ctx.heartbeat(&details);
            return Err("once more".to_owned());
        }
        Ok(ctx.decode_details().unwrap_or_default())
    }

    #[orchestration(version = "1.0.0")]
    async fn quotes(ctx: OrchestrationContext) -> Result<String, String> {
        let retry = RetryPolicy::fixed(Duration::from_millis(200)).attempts(3);
        Ok(ctx.schedule_activity(quoting, ()).retry(retry).await?.to_string())
    }

    for codecs in [Codecs::default(), Masked::codecs(&["k1"])] {
        let home = Home::new();
        let open = async || {
            let runtime = Runtime::open(home.url()).options(relaxed()).codecs(codecs.clone());
            runtime.register(quotes).register(quoting).start().await.unwrap()
        };
        let runtime = open().await;
        runtime.client().start(quotes, "a", ()).await.unwrap();
        soon(async { while runtime.client().tasks("a").await.unwrap().is_empty() {} }).await;
        drop(runtime);
        let runtime = open().await;
        let result = soon(runtime.client().result("a")).await.unwrap().to_text();
        assert_eq!(result, r#"{"@codec":[["elsewhere","k1"]],"data":"QQ==","size":1}"#);
        runtime.shutdown().await.unwrap();
    }
}

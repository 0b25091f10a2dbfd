//! Codecs that fail now and then, panic, refuse, or make payloads larger (S10, S11, G24), end to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use perennial::codec::{BlobStore, CodecError, Codecs, Encoded, Offload, PayloadCodec, PayloadContext};
use perennial::prelude::*;
use perennial::{Action, Filter};

use super::support::{Place, relaxed, soon};

const SOUND: u8 = 0;
const FLAKY: u8 = 1;
const PANICS: u8 = 2;
const FAILS: u8 = 3;

/// Doubles what it is given, and behaves as it is told.
#[derive(Clone, Default)]
struct Moody {
    mood: Arc<AtomicU8>,
    calls: Arc<AtomicU64>,
}

impl Moody {
    fn codecs(&self) -> Codecs {
        Codecs::default().with(self.clone())
    }

    fn be(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    fn act(&self) -> Result<(), CodecError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.mood.load(Ordering::SeqCst) {
            FLAKY if call.is_multiple_of(7) => Err(CodecError::Failed("not now".to_owned())),
            FLAKY if call % 7 == 3 => panic!("moody"),
            PANICS => panic!("moody"),
            FAILS => Err(CodecError::Failed("never".to_owned())),
            _ => Ok(()),
        }
    }
}

impl PayloadCodec for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn encode(&self, bytes: &[u8], _: &PayloadContext) -> Result<Option<Encoded>, CodecError> {
        self.act()?;
        Ok(Some(Encoded { key: None, bytes: [bytes, bytes].concat() }))
    }

    fn decode(&self, encoded: &Encoded, _: &PayloadContext) -> Result<Vec<u8>, CodecError> {
        self.act()?;
        let half = encoded.bytes.len() / 2;
        assert_eq!(encoded.bytes[..half], encoded.bytes[half..], "it was encoded once");
        Ok(encoded.bytes[..half].to_vec())
    }
}

#[activity]
async fn echo(ctx: ActivityContext, text: String) -> Result<String, String> {
    ctx.heartbeat(ctx.attempt());
    if ctx.attempt() == 1 { Err("once more".to_owned()) } else { Ok(text) }
}

#[orchestration(version = "1.0.0")]
async fn half(_: OrchestrationContext, text: String) -> Result<String, String> {
    Ok(text[..text.len() / 2].to_owned())
}

#[orchestration(version = "1.0.0")]
async fn busy(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).attempts(2);
    let text = ctx.schedule_activity(echo, text).retry(retry).await?;
    let text = ctx.schedule_sub_orchestration(half, text).await.map_err(|error| error.to_string())?;
    ctx.set_status(&text);
    Ok(format!("{text}{}", ctx.schedule_wait("more").await))
}

#[orchestration(version = "1.0.0")]
async fn size(ctx: OrchestrationContext, text: String) -> Result<usize, String> {
    Ok(text.len() + ctx.schedule_wait("more").await.len())
}

fn builder(place: &Place, codecs: Codecs) -> perennial::RuntimeBuilder {
    let runtime = Runtime::open(place.url()).options(relaxed()).codecs(codecs);
    runtime.register(echo).register(half).register(busy).register(size)
}

/// Calls something until it is not refused because of the codec.
async fn insisted<T, E: std::fmt::Display>(mut call: impl AsyncFnMut() -> Result<T, E>) -> T {
    soon(async move {
        loop {
            match call().await {
                Ok(value) => return value,
                Err(error) => {
                    let words = error.to_string();
                    assert!(words.contains("PER-0305") || words.contains("PER-0104"), "{words}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s11_nothing_is_lost_under_a_codec_that_fails_now_and_then() {
    let (place, codec) = (Place::new(), Moody::default());
    let runtime = builder(&place, codec.codecs()).start().await.unwrap();
    let client = runtime.client();
    let guest = Client::open_with_codecs(&place.url(), codec.codecs()).unwrap();
    codec.be(FLAKY);
    let ids: Vec<String> = (0..40).map(|number| format!("i{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let client = if number % 2 == 0 { &client } else { &guest };
        let input = format!("{id}{id}");
        insisted(async || match client.start("busy", id, &*input).await {
            // It was stored before the answer failed.
            Err(ClientError::AlreadyExists { .. }) => Ok(()),
            started => started.map(drop),
        })
        .await;
        insisted(async || client.raise_event(id, "more", "!").once("1").await).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    codec.be(SOUND);
    // All are retried automatically, and sooner on request.
    let blocked = Filter::new().blocked(true);
    client.for_each(blocked, Action::Retry, |_| ()).await.unwrap();
    for id in &ids {
        assert_eq!(soon(client.result(id)).await.unwrap().to_text(), format!("{id}!"));
    }
    runtime.shutdown().await.unwrap();
    assert!(guest.verify(|_| ()).await.unwrap().damage.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s11_a_codec_that_cannot_encode_refuses_callers_and_writes_nothing() {
    let (place, codec) = (Place::new(), Moody::default());
    let runtime = builder(&place, codec.codecs()).start().await.unwrap();
    let guest = Client::open_with_codecs(&place.url(), codec.codecs()).unwrap();
    for mood in [PANICS, FAILS] {
        codec.be(mood);
        let error = soon(guest.start("size", "a", "x")).await.unwrap_err();
        assert!(error.to_string().contains("PER-0305"), "{error}");
        assert_eq!(guest.status("a").await.unwrap_err(), ClientError::NotFound { id: "a".to_owned() });
    }
    codec.be(SOUND);
    guest.start("size", "a", "x").await.unwrap();
    codec.be(FAILS);
    let error = soon(async { guest.raise_event("a", "more", "yz").await }).await.unwrap_err();
    assert!(error.to_string().contains("PER-0305"), "{error}");
    codec.be(SOUND);
    soon(async { guest.raise_event("a", "more", "yz").await }).await.unwrap();
    assert_eq!(soon(guest.result("a")).await.unwrap().as_json(), "3");
    runtime.shutdown().await.unwrap();
}

/// The size limit applies to a payload as the code sees it; the encoded form may be larger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_the_limit_of_a_payload_is_that_of_its_text_whatever_codecs_make_of_it() {
    const LIMIT: usize = 4 << 20;
    let (place, codec) = (Place::new(), Moody::default());
    let codecs = codec.codecs();
    let runtime = builder(&place, codecs.clone()).start().await.unwrap();
    let guest = Client::open_with_codecs(&place.url(), codecs.clone()).unwrap();
    // Two bytes are the quotes.
    let (fits, exceeds) = ("x".repeat(LIMIT - 2), "x".repeat(LIMIT - 1));
    for client in [&runtime.client(), &guest] {
        let error = client.start("size", "a", &*exceeds).await.unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
    }
    guest.start("size", "a", &*fits).await.unwrap();
    runtime.shutdown().await.unwrap();
    assert!(guest.raise_event("a", "more", &*exceeds).await.is_err());
    guest.raise_event("a", "more", &*fits).await.unwrap();
    let runtime = builder(&place, codecs).start().await.unwrap();
    assert_eq!(soon(guest.result("a")).await.unwrap().as_json(), (2 * (LIMIT - 2)).to_string());
    runtime.shutdown().await.unwrap();
}

/// Blobs on a disk that is full.
#[derive(Default)]
struct Full(std::sync::atomic::AtomicBool);

impl BlobStore for Full {
    fn put(&self, _: &str, _: &[u8]) -> std::io::Result<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(std::io::Error::from(std::io::ErrorKind::StorageFull)),
            false => Ok(()),
        }
    }

    fn get(&self, _: &str) -> std::io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn older_than(&self, _: Duration) -> std::io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn delete_older_than(&self, _: &str, _: Duration) -> std::io::Result<bool> {
        Ok(false)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s13_a_full_disk_of_blobs_blocks_only_who_needs_it_and_passes() {
    let place = Place::new();
    let blobs = Arc::new(Full::default());
    let codecs = Codecs::default().with(Offload::above_shared(100, Arc::<Full>::clone(&blobs)));
    let runtime = builder(&place, codecs).start().await.unwrap();
    let client = runtime.client();
    client.start("size", "a", "x").await.unwrap();
    blobs.0.store(true, Ordering::SeqCst);
    let large = "y".repeat(500);
    let started = soon(client.start("size", "b", &*large)).await.unwrap_err().to_string();
    assert!(started.contains("PER-0305") && started.contains("no storage space"), "{started}");
    let raised =
        soon(async { client.raise_event("a", "more", &*large).await }).await.unwrap_err().to_string();
    assert!(raised.contains("PER-0305") && raised.contains("no storage space"), "{raised}");
    client.start("size", "c", "x").await.unwrap();
    client.raise_event("c", "more", "y").await.unwrap();
    assert_eq!(soon(client.result("c")).await.unwrap().as_json(), "2");
    blobs.0.store(false, Ordering::SeqCst);
    client.raise_event("a", "more", "y").await.unwrap();
    assert_eq!(
        soon(client.result("a")).await.unwrap().as_json(),
        "2",
        "nothing was kept of what was refused"
    );
    client.start("size", "b", "x").await.unwrap();
    runtime.shutdown().await.unwrap();
}

//! Everything that a rich run leaves on disk (S10): nothing that is a payload stands there in plain.

use std::time::Duration;

use perennial::codec::Codecs;
use perennial::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::codecs::Masked;
use super::support::{Place, relaxed, soon, until};

type Outbox = UnboundedSender<String>;

#[activity]
async fn reports(ctx: ActivityContext, text: String) -> Result<String, String> {
    ctx.heartbeat("hush-heartbeat");
    match ctx.attempt() {
        1 => Err("in plain".to_owned()),
        _ => Ok(format!("hush-result of {text}")),
    }
}

#[activity(state(Outbox))]
async fn approval(ctx: ActivityContext, _: String) -> Result<Later<String>, String> {
    ctx.state::<Outbox>().send(ctx.completion_token()).map_err(|error| error.to_string())?;
    Ok(Later::Pending)
}

#[orchestration(version = "1.0.0")]
async fn child(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    ctx.set_status("hush-status of the child");
    if text.ends_with("fails") {
        Err("hush-error of the child".to_owned())
    } else {
        Ok(format!("{text} is back"))
    }
}

#[orchestration(version = "1.0.0")]
async fn listener(ctx: OrchestrationContext, _: String) -> Result<String, String> {
    Ok(ctx.schedule_wait("word").await)
}

#[orchestration(version = "1.0.0")]
async fn counts(ctx: OrchestrationContext, from: u64) -> Result<u64, String> {
    Ok(from + ctx.schedule_wait(ExternalEvent::<u64>::named("number")).await)
}

#[orchestration(version = "1.0.0")]
async fn rich(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    let state = ctx.state(vec![text.clone()]);
    ctx.on_query("held", &state, |state, extra: String| state.read(|held| format!("{held:?} {extra}")));
    ctx.on_query("refuses", &(), |_, _: u32| 0);
    ctx.on_update("add", &state, |state, word: String| async move {
        if word.ends_with("broken") {
            return Err("hush-error of an update".to_owned());
        }
        Ok(state.update(|held| {
            held.push(word);
            format!("hush-answer {}", held.len())
        }))
    })
    .validate(|_, word| if word.ends_with("refused") { Err("hush-refusal".to_owned()) } else { Ok(()) });
    ctx.set_status("hush-status");
    if text == "hush-second" {
        let mut read = Vec::new();
        for _ in 0..2 {
            read.push(ctx.schedule_wait("unread").await);
        }
        ctx.schedule_wait("end").await;
        return Ok(format!("hush-output {read:?}"));
    }
    let drawn: String = ctx.side_effect("drawn", || "hush-side-effect".to_owned()).await;
    let retry = RetryPolicy::fixed(Duration::from_millis(1)).attempts(2);
    let reported = ctx.schedule_activity(reports, format!("hush-argument {drawn}")).retry(retry).await?;
    ctx.schedule_sub_orchestration(child, reported).await.map_err(|error| error.to_string())?;
    drop(ctx.schedule_sub_orchestration(child, "hush-child that fails".to_owned()).await);
    ctx.schedule_orchestration(listener, "other", "hush-detached".to_owned()).delivered().await;
    ctx.raise_event("other", "word", "hush-word").delivered().await;
    ctx.schedule_activity(approval, "hush-approval".to_owned()).await?;
    ctx.schedule_wait("on").await;
    ctx.continue_as_new("hush-second").await
}

struct Home {
    place: Place,
    outbox: Outbox,
    tokens: UnboundedReceiver<String>,
}

impl Home {
    fn new() -> Home {
        let (outbox, tokens) = unbounded_channel();
        let place = Place::new();
        place.expect_encoded();
        // Guests are there before the first runtime.
        drop(place.guest());
        Home { place, outbox, tokens }
    }

    fn url(&self) -> String {
        self.place.url()
    }

    fn codecs() -> Codecs {
        Masked::codecs(&["k1"])
    }

    async fn runtime(&self) -> Runtime {
        let runtime = Runtime::open(self.url()).options(relaxed()).codecs(Home::codecs());
        let runtime =
            runtime.register(rich).register(child).register(listener).register(counts).register(reports);
        runtime.register(approval).state(self.outbox.clone()).start().await.unwrap()
    }

    fn guest(&self) -> Client {
        Client::open_with_codecs(&self.url(), Home::codecs()).unwrap()
    }

    /// Asserts that the text of no payload is stored.
    #[track_caller]
    fn is_tight(&self) {
        let text = self.place.stored_text();
        if let Some(place) = text.find("hush-") {
            let around: String = text[place..].chars().take(300).collect();
            let before: String = text[..place].chars().rev().take(600).collect();
            let before: String = before.chars().rev().collect();
            panic!("in plain: {before}>>>{around}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_nothing_of_a_rich_run_stands_on_disk_in_plain() {
    let mut home = Home::new();
    let guest = home.guest();
    guest.start("rich", "a", "hush-input").await.unwrap();
    guest
        .start_with("rich", "later", "hush-input", StartOptions::default().delay(Duration::from_secs(3_600)))
        .await
        .unwrap();
    home.is_tight();
    let runtime = home.runtime().await;
    let client = runtime.client();
    let token = soon(home.tokens.recv()).await.unwrap();
    home.is_tight();
    for client in [&client, &guest] {
        let held = client.query("a", "held", "hush-question").await.unwrap();
        assert!(held.contains("hush-input"), "{held:?}");
        client.query("a", "refuses", "hush-refused question").await.unwrap_err();
        let added = client.update("a", "add", "hush-update").await.unwrap();
        assert!(added.starts_with("hush-answer"), "{added:?}");
        client.update("a", "add", "hush-broken").await.unwrap_err();
        client.update("a", "add", "hush-refused").await.unwrap_err();
        client.heartbeat_activity(&token, "hush-progress").await.unwrap();
        client.raise_event("a", "unread", "hush-unread").await.unwrap();
    }
    home.is_tight();
    client.pause("a", "in plain").await.unwrap();
    guest.complete_activity(&token, "hush-approved").await.unwrap();
    guest.raise_event("a", "on", "hush-on").await.unwrap();
    home.is_tight();
    client.resume("a", "in plain").await.unwrap();
    until(&client, "a", |status| status.execution == 2).await;
    soon(client.result("other")).await.unwrap();
    home.is_tight();
    runtime.shutdown().await.unwrap();
    guest.raise_event("a", "end", "hush-end").await.unwrap();
    home.is_tight();
    let runtime = home.runtime().await;
    let client = runtime.client();
    let output = soon(client.result("a")).await.unwrap();
    assert_eq!(output.to_text(), r#"hush-output ["hush-unread", "hush-unread"]"#);
    soon(async { guest.reset("a").to_turn(1).await }).await.unwrap();
    assert_eq!(soon(client.result("a")).await.unwrap(), output);
    home.is_tight();
    let histories = [client.history_of("a", 1).await.unwrap(), client.history_of("a", 3).await.unwrap()];
    assert!(histories.iter().all(|history| !format!("{history:?}").contains("@codec")));
    assert!(guest.verify(|_| ()).await.unwrap().damage.is_empty());
    runtime.shutdown().await.unwrap();
    home.is_tight();
}

/// The reason of a block names types and places, and quotes no payload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_what_cannot_be_read_is_not_quoted() {
    let home = Home::new();
    let runtime = home.runtime().await;
    let client = runtime.client();
    client.start(counts, "a", 7).await.unwrap();
    let refused = client.raise_event("a", "number", "hush-word").await.unwrap_err();
    assert!(!refused.to_string().contains("hush"), "{refused}");
    runtime.shutdown().await.unwrap();
    let guest = home.guest();
    guest.raise_event("a", "number", "hush-word").await.unwrap();
    guest.start("counts", "b", "hush-input").await.unwrap();
    let runtime = home.runtime().await;
    for id in ["a", "b"] {
        let status = until(&runtime.client(), id, |status| status.blocked.is_some()).await;
        let blocked = format!("{:?}", status.blocked);
        assert!(!blocked.contains("hush"), "{blocked}");
    }
    home.is_tight();
    runtime.shutdown().await.unwrap();
}

//! Fills a store with instances in all states.

use std::future::Future;
use std::time::Duration;

use perennial::{Client, OnExisting, Payload, Runtime, StartOptions};

use crate::Failure;
use crate::code::{Code, GO};
use crate::hostile;
use crate::stage::Stage;

/// How much of everything there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) children: u32,
    /// Events of the instance `long`; 0 leaves it out.
    pub(crate) events: u32,
    /// Rows of ended instances that are written directly; 0 for none.
    pub(crate) instances: u64,
}

/// How many levels are below the instance with the longest id: each adds five bytes, and 1,000 are the limit.
const DEPTH: u64 = 160;

fn json(text: &str) -> Payload {
    Payload::from_json(text).unwrap_or_else(|_| Payload::from(text))
}

/// Waits until something holds, looking after every change.
pub(crate) async fn until<F: Future<Output = Result<bool, Failure>>>(
    client: &Client,
    mut holds: impl FnMut() -> F,
) -> Result<(), Failure> {
    while !holds().await? {
        client.changed(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Waits until an instance has taken so many turns, in its last execution.
pub(crate) async fn until_turn(client: &Client, id: &str, turn: u64) -> Result<(), Failure> {
    until(client, || async {
        let execution = client.status(id).await?.execution;
        Ok(client.last_turn(id, execution).await? >= turn)
    })
    .await
}

/// Waits until an instance is blocked.
pub(crate) async fn until_blocked(client: &Client, id: &str) -> Result<(), Failure> {
    until(client, || async { Ok(client.status(id).await?.blocked.is_some()) }).await
}

/// Fills the store with everything, and leaves a runtime with the good build.
pub(crate) async fn fill(stage: &mut Stage, sizes: Sizes) -> Result<(), Failure> {
    stage.start_runtime(Code::First).await?;
    let client = stage.client()?;
    record_for_later(&client).await?;
    // Without a second build, nothing of the first one is blocked.
    if stage.is_durable() {
        stage.stop_runtime().await?;
        second_build(stage, sizes).await?;
    }
    let client = stage.client()?;
    panic(&client).await?;
    end(&client).await?;
    wait(&client).await?;
    poison(&client).await?;
    families(&client, sizes.children).await?;
    if sizes.events > 0 {
        client.start("long", "long", json(&(sizes.events / 2).to_string())).await?;
        until(&client, || async { Ok(client.status("long").await?.published.is_some()) }).await?;
    }
    Ok(())
}

/// Starts the build that disagrees with what was recorded.
async fn second_build(stage: &mut Stage, sizes: Sizes) -> Result<(), Failure> {
    if sizes.instances > 0 {
        crate::many::fill(stage.url(), sizes.instances)?;
    }
    stage.start_runtime(Code::Good).await?;
    diverge(&stage.client()?).await
}

/// Instances whose code is different or missing later.
async fn record_for_later(client: &Client) -> Result<(), Failure> {
    for number in 1..=3 {
        for (name, id) in [("invoice", format!("invoice-{number}")), ("retired", format!("retired-{number}"))]
        {
            client.start(name, &id, Payload::from("socks")).await?;
            until_turn(client, &id, if name == "invoice" { 2 } else { 1 }).await?;
        }
    }
    Ok(())
}

async fn diverge(client: &Client) -> Result<(), Failure> {
    for number in 1..=3 {
        for id in [format!("invoice-{number}"), format!("retired-{number}")] {
            client.raise_event(&id, GO, "now").await?;
            if id.starts_with("invoice") {
                until_blocked(client, &id).await?;
            }
        }
    }
    Ok(())
}

async fn panic(client: &Client) -> Result<(), Failure> {
    for number in 1..=3 {
        let id = format!("fragile-{number}");
        client.start("fragile", &id, json(&number.to_string())).await?;
        until_blocked(client, &id).await?;
    }
    Ok(())
}

/// Ended instances, one or more of each status.
async fn end(client: &Client) -> Result<(), Failure> {
    for number in 1..=5 {
        let id = format!("hello-{number}");
        let options = StartOptions::default().attribute("city", "Bergen").attribute("number", number);
        client.start_with("hello", &id, Payload::from("Ada"), options).await?;
        client.wait(&id).await?;
    }
    client.start("shipping", "shipping-failed", Payload::from("nothing")).await?;
    client.wait("shipping-failed").await?;
    client
        .start_with(
            "nap",
            "timed-out",
            Payload::null(),
            StartOptions::default().timeout(Duration::from_millis(30)),
        )
        .await?;
    client.wait("timed-out").await?;
    client.start("nap", "terminated", Payload::null()).await?;
    client.terminate("terminated", "started by mistake").await?;
    client.wait("terminated").await?;
    client.start("tidy", "cancelled", Payload::null()).await?;
    until_turn(client, "cancelled", 1).await?;
    client.cancel("cancelled", "not needed any more").await?;
    client.raise_event("cancelled", "cleaned", "yes").await?;
    client.wait("cancelled").await?;
    // One id, two instances.
    for round in ["first", "second"] {
        let options = StartOptions::default().on_existing(OnExisting::ReplaceEnded);
        client.start_with("hello", "twice", Payload::from(round), options).await?;
        client.wait("twice").await?;
    }
    let large = format!("\"{}\"", "perennial ".repeat((4 << 20) / 10 - 1));
    client.start("echo", "large", json(&large)).await?;
    let structured: Vec<String> = (0..9_000)
        .map(|row| {
            format!("{{\"row\":{row},\"name\":\"row {row}\",\"tags\":[\"a\",\"b\"],\"price\":{row}.50}}")
        })
        .collect();
    client.start("echo", "structured", json(&format!("[{}]", structured.join(",")))).await?;
    let numbers = r#"{"big": 9007199254740993, "small": 1.10, "exponent": 1e400, "nested": "{\"json\": [1, 2]}",
        "lines": "a\nb\nc", "__proto__": {"polluted": true}}"#;
    client.start("echo", "numbers", json(numbers)).await?;
    for id in ["large", "structured", "numbers"] {
        client.wait(id).await?;
    }
    Ok(())
}

/// Running instances, one for each thing to wait for.
async fn wait(client: &Client) -> Result<(), Failure> {
    for (name, id, input) in [
        ("order", "order-7", "\"socks\""),
        ("approval", "approval-1", "\"lunch\""),
        ("approval", "approval-2", "\"yacht\""),
        ("nap", "nap-forever", "null"),
        ("nap", "nap-hour", "3600000"),
        ("nightly", "nightly-1", "\"prices.csv\""),
        ("hangs", "hangs-1", "null"),
        ("scan", "scan-1", "\"page 1\""),
        ("pager", "pager-1", "\"wake up\""),
        ("rounds", "rounds-1", "4"),
        ("branches", "branches-1", "null"),
        ("cart", "cart-1", "null"),
        ("tidy", "cancelling", "null"),
        ("nap", "paused", "null"),
    ] {
        client.start(name, id, json(input)).await?;
        until_turn(client, id, 1).await?;
    }
    for number in 1..=3 {
        let id = format!("payment-{number}");
        client.start("payment", &id, json(&(number * 100).to_string())).await?;
    }
    client
        .start_with(
            "hello",
            "tomorrow",
            Payload::from("Grace"),
            StartOptions::default().delay(Duration::from_secs(86_400)),
        )
        .await?;
    client.raise_event("approval-2", "unexpected", "nobody reads this").await?;
    client.update("cart-1", perennial::Update::<String, usize>::named("add"), "tea".to_owned()).await?;
    client.cancel("cancelling", "the customer left").grace(Duration::from_secs(86_400)).await?;
    until_turn(client, "cancelling", 2).await?;
    client.pause("paused", "looked at by hand").await?;
    until(client, || async {
        let published = client.status("order-7").await?.published;
        Ok(published.is_some_and(|published| published.to_text() == "on its way"))
    })
    .await?;
    for number in 1..=3 {
        let id = format!("payment-{number}");
        until(client, || async { Ok(client.tasks(&id).await?.iter().any(|task| task.attempt >= 3)) }).await?;
    }
    Ok(())
}

async fn poison(client: &Client) -> Result<(), Failure> {
    for id in hostile::ids() {
        let options = StartOptions::default().attribute("<b>attribute</b>", hostile::TEXTS);
        let input = Payload::encode(hostile::TEXTS)?;
        client.start_with(hostile::NAMES[0], &id, input, options).await?;
        until_turn(client, &id, 2).await?;
    }
    client.terminate(hostile::NAMES[4], hostile::TEXTS[0]).await?;
    client.wait(hostile::NAMES[4]).await?;
    client.start("deep", &hostile::longest_id(), json(&DEPTH.to_string())).await?;
    let descendants = perennial::Filter::new().id_prefix(hostile::longest_id());
    until(client, || async { Ok(client.count(descendants.clone()).await?.rows > DEPTH) }).await?;
    Ok(())
}

async fn families(client: &Client, children: u32) -> Result<(), Failure> {
    client.start("level", "family", json("3")).await?;
    until(client, || async { Ok(tree_size(&client.tree("family").await?) >= 15) }).await?;
    client.start("fan", "fan", json(&children.to_string())).await?;
    // Those that neither wait nor fail have ended.
    until_turn(client, "fan", 1).await?;
    let ended = u64::from((0..children).filter(|child| child % 10 == 3 || child % 7 != 5).count() as u32);
    until(client, || async {
        let key = client.status("fan").await?.key;
        let ended_children = perennial::Filter::new()
            .parent(key)
            .statuses([perennial::Status::Completed, perennial::Status::Failed]);
        let count = client.count(ended_children).await?;
        Ok(count.more || count.rows >= ended)
    })
    .await
}

fn tree_size(tree: &perennial::client::Tree) -> usize {
    1 + tree.children.iter().map(tree_size).sum::<usize>()
}

/// Starts instances of one orchestration, ids numbered from 1.
pub(crate) async fn start_many(
    runtime: &Runtime,
    name: &str,
    prefix: &str,
    input: &Payload,
    count: u64,
) -> Result<(), Failure> {
    let client = runtime.client();
    let mut left = 1..=count;
    loop {
        let batch: Vec<u64> = left.by_ref().take(200).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let starts = batch.into_iter().map(|number| {
            let (client, id) = (client.clone(), format!("{prefix}{number}"));
            async move { client.start(name, &id, input.clone()).await.map(drop) }
        });
        futures_util::future::try_join_all(starts).await?;
    }
}

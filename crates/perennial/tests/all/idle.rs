//! The work of an idle node (G10), and what it keeps in memory (G11).

use std::sync::Arc;
use std::time::Duration;

use perennial::{OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions};
use perennial_core::store::MemoryStore;

use crate::support::hands::Hands;
use crate::support::tapped::Tapped;
use crate::support::{soon, until, until_blocked};

type Outcome = Result<Payload, Payload>;

/// Keeps its input, and returns it after an event.
async fn keeper(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.schedule_wait("go").await;
    Ok(input)
}

/// Sleeps for a month.
async fn sleeper(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_timer(Duration::from_secs(30 * 86_400)).await;
    Ok(Payload::null())
}

struct Bench {
    hands: Arc<Hands>,
    store: Arc<Tapped>,
}

impl Bench {
    fn new() -> Bench {
        let hands = Hands::new();
        let clock = Arc::clone(&hands);
        let store = Tapped::new(Arc::new(MemoryStore::new(move || clock.store_ms())));
        Bench { hands, store }
    }

    /// So many seconds pass, and the node does what it does at its leisure.
    fn pass_by(&self, seconds: usize) {
        let (renewals, reads) = (self.store.count("renew_session"), self.store.count("read_due"));
        // Shorter than a lease, or the node would have to ask each time what it still owns.
        for step in 1..=seconds / 5 {
            self.hands.pass(Duration::from_secs(5));
            self.store.wait_for("renew_session", renewals + step);
            self.store.wait_for("read_due", reads + step / 6);
        }
    }

    fn builder(&self, options: RuntimeOptions) -> RuntimeBuilder {
        Runtime::open("memory:")
            .options(options)
            .store(Arc::clone(&self.store) as _)
            .clock(Arc::clone(&self.hands) as _)
            .orchestration("keeper", "1.0.0", keeper)
            .orchestration("sleeper", "1.0.0", sleeper)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g10_an_idle_node_asks_its_store_for_little_and_at_a_known_rate() {
    let bench = Bench::new();
    let runtime = bench.builder(RuntimeOptions::default()).start().await.unwrap();
    let client = runtime.client();
    client.start("sleeper", "s", Payload::null()).await.unwrap();
    client.start("keeper", "k", Payload::null()).await.unwrap();
    bench.store.wait_for("read_due", 1);
    bench.store.forget_calls();

    bench.pass_by(3_600);
    // In an hour: leases of 10 s are renewed at a third, the directory is read with them, and what is paused once per lease;
    // the store is polled every 15 s, and a minute ahead is read every half.
    let most = [
        ("renew_session", 1_081),
        ("directory", 1_081),
        ("read_setting", 361),
        ("read_inbox", 250),
        ("read_requests", 250),
        ("read_due", 130),
        ("sweep", 121),
    ];
    for (call, most) in most {
        let count = bench.store.count(call);
        assert!(count > 0 && count <= most, "{call}: {count}, at most {most}");
    }
    let calls = bench.store.calls();
    let others = calls.iter().filter(|call| !most.iter().any(|(known, _)| known == *call));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&&str>::new());
    assert_eq!(runtime.counters().evictions, 2, "what was idle for 5 minutes was put away");
}

/// Waits for one event, then panics.
async fn clumsy(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_wait("go").await;
    panic!("over its own feet")
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_histories_in_memory_stay_within_their_bytes_and_grow_back_when_wanted() {
    let bench = Bench::new();
    let mut options = RuntimeOptions::default();
    options.shard.max_resident_bytes = 10_000;
    let runtime = bench.builder(options).start().await.unwrap();
    let client = runtime.client();
    let ids = perennial_testkit::ManualNode::ids_of_one_shard(4);
    for (number, id) in ids.iter().enumerate() {
        bench.hands.pass(Duration::from_millis(1));
        client.start("keeper", id, format!("{number}{}", "x".repeat(6_000))).await.unwrap();
    }
    assert_eq!(runtime.counters().evictions, 3, "one of six thousand bytes fits");
    for (number, id) in ids.iter().enumerate() {
        client.raise_event(id, "go", Payload::null()).await.unwrap();
        let kept: String = soon(client.result(id)).await.unwrap().decode().unwrap();
        assert!(kept.starts_with(&number.to_string()));
    }
    assert_eq!(runtime.counters().hydrations, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_an_idle_blocked_instance_takes_no_memory_and_is_tried_again_in_time() {
    let bench = Bench::new();
    let mut options = RuntimeOptions::default();
    (options.shard.idle, options.shard.retry_first) = (Duration::from_secs(60), Duration::from_secs(3_600));
    options.shard.retry_max = Duration::from_millis(3_600_000);
    let runtime = bench.builder(options).orchestration("clumsy", "1.0.0", clumsy).start().await.unwrap();
    let client = runtime.client();
    client.start("clumsy", "c", Payload::null()).await.unwrap();
    client.raise_event("c", "go", Payload::null()).await.unwrap();
    until_blocked(&client, "c", "PER-0201").await;
    bench.store.forget_calls();
    bench.pass_by(2 * 60);
    // It is looked up in the store again, so it was forgotten.
    client.raise_event("c", "more", Payload::null()).await.unwrap();
    assert_eq!(bench.store.count("find"), 1);
    let blocked = client.status("c").await.unwrap().blocked.unwrap();
    assert_eq!(blocked.attempts, 1, "what comes for it is kept without trying it");
    bench.pass_by(59 * 60);
    let is_tried = |status: &perennial::InstanceView| {
        status.blocked.as_ref().is_some_and(|blocked| blocked.attempts == 2)
    };
    until(&client, "c", is_tried).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h40_instances_that_one_line_of_code_blocks_have_the_same_cause() {
    let bench = Bench::new();
    let options = RuntimeOptions::default();
    let runtime = bench.builder(options).orchestration("clumsy", "1.0.0", clumsy).start().await.unwrap();
    let client = runtime.client();
    let mut causes = Vec::new();
    for id in ["a", "b"] {
        client.start("clumsy", id, Payload::null()).await.unwrap();
        client.raise_event(id, "go", Payload::null()).await.unwrap();
        until_blocked(&client, id, "PER-0201").await;
        causes.push(client.status(id).await.unwrap().blocked.unwrap().cause);
    }
    assert!(causes[0].starts_with("panic at ") && causes[0].contains("idle.rs:"), "{causes:?}");
    assert_eq!(causes[0], causes[1]);
}

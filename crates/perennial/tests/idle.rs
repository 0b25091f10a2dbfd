//! What a node does when there is nothing to do (G10).

mod support;

use std::sync::Arc;
use std::time::Duration;

use perennial::store::MemoryStore;
use perennial::{OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions};

use support::hands::Hands;
use support::tapped::Tapped;

type Outcome = Result<Payload, Payload>;

/// Keeps what it was started with, and gives it back when told to go.
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
async fn g10_an_idle_node_asks_its_store_for_renewals_and_for_what_will_be_due_and_for_nothing_else() {
    let bench = Bench::new();
    let runtime = bench.builder(RuntimeOptions::default()).start().await.unwrap();
    let client = runtime.client();
    client.start("sleeper", "s", Payload::null()).await.unwrap();
    client.start("keeper", "k", Payload::null()).await.unwrap();
    bench.store.wait_for("read_due", 1);
    bench.store.forget_calls();

    // An hour, in steps of 10 s.
    for step in 1..=360 {
        bench.hands.pass(Duration::from_secs(10));
        bench.store.wait_for("renew_session", step);
        bench.store.wait_for("read_due", step / 3);
    }
    let calls = bench.store.calls();
    let others = calls.iter().filter(|call| !["renew_session", "read_due"].contains(call));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&&str>::new());
    let counts = (bench.store.count("renew_session"), bench.store.count("read_due"));
    assert_eq!(
        counts,
        (360, 120),
        "a lease of 30 s is renewed at a third, a minute ahead is read every half"
    );
    assert_eq!(runtime.counters().evictions, 2, "what was idle for 5 minutes was put away");
}

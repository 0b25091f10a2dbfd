//! Processes are killed from outside, too: whoever was taking a turn then is not blamed for it (G29).
//!
//! A runtime that is dropped leaves the store as a killed process does.

mod support;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use perennial::{Client, OrchestrationContext, Payload, Runtime, RuntimeBuilder};

use support::{Place, relaxed, soon, until};

/// Holds turns up, on request.
#[derive(Clone, Default)]
struct Barrier(Arc<(Mutex<(bool, usize)>, Condvar)>);

impl Barrier {
    fn set(&self, is_shut: bool) {
        self.0.0.lock().unwrap().0 = is_shut;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.1 += 1;
        drop(self.0.1.wait_while(state, |(is_shut, _)| *is_shut).unwrap());
    }

    fn arrivals(&self) -> usize {
        self.0.0.lock().unwrap().1
    }
}

/// Counts events until one is empty.
fn counter(place: &Place, barrier: &Barrier) -> RuntimeBuilder {
    let barrier = barrier.clone();
    Runtime::open(place.url()).options(relaxed()).orchestration(
        "counter",
        "1.0.0",
        move |ctx: OrchestrationContext, _: Payload| {
            let barrier = barrier.clone();
            async move {
                let mut count = 0;
                while !ctx.schedule_wait("n").typed::<String>().await.is_empty() {
                    barrier.pass();
                    count += 1;
                }
                Ok::<_, Payload>(Payload::encode(&count).unwrap())
            }
        },
    )
}

async fn turns(client: &Client, count: usize) {
    soon(async {
        while client.history("a").await.unwrap().turns.len() < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_a_lone_instance_whose_processes_are_killed_from_outside_is_never_blamed() {
    let (place, barrier) = (Place::new(), Barrier::default());
    for round in 0..6 {
        let runtime = counter(&place, &barrier).start().await.unwrap();
        let client = runtime.client();
        if round == 0 {
            client.start("counter", "a", Payload::null()).await.unwrap();
        }
        assert_eq!(client.status("a").await.unwrap().blocked, None, "after {round} kills");
        // Each process takes a turn of it alone, and is killed when it has nothing to do.
        client.raise_event("a", "n", "more").await.unwrap();
        turns(&client, 2 + round).await;
        drop(runtime);
        // And some are killed before they do anything.
        for _ in 0..3 {
            drop(counter(&place, &barrier).start().await.unwrap());
        }
    }
    let runtime = counter(&place, &barrier).start().await.unwrap();
    runtime.client().raise_event("a", "n", "").await.unwrap();
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "6");
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_only_deaths_during_its_own_turn_count_and_survival_wipes_them_out() {
    let (place, barrier) = (Place::new(), Barrier::default());
    let open = || counter(&place, &barrier).start();
    let guest = place.guest();
    let first = open().await.unwrap();
    first.client().start("counter", "a", Payload::null()).await.unwrap();
    drop(first);
    for _ in 0..3 {
        drop(open().await.unwrap());
    }
    // Three times in a row a process is killed just when a turn of this instance, alone, is under way.
    for survived in 0..2 {
        barrier.set(true);
        for death in 0..3 {
            let arrivals = barrier.arrivals();
            let runtime = open().await.unwrap();
            if death == 0 {
                guest.raise_event("a", "n", "more").await.unwrap();
            }
            let arrived = async {
                while barrier.arrivals() == arrivals {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            soon(arrived).await;
            drop(runtime);
        }
        barrier.set(false);
        let runtime = open().await.unwrap();
        until(&runtime.client(), "a", |status| status.blocked.is_none()).await;
        turns(&runtime.client(), 2 + survived).await;
        drop(runtime);
    }
    let runtime = open().await.unwrap();
    assert_eq!(runtime.client().status("a").await.unwrap().blocked, None);
    runtime.client().raise_event("a", "n", "").await.unwrap();
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "2");
    runtime.shutdown().await.unwrap();
}

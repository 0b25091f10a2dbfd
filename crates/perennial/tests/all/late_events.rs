//! Events that come as their instance ends (G17).

use std::sync::{Arc, Condvar, Mutex};

use futures::poll;
use perennial::{ClientError, OrchestrationContext, Payload, Runtime};

use crate::support::{event, soon};

/// Keeps a turn from ending, so that what comes meanwhile is for the next.
#[derive(Default)]
struct Gate {
    /// Whether a turn has come to it, and whether it may pass.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, is_open)| !*is_open).unwrap());
    }

    fn wait_for_turn(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |(has_come, _)| !*has_come).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]

async fn g17_an_event_with_a_key_that_comes_as_the_instance_ends_is_told_so() {
    let gate: Arc<Gate> = Arc::default();
    let passed = Arc::clone(&gate);
    let code = move |ctx: OrchestrationContext, _: Payload| {
        let gate = Arc::clone(&passed);
        async move {
            let _: Payload = ctx.schedule_wait(event("begin")).await;
            gate.pass();
            Ok::<Payload, Payload>(ctx.schedule_wait(event("n")).await)
        }
    };
    let runtime = Runtime::open("memory:").orchestration("one", "1.0.0", code).start().await.unwrap();
    let client = runtime.client();
    client.start("one", "a", Payload::null()).await.unwrap();
    let beginner = client.clone();
    let begun = tokio::spawn(async move { beginner.raise_event("a", "begin", Payload::null()).await });
    tokio::task::block_in_place(|| gate.wait_for_turn());
    let mut first = client.raise_event("a", "n", "read").once("k1").into_future();
    let mut second = client.raise_event("a", "n", "never read").once("k2").into_future();
    assert!(poll!(first.as_mut()).is_pending() && poll!(second.as_mut()).is_pending());
    gate.open();
    begun.await.unwrap().unwrap();
    soon(first).await.unwrap();
    let late = soon(second).await;
    assert!(matches!(late, Err(ClientError::Ended { .. })), "{late:?}");
    runtime.shutdown().await.unwrap();
}

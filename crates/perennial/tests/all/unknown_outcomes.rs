//! Commits whose outcome is not known: whatever the store says when they are sent again, they count once (G7).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use perennial::history::Job;
use perennial::{Client, OrchestrationContext, Payload, Runtime, RuntimeOptions, Status};
use perennial_core::store::{CommitOutcome, MemoryStore, StoreError};

use crate::support::hands::Hands;
use crate::support::tapped::{Fate, Tapped};
use crate::support::{soon, until};

type Outcome = Result<Payload, Payload>;
type CommitFate = Fate<Vec<CommitOutcome>>;

/// Collects three events.
async fn collect(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(ctx.schedule_wait("n").await);
    }
    Payload::encode(&seen).map_err(crate::support::failed)
}

struct Bench {
    hands: Arc<Hands>,
    store: Arc<Tapped>,
    runtime: Runtime,
    client: Client,
}

async fn bench() -> Bench {
    let hands = Hands::new();
    let clock = Arc::clone(&hands);
    let store = Tapped::new(Arc::new(MemoryStore::new(move || clock.store_ms())));
    let runtime = Runtime::open("memory:")
        .options(RuntimeOptions::default())
        .store(Arc::clone(&store) as _)
        .clock(Arc::clone(&hands) as _)
        .orchestration("collect", "1.0.0", collect)
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    Bench { hands, store, runtime, client }
}

impl Bench {
    /// The next commits fare like this, those behind them well.
    fn commits_fare(&self, fates: impl IntoIterator<Item = CommitFate>) {
        let mut fates: VecDeque<CommitFate> = fates.into_iter().collect();
        self.store.on_commit(move || fates.pop_front().unwrap_or(Fate::Pass));
    }

    /// Raises an event that the instance takes in its next turn.
    async fn raise(&self, payload: &str) {
        soon(self.client.raise_event("c", "n", payload)).await.unwrap();
    }

    async fn events(&self) -> Vec<String> {
        let history = self.client.history("c").await.unwrap();
        let event = |job: &Job| match job {
            Job::ExternalEvent { payload, .. } => payload.decode().ok(),
            _ => None,
        };
        history.turns.iter().flat_map(|turn| turn.jobs()).filter_map(|(_, job)| event(job)).collect()
    }

    /// Two more events end the instance with all three, whatever happened to the first.
    async fn ends_with_all(&self) {
        self.raise("2").await;
        self.raise("3").await;
        let result = soon(self.client.result("c")).await.unwrap();
        assert_eq!(result.as_json(), r#"["1","2","3"]"#);
        assert_eq!(self.events().await, ["1", "2", "3"], "each once");
    }
}

/// The connection is lost, after the batch was written or before.
fn unknown(is_written: bool) -> CommitFate {
    let unknown = Err(StoreError::Unknown("connection lost".to_owned()));
    if is_written { Fate::PassThen(unknown) } else { Fate::Response(unknown) }
}

/// The two ways in which a store refuses a batch of one for good.
fn refusals() -> [fn() -> CommitFate; 2] {
    [
        || Fate::Response(Err(StoreError::BatchRefused("too odd".to_owned()))),
        || Fate::Response(Ok(vec![CommitOutcome::Rejected("too odd".to_owned())])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_commit_whose_outcome_was_unknown_counts_once_under_the_next_session() {
    for is_written in [true, false] {
        let bench = bench().await;
        bench.client.start("collect", "c", Payload::null()).await.unwrap();
        bench.commits_fare([unknown(is_written)]);
        bench.raise("1").await;
        bench.ends_with_all().await;
        assert_eq!(bench.store.count("replace_session"), 1);
        assert_eq!(bench.runtime.failure(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_the_session_that_settled_a_commit_is_the_one_that_is_renewed() {
    let bench = bench().await;
    bench.commits_fare([unknown(true)]);
    soon(bench.client.start("collect", "c", Payload::null())).await.unwrap();
    for renewals in 1..=6 {
        bench.hands.pass(Duration::from_secs(10));
        bench.store.wait_for("renew_session", renewals);
    }
    assert_eq!(bench.runtime.failure(), None, "the session before it is gone, which is no news");
    bench.raise("1").await;
    bench.ends_with_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_commit_that_is_refused_when_sent_again_counts_if_it_was_written_the_first_time() {
    for refused in refusals() {
        let bench = bench().await;
        bench.client.start("collect", "c", Payload::null()).await.unwrap();
        bench.commits_fare([unknown(true), refused()]);
        bench.raise("1").await;
        assert_eq!(bench.client.status("c").await.unwrap().blocked, None);
        bench.ends_with_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_commit_that_is_refused_when_sent_again_blocks_if_it_was_never_written() {
    for refused in refusals() {
        let bench = bench().await;
        bench.client.start("collect", "c", Payload::null()).await.unwrap();
        bench.commits_fare([unknown(false), refused()]);
        bench.raise("1").await;
        until(&bench.client, "c", |status| status.blocked.is_some()).await;
        let blocked = bench.client.status("c").await.unwrap().blocked.unwrap();
        assert_eq!(blocked.code, "PER-0303", "the store refused the turn");
        bench.client.retry("c").await.unwrap();
        bench.ends_with_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_start_that_is_refused_when_sent_again_counts_if_it_was_written_the_first_time() {
    for refused in refusals() {
        let bench = bench().await;
        bench.commits_fare([unknown(true), refused()]);
        soon(bench.client.start("collect", "c", Payload::null())).await.unwrap();
        let status = bench.client.status("c").await.unwrap();
        assert_eq!((status.status, status.blocked), (Status::Running, None));
        bench.raise("1").await;
        bench.ends_with_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g7_a_start_that_is_refused_when_sent_again_is_pending_if_it_was_never_written() {
    for refused in refusals() {
        let bench = bench().await;
        bench.commits_fare([unknown(false), refused()]);
        soon(bench.client.start("collect", "c", Payload::null())).await.unwrap();
        let status = bench.client.status("c").await.unwrap();
        assert_eq!(
            (status.status, status.blocked.map(|blocked| blocked.code)),
            (Status::Pending, Some("PER-0303".to_owned()))
        );
        bench.client.retry("c").await.unwrap();
        bench.raise("1").await;
        bench.ends_with_all().await;
    }
}

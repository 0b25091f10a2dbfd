//! Activities that are completed from outside, end to end: over restarts, from guests (G42–G45).

use std::time::Duration;

use perennial::RuntimeBuilder;
use perennial::prelude::*;
use perennial_core::shard::CompletionToken;
use perennial_testkit::invariants::ClientLog;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::support::{Place, relaxed, soon, until};

type Outbox = UnboundedSender<String>;

/// Sends out its token, and leaves the result to its holder.
#[activity(state(Outbox))]
async fn approval(ctx: ActivityContext) -> Result<Later<u32>, String> {
    ctx.state::<Outbox>().send(ctx.completion_token()).map_err(|error| error.to_string())?;
    Ok(Later::Pending)
}

#[activity]
async fn knows_at_once(ctx: ActivityContext) -> Result<Later<u32>, String> {
    assert!(!ctx.completion_token().is_empty());
    Ok(Later::Now(7))
}

#[activity]
async fn quick(_: ActivityContext) -> Result<u32, String> {
    Ok(1)
}

#[orchestration]
async fn approved(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(ctx.schedule_activity(approval, ()).await?)
}

#[orchestration]
async fn hurried(ctx: OrchestrationContext) -> Result<u32, String> {
    let approval =
        ctx.schedule_activity(approval, ()).retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2));
    Ok(approval.timeout(Duration::from_millis(30)).await?)
}

#[orchestration]
async fn tried_twice(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(ctx
        .schedule_activity(approval, ())
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2))
        .await?)
}

#[orchestration]
async fn impatient(ctx: OrchestrationContext) -> Result<String, String> {
    let approval = ctx.schedule_activity(approval, ());
    ctx.select2(approval, ctx.schedule_wait("enough")).await;
    Ok(ctx.schedule_wait("end").await)
}

#[orchestration]
async fn many(ctx: OrchestrationContext) -> Result<u32, String> {
    let approval = ctx.schedule_activity(approval, ());
    let mut sum = ctx.schedule_activity(knows_at_once, ()).await?;
    for _ in 0..5 {
        sum += ctx.schedule_activity(quick, ()).await?;
    }
    ctx.set_status("waits for its approval");
    Ok(sum + approval.await?)
}

#[orchestration]
async fn by_name(ctx: OrchestrationContext) -> Result<u32, String> {
    const APPROVAL: Activity<(), Later<u32>, String> = Activity::named("approval");
    let described = ctx.schedule_activity(APPROVAL, ()).await?;
    let named = ctx.schedule_activity("approval", Payload::null()).completes_later().await;
    Ok(described
        + named.map_err(|error| error.to_string())?.decode::<u32>().map_err(|error| error.to_string())?)
}

#[orchestration]
async fn unprepared(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.schedule_activity("approval", Payload::null()).await.unwrap_err().to_string())
}

/// A store on a file, and the mailbox that tokens are sent to.
struct Office {
    place: Place,
    outbox: Outbox,
    inbox: UnboundedReceiver<String>,
}

impl Office {
    fn new() -> Office {
        let (outbox, inbox) = unbounded_channel();
        Office { place: Place::new(), outbox, inbox }
    }

    fn builder(&self) -> RuntimeBuilder {
        Runtime::open(self.place.url())
            .options(relaxed())
            .register(approved)
            .register(hurried)
            .register(tried_twice)
            .register(impatient)
            .register(many)
            .register(by_name)
            .register(unprepared)
            .register(quick)
            .register(knows_at_once)
            .register(approval)
            .state(self.outbox.clone())
    }

    async fn open(&self) -> Runtime {
        self.builder().start().await.unwrap()
    }

    async fn token(&mut self) -> String {
        soon(self.inbox.recv()).await.expect("the mailbox is open")
    }

    /// Shuts a runtime down, and checks the rest.
    async fn close(&self, runtime: Runtime, ids: &[&str]) {
        runtime.shutdown().await.unwrap();
        let mut log = ClientLog::default();
        ids.iter().for_each(|id| log.started(*id));
        self.place.check(&log, &self.builder().handlers());
    }
}

/// The same token with another secret.
fn forged(token: &str) -> String {
    let mut token: CompletionToken = token.parse().unwrap();
    token.secret.0 ^= 1;
    token.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g44_an_approval_waits_through_restarts_and_runs_once() {
    let mut office = Office::new();
    let runtime = office.open().await;
    runtime.client().start(approved, "a", ()).await.unwrap();
    let token = office.token().await;
    runtime.shutdown().await.unwrap();
    // One end in good order, and two without.
    for _ in 0..2 {
        drop(office.open().await);
    }
    let runtime = office.open().await;
    let guest = office.place.guest();
    guest.heartbeat_activity(&token, "seen").await.unwrap();
    guest.complete_activity(&token, 42).await.unwrap();
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "42");
    assert!(office.inbox.try_recv().is_err(), "no other token was handed out");
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g43_what_is_said_while_no_runtime_is_there_is_kept() {
    let mut office = Office::new();
    let runtime = office.open().await;
    runtime.client().start(approved, "a", ()).await.unwrap();
    let token = office.token().await;
    office.close(runtime, &["a"]).await;
    let guest = office.place.guest();
    let forged = forged(&token);
    let refused = guest.complete_activity(&forged, 4).await.unwrap_err();
    assert!(matches!(refused, ClientError::BadToken { .. }), "{refused}");
    guest.complete_activity(&token, 3).await.unwrap();
    let runtime = office.open().await;
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "3");
    office.close(runtime, &["a"]).await;
    let guest = office.place.guest();
    assert_eq!(guest.complete_activity(&token, 3).await, Ok(()), "the same again");
    let other = guest.complete_activity(&token, 4).await.unwrap_err();
    assert!(other.to_string().starts_with("PER-0637 activity over"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g44_an_attempt_that_is_not_completed_in_time_is_replaced_and_its_token_says_so() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    let run = client.start(hurried, "a", ()).await.unwrap();
    let (first, second) = (office.token().await, office.token().await);
    let late = client.complete_activity(&first, 1).await.unwrap_err();
    assert!(matches!(&late, ClientError::AttemptOver { attempt: 1, current: 2, .. }), "{late}");
    assert!(late.to_string().starts_with("PER-0636 attempt over"), "{late}");
    // The second one is over when its time is up, or has its result.
    match client.complete_activity(&second, 2).await {
        Ok(()) => assert_eq!(soon(run.result()).await.unwrap(), 2),
        Err(error) => assert!(matches!(error, ClientError::ActivityOver { .. }), "{error}"),
    }
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g44_who_fails_an_attempt_gets_another_one_with_another_token() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let run = runtime.client().start(tried_twice, "a", ()).await.unwrap();
    let guest = office.place.guest();
    let first = office.token().await;
    guest.fail_activity(&first, "not now").await.unwrap();
    let second = office.token().await;
    assert_ne!(first, second);
    guest.fail_activity(&second, "never").await.unwrap();
    assert!(matches!(soon(run.result()).await, Err(RunError::Failed { error, .. }) if error == "never"));
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g45_who_holds_a_token_hears_that_nobody_waits_any_more() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    client.start(impatient, "a", ()).await.unwrap();
    let token = office.token().await;
    client.raise_event("a", "enough", "").await.unwrap();
    let guest = office.place.guest();
    for client in [&client, &guest] {
        let error = client.heartbeat_activity(&token, ()).await.unwrap_err();
        assert!(matches!(error, ClientError::ActivityCancelled { .. }), "{error}");
    }
    client.raise_event("a", "end", "").await.unwrap();
    client.wait("a").await.unwrap();
    let error = guest.complete_activity(&token, 1).await.unwrap_err();
    assert!(error.to_string().starts_with("PER-0638 activity cancelled"), "{error}");
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g42_what_is_no_token_and_what_cannot_be_read_is_refused() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    let run = client.start(approved, "a", ()).await.unwrap();
    let token = office.token().await;
    for bad in ["", "no token", "bm8tdG9rZW4", &token[1..], &format!("{token}A")] {
        let error = client.complete_activity(bad, 1).await.unwrap_err();
        assert!(error.to_string().starts_with("PER-0635 bad token"), "{error}");
    }
    let error = client.complete_activity(&forged(&token), 1).await.unwrap_err();
    assert!(matches!(error, ClientError::BadToken { .. }), "{error}");
    let unreadable = client.complete_activity(&token, "forty-two").await.unwrap_err();
    assert!(matches!(&unreadable, ClientError::Refused { reason, .. } if reason.starts_with("PER-0103")));
    client.complete_activity(&token, 42).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), 42);
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g44_an_attempt_that_waits_takes_no_slot() {
    let mut office = Office::new();
    let options = RuntimeOptions { activity_slots: 1, ..relaxed() };
    let runtime = office.builder().options(options).start().await.unwrap();
    let client = runtime.client();
    let run = client.start(many, "a", ()).await.unwrap();
    let token = office.token().await;
    until(&client, "a", |status| status.published.is_some()).await;
    client.complete_activity(&token, 100).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), 112);
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g43_a_described_and_a_named_activity_complete_later_too() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    let run = client.start(by_name, "a", ()).await.unwrap();
    for part in [1, 2] {
        let token = office.token().await;
        client.complete_activity(&token, part).await.unwrap();
    }
    assert_eq!(soon(run.result()).await.unwrap(), 3);
    let told = client.start(unprepared, "b", ()).await.unwrap();
    let words = soon(told.result()).await.unwrap();
    assert!(words.contains("PER-0410 no token"), "{words}");
    office.close(runtime, &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g43_of_two_who_complete_an_attempt_at_once_each_hears_what_counts() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    let guests = [office.place.guest(), office.place.guest()];
    for round in 0..5 {
        let id = format!("a{round}");
        client.start(approved, &id, ()).await.unwrap();
        let token = office.token().await;
        let said = futures::join!(
            guests[0].complete_activity(&token, 1),
            guests[1].complete_activity(&token, 2),
            client.complete_activity(&token, 3)
        );
        let said = [said.0, said.1, said.2];
        let result: u32 = soon(client.result(&id)).await.unwrap().decode().unwrap();
        for (value, said) in (1..).zip(said) {
            match said {
                Ok(()) => assert_eq!(value, result),
                Err(error) => {
                    assert!(value != result && matches!(error, ClientError::ActivityOver { .. }), "{error}");
                }
            }
        }
        // Reporting the result that counted is not an error, however late.
        assert_eq!(guests[1].complete_activity(&token, result).await, Ok(()));
    }
    office.close(runtime, &["a0", "a1", "a2", "a3", "a4"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g43_what_is_said_to_a_paused_instance_waits_for_it() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    for (id, by_guest) in [("a", false), ("b", true)] {
        client.start(approved, id, ()).await.unwrap();
        let token = office.token().await;
        client.pause(id, "a look").await.unwrap();
        let guest = office.place.guest();
        let speaker = if by_guest { &guest } else { &client };
        speaker.heartbeat_activity(&token, "half").await.unwrap();
        speaker.complete_activity(&token, 5).await.unwrap();
        client.resume(id, "seen").await.unwrap();
        assert_eq!(soon(client.result(id)).await.unwrap().as_json(), "5");
    }
    office.close(runtime, &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g48_a_reset_hands_out_another_token_and_the_old_one_says_so() {
    let mut office = Office::new();
    let runtime = office.open().await;
    let client = runtime.client();
    client.start(approved, "a", ()).await.unwrap();
    let first = office.token().await;
    soon(async { client.reset("a").to_turn(1).await }).await.unwrap();
    let second = office.token().await;
    for speaker in [&client, &office.place.guest()] {
        let late = speaker.complete_activity(&first, 1).await.unwrap_err();
        assert!(matches!(late, ClientError::ActivityCancelled { .. }), "{late}");
    }
    client.complete_activity(&second, 2).await.unwrap();
    assert_eq!(soon(client.result("a")).await.unwrap().as_json(), "2");
    let late = client.complete_activity(&first, 2).await.unwrap_err();
    assert!(matches!(late, ClientError::ActivityCancelled { .. }), "{late}");
    office.close(runtime, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_a_result_that_is_too_large_is_refused_and_the_attempt_goes_on_waiting() {
    let mut office = Office::new();
    let runtime = office.open().await;
    runtime.client().start(approved, "a", ()).await.unwrap();
    let token = office.token().await;
    let large = "x".repeat(4 << 20);
    for client in [&runtime.client(), &office.place.guest()] {
        let error = client.complete_activity(&token, &large).await.unwrap_err();
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
        assert!(client.heartbeat_activity(&token, &large).await.is_err());
    }
    runtime.client().complete_activity(&token, 2).await.unwrap();
    assert_eq!(soon(runtime.client().result("a")).await.unwrap().as_json(), "2");
    office.close(runtime, &["a"]).await;
}

//! Waiting for a result with a limit, or until the instance is blocked; and waiting for a runtime that fails.

use std::time::Duration;

use perennial::prelude::*;

use super::support::{Place, soon, until_blocked};

#[orchestration]
async fn patient(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.schedule_wait("go").await)
}

#[orchestration]
async fn broken(ctx: OrchestrationContext) -> Result<String, String> {
    let said: String = ctx.schedule_wait("go").await;
    panic!("cannot {said}")
}

async fn runtime() -> Runtime {
    Runtime::open("memory:").register(patient).register(broken).start().await.unwrap()
}

#[tokio::test]
async fn p4_a_result_is_waited_for_within_a_limit_and_the_instance_goes_on() {
    let runtime = runtime().await;
    let client = runtime.client();
    let run = client.start(patient, "patient-1", ()).await.unwrap();
    let limit = Duration::from_millis(10);
    let elapsed = ClientError::Elapsed { id: "patient-1".to_owned(), limit, blocked: None };
    assert_eq!(run.result_within(limit).await, Err(RunError::Client(elapsed.clone())));
    let error = client.result_within("patient-1", limit).await.unwrap_err();
    assert!(matches!(&error, Error::Client(error) if *error == elapsed), "{error}");
    assert!(error.to_string().starts_with("PER-0417 time limit elapsed: instance \"patient-1\""), "{error}");
    client.raise_event("patient-1", "go", "home").await.unwrap();
    assert_eq!(run.result_within(Duration::from_secs(60)).await.unwrap(), "home");
    assert_eq!(client.result_within("patient-1", Duration::from_secs(60)).await.unwrap().to_text(), "home");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_waiting_ends_with_the_reason_when_the_instance_is_blocked() {
    let runtime = runtime().await;
    let client = runtime.client();
    let run = client.start(broken, "broken-1", ()).await.unwrap();
    let (here, by_id) = tokio::join!(soon(run.result_unless_blocked()), async {
        let waiting = soon(client.result_unless_blocked("broken-1"));
        client.raise_event("broken-1", "go", "on").await.unwrap();
        waiting.await
    });
    match here {
        Err(RunError::Client(ClientError::Blocked { id, code, reason })) => {
            assert_eq!((id.as_str(), code.as_str()), ("broken-1", "PER-0201"));
            assert!(reason.contains("cannot on"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let error = by_id.unwrap_err();
    assert!(matches!(&error, Error::Client(ClientError::Blocked { .. })), "{error}");
    let limit = Duration::from_millis(10);
    let late = run.result_within(limit).await.unwrap_err().to_string();
    assert!(late.contains("within 10ms, because it is blocked: PER-0201 panic"), "{late}");
    assert_eq!(client.result_within("broken-1", limit).await.unwrap_err().to_string(), late);
    // An instance that was blocked and has ended is reported as ended.
    client.terminate("broken-1", "given up").await.unwrap();
    assert!(matches!(soon(run.result_unless_blocked()).await, Err(RunError::Ended(_))));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_waiting_ends_when_the_instance_is_paused_and_not_when_it_ends_well() {
    let runtime = runtime().await;
    let client = runtime.client();
    let run = client.start(patient, "patient-2", ()).await.unwrap();
    client.pause("patient-2", "maintenance").await.unwrap();
    match soon(run.result_unless_blocked()).await {
        Err(RunError::Client(ClientError::Blocked { code, reason, .. })) => {
            assert_eq!(code, "PER-0309");
            assert!(reason.contains("maintenance"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    client.resume("patient-2", "done").await.unwrap();
    client.raise_event("patient-2", "go", "home").await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), "home");
    assert_eq!(soon(run.result_unless_blocked()).await.unwrap(), "home");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_a_block_from_before_an_accepted_retry_does_not_end_the_wait() {
    let place = Place::new();
    let runtime = Runtime::open(place.url()).register(broken).start().await.unwrap();
    runtime.client().start(broken, "b", ()).await.unwrap();
    runtime.client().raise_event("b", "go", "on").await.unwrap();
    until_blocked(&runtime.client(), "b", "PER-0201").await;
    runtime.shutdown().await.unwrap();

    // The owner has not read the request yet: there is none.
    let guest = place.guest();
    guest.retry("b").await.unwrap();
    let (again, runtime) = tokio::join!(soon(guest.result_unless_blocked("b")), async {
        let code = |ctx: OrchestrationContext| async move {
            let said: String = ctx.schedule_wait("go").await;
            if said == "on" { panic!("still broken") } else { Ok::<_, String>(said) }
        };
        Runtime::open(place.url()).orchestration("broken", "1.0.0", code).start().await.unwrap()
    });
    let error = again.unwrap_err().to_string();
    assert!(error.contains("still broken"), "the block after the retry: {error}");
    runtime.shutdown().await.unwrap();

    guest.retry("b").await.unwrap();
    let (repaired, runtime) = tokio::join!(soon(guest.result_unless_blocked("b")), async {
        let code =
            |ctx: OrchestrationContext| async move { Ok::<String, String>(ctx.schedule_wait("go").await) };
        Runtime::open(place.url()).orchestration("broken", "1.0.0", code).start().await.unwrap()
    });
    assert_eq!(repaired.unwrap().to_text(), "on");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_a_pause_from_before_an_accepted_resume_does_not_end_the_wait() {
    let place = Place::new();
    let builder = || Runtime::open(place.url()).register(patient);
    let runtime = builder().start().await.unwrap();
    let client = runtime.client();
    client.start(patient, "p", ()).await.unwrap();
    client.pause("p", "maintenance").await.unwrap();
    client.raise_event("p", "go", "home").await.unwrap();
    runtime.shutdown().await.unwrap();
    let guest = place.guest();
    let paused = soon(guest.result_unless_blocked("p")).await.unwrap_err();
    assert!(paused.to_string().contains("maintenance"), "{paused}");
    guest.resume("p", "done").await.unwrap();
    let (resumed, runtime) =
        tokio::join!(soon(guest.result_unless_blocked("p")), async { builder().start().await.unwrap() });
    assert_eq!(resumed.unwrap().to_text(), "home");
    runtime.shutdown().await.unwrap();
}

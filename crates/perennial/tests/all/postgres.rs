//! Programs over a PostgreSQL server: the same code, another URL.

use std::time::Duration;

use perennial::prelude::*;
use perennial::{Filter, Payload, Status};
use perennial_testkit::postgres::TestServer;

use crate::support::soon;

#[activity]
async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[orchestration]
async fn greeting(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, name).await?)
}

/// A step, a timer, an event, a child.
#[orchestration]
async fn journey(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    let first: String = ctx.schedule_activity(greet, name).await?;
    ctx.schedule_timer(Duration::from_millis(20)).await;
    let word = ctx.schedule_wait("word").typed::<String>().await;
    let child: String = ctx.schedule_sub_orchestration(greeting, word).await?;
    Ok(format!("{first} {child}"))
}

async fn runtime(url: &str) -> Runtime {
    let runtime = Runtime::open(url).register(greet).register(greeting).register(journey);
    runtime.start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s9_a_program_runs_over_postgres_and_goes_on_after_a_restart() {
    let url = TestServer::shared().new_schema();
    let first = runtime(&url).await;
    let run = first.client().start(greeting, "g", "Ada".to_owned()).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), "Hello, Ada!");
    for number in 0..20 {
        first.client().start(journey, &format!("j-{number}"), "Ada".to_owned()).await.unwrap();
    }
    first.shutdown().await.unwrap();
    let second = runtime(&url).await;
    for number in 0..20 {
        second.client().raise_event(&format!("j-{number}"), "word", "Bob").await.unwrap();
    }
    for number in 0..20 {
        let result = soon(second.client().result(&format!("j-{number}"))).await.unwrap();
        assert_eq!(result.as_json(), r#""Hello, Ada! Hello, Bob!""#);
    }
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n13_a_client_elsewhere_starts_raises_waits_and_looks() {
    let url = TestServer::shared().new_schema();
    let unopened = Client::open(&url).unwrap_err();
    assert!(unopened.to_string().contains("there is no store in it yet"), "{unopened}");
    let runtime = runtime(&url).await;
    let client = Client::open(&url).unwrap();
    client.start(journey, "j", "Ada".to_owned()).await.unwrap();
    client.raise_event("j", "word", "Bob").await.unwrap();
    assert_eq!(soon(client.result("j")).await.unwrap().as_json(), r#""Hello, Ada! Hello, Bob!""#);
    let listed = client.list(Filter::new(), None, 10).await.unwrap().rows;
    assert!(listed.iter().all(|row| row.status == Status::Completed) && listed.len() == 2, "{listed:?}");
    let reader = Client::open_read_only(&url, Default::default()).unwrap();
    assert_eq!(reader.status("j").await.unwrap().status, Status::Completed);
    let refused = reader.start("greeting", "g", Payload::null()).await.unwrap_err();
    assert!(refused.to_string().contains("opened the store to read it"), "{refused}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn s9_a_url_that_leads_nowhere_is_refused_with_the_reason() {
    let nobody = Runtime::open("postgres://me:secret@127.0.0.1:1/shop").register(greet).start().await;
    let error = nobody.map(drop).unwrap_err();
    assert!(error.to_string().contains("postgres://me@127.0.0.1:1/shop"), "{error}");
    assert!(!error.to_string().contains("secret"));
    let odd = Client::open("postgres://me@127.0.0.1:1/shop?schema=public").unwrap_err();
    assert!(odd.to_string().contains("the schema \"public\" cannot be used"), "{odd}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n13_two_nodes_share_the_work_and_one_goes_on_alone() {
    let url = TestServer::shared().new_schema();
    let (one, other) = (runtime(&url).await, runtime(&url).await);
    for number in 0..40 {
        let node = if number % 2 == 0 { &one } else { &other };
        node.client().start(journey, &format!("j-{number}"), "Ada".to_owned()).await.unwrap();
    }
    for number in 0..20 {
        other.client().raise_event(&format!("j-{number}"), "word", "Bob").await.unwrap();
        soon(one.client().result(&format!("j-{number}"))).await.unwrap();
    }
    soon(one.shutdown()).await.unwrap();
    for number in 20..40 {
        other.client().raise_event(&format!("j-{number}"), "word", "Bob").await.unwrap();
    }
    for number in 20..40 {
        let result = soon(other.client().result(&format!("j-{number}"))).await.unwrap();
        assert_eq!(result.as_json(), r#""Hello, Ada! Hello, Bob!""#);
    }
    soon(other.shutdown()).await.unwrap();
}

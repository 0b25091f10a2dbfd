//! Programs over a PostgreSQL server: the same code, another URL.

use std::time::Duration;

use perennial::prelude::*;
use perennial::{Filter, Payload, RuntimeOptions, Status};
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
    ctx.on_query("met", &name.clone(), |name, ()| name.clone());
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

/// Two nodes and a client elsewhere share forty journeys; one node leaves in the middle.
async fn two_nodes_share_the_work(url: &str) {
    let (one, other) = (runtime(url).await, runtime(url).await);
    let client = Client::open(url).unwrap();
    let senders = [one.client(), other.client(), client.clone()];
    for number in 0..40 {
        let sender = &senders[number % senders.len()];
        sender.start(journey, &format!("j-{number}"), "Ada".to_owned()).await.unwrap();
    }
    for number in 0..20 {
        other.client().raise_event(&format!("j-{number}"), "word", "Bob").await.unwrap();
        soon(one.client().result(&format!("j-{number}"))).await.unwrap();
    }
    for (number, sender) in (37..40).zip(&senders) {
        let id = format!("j-{number}");
        let met: String = soon(sender.query(&id, "met", ())).await.unwrap().decode().unwrap();
        assert_eq!(met, "Ada");
        sender.cancel(&id, "enough").await.unwrap();
        soon(client.wait(&id)).await.unwrap();
        assert_eq!(one.client().status(&id).await.unwrap().status, Status::Cancelled);
    }
    soon(one.shutdown()).await.unwrap();
    for number in 20..37 {
        client.raise_event(&format!("j-{number}"), "word", "Bob").await.unwrap();
    }
    for number in 20..37 {
        let result = soon(other.client().result(&format!("j-{number}"))).await.unwrap();
        assert_eq!(result.as_json(), r#""Hello, Ada! Hello, Bob!""#);
    }
    soon(other.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n13_two_nodes_share_the_work_and_one_goes_on_alone() {
    two_nodes_share_the_work(&TestServer::shared().new_schema()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_two_nodes_share_the_work_by_polling_alone() {
    for without_hints in ["hints=off", "pooler=on"] {
        let url = format!("{}&{without_hints}", TestServer::shared().new_schema());
        two_nodes_share_the_work(&url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s9_two_applications_in_one_database_run_the_same_ids_side_by_side() {
    let server = TestServer::shared();
    let urls = [server.new_schema(), server.new_schema()];
    let (one, other) = (runtime(&urls[0]).await, runtime(&urls[1]).await);
    for (application, name) in [(&one, "Ada"), (&other, "Bob")] {
        application.client().start(journey, "j", name.to_owned()).await.unwrap();
    }
    one.client().raise_event("j", "word", "Ada").await.unwrap();
    assert_eq!(soon(one.client().result("j")).await.unwrap().as_json(), r#""Hello, Ada! Hello, Ada!""#);
    assert_eq!(other.client().status("j").await.unwrap().status, Status::Running);
    assert_eq!(other.client().nodes().await.unwrap().len(), 1);
    assert_eq!(other.client().list(Filter::new(), None, 10).await.unwrap().rows.len(), 1);
    soon(one.shutdown()).await.unwrap();
    other.client().raise_event("j", "word", "Eve").await.unwrap();
    assert_eq!(soon(other.client().result("j")).await.unwrap().as_json(), r#""Hello, Bob! Hello, Eve!""#);
    soon(other.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_all_lanes_of_a_node_that_is_alone_have_their_shards_when_it_has_started() {
    for _ in 0..5 {
        let url = TestServer::shared().new_schema();
        let options = RuntimeOptions { lanes: 4, ..RuntimeOptions::default() };
        let node = Runtime::open(&url).register(journey).register(greet).options(options);
        let node = node.start().await.unwrap();
        let nodes = node.client().nodes().await.unwrap();
        assert_eq!(nodes.iter().map(|node| node.shards).collect::<Vec<_>>(), [256]);
        // No request has to go through the store, so that a start has its first turn when it is acknowledged.
        for number in 0..20 {
            let id = format!("j-{number}");
            node.client().start(journey, &id, "Ada".to_owned()).await.unwrap();
            assert!(!node.client().history(&id).await.unwrap().turns.is_empty(), "{id}");
        }
        soon(node.shutdown()).await.unwrap();
    }
}

//! What the code has published of itself, read back (E36).

use std::sync::Arc;

use perennial_core::history::Started;
use perennial_core::{Attributes, ExecutionOptions, OrchestrationContext, Payload};
use perennial_testkit::Drive;
use serde_json::json;

/// Publishes, reads back in the same step, and once more after an activity.
async fn publish(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let mut seen = vec![json!([ctx.published(), ctx.attributes()])];
    ctx.set_status("one");
    ctx.upsert_attributes([("a", Payload::from("b")), ("t", Payload::from("7"))]);
    ctx.set_status("two");
    ctx.upsert_attributes([("t", Payload::null())]);
    seen.push(json!([ctx.published(), ctx.attributes()]));
    let _ = ctx.schedule_activity("pause", ()).await;
    seen.push(json!([ctx.published(), ctx.attributes()]));
    Ok(json!(seen).into())
}

#[test]
fn e36_code_reads_back_what_it_published_in_the_same_step_and_after_a_replay() {
    let mut drive = Drive::start(publish, ());
    drive.evict().complete(6, ()).evict();
    let both = r#"["two",{"a":"b"}]"#;
    let expected = format!("8 OrchestrationCompleted [[null,{{}}],{both},{both}]");
    assert_eq!(*drive.last_lines().last().unwrap(), expected);
}

#[test]
fn e36_a_next_execution_reads_what_the_last_one_published() {
    let attributes = Attributes::from([("a".to_owned(), Payload::from("b"))]);
    let started = Started {
        attributes,
        status: Some(Payload::from("half-way")),
        ..Started::new("test", "1.0.0", Payload::null(), 7)
    };
    let options = ExecutionOptions::default();
    let mut drive = Drive::prepare(Arc::new(publish), started, options).expect("it can be prepared");
    drive.turn([]).evict();
    drive.complete(6, ()).evict();
    let last = drive.last_lines().pop().unwrap();
    assert!(last.contains(r#"[["half-way",{"a":"b"}],"#), "{last}");
}

#[test]
fn e36_queries_may_look_too() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let asked = ctx.clone();
            ctx.on_query("self", move |_| Ok(json!([asked.published(), asked.attributes()]).into()));
            ctx.set_status("open");
            ctx.schedule_wait("close").await;
            Ok(Payload::null())
        },
        (),
    );
    let answer = drive.evict().execution().query("self", Payload::null()).expect("an answer");
    assert_eq!(answer.as_json(), r#"["open",{}]"#);
}

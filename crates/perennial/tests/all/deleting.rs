//! Deleting a running instance also deletes the children that it starts in the meantime (G33).

use perennial::{Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder};

use super::support::{Place, event, failed, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

async fn parent(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_sub_orchestration_with_id("child", "child", ()).await.map_err(failed)
}

/// Ignores cancel requests; starts a child after an event.
async fn child(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.on_cancel(|| async {});
    let _: Payload = ctx.schedule_wait(event("go")).await;
    ctx.set_status("went");
    ctx.schedule_sub_orchestration_with_id("grandchild", "grandchild", ()).await.map_err(failed)
}

async fn grandchild(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("never")).await)
}

fn runtime(place: &Place) -> RuntimeBuilder {
    Runtime::open(place.url())
        .options(relaxed())
        .orchestration("parent", "1.0.0", parent)
        .orchestration("child", "1.0.0", child)
        .orchestration("grandchild", "1.0.0", grandchild)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_what_is_started_while_its_family_is_being_deleted_goes_with_it() {
    let place = Place::new();
    let first = runtime(&place).start().await.unwrap();
    first.client().start("parent", "parent", Payload::null()).await.unwrap();
    soon(async { while first.client().history("child").await.is_err() {} }).await;
    until(&first.client(), "child", |status| status.status == perennial::Status::Running).await;
    first.shutdown().await.unwrap();

    // The family is looked at before the grandchild exists: with no owner there, nothing happens yet.
    let guest = place.guest();
    guest.raise_event("child", "go", "").await.unwrap();
    let deleting = tokio::spawn({
        let guest = guest.clone();
        async move { guest.delete("parent", true).await }
    });
    let terminated = async {
        while place.number("SELECT count(*) FROM inbox") != 2 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    soon(terminated).await;
    let second = runtime(&place).start().await.unwrap();
    let deleted = soon(deleting).await.unwrap().unwrap();
    let left: Vec<String> =
        guest.list(Filter::new(), None, 10).await.unwrap().rows.into_iter().map(|row| row.id).collect();
    assert_eq!(left, [""; 0], "{deleted} were deleted");
    second.shutdown().await.unwrap();
}

//! Registrations as one value, and what a start refuses.

use perennial::prelude::*;

#[activity]
async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("Hello, {name}!"))
}

#[orchestration]
async fn greeting(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(greet, name).await?)
}

fn app() -> Registrations {
    Registrations::new()
        .register(greeting)
        .register(greet)
        .fallback_orchestration("flow.*", "1.0.0", |ctx: OrchestrationContext, name: String, ()| async move {
            ctx.schedule_activity("service.echo", name).await
        })
        .fallback_activity("service.*", |_: ActivityContext, name: String, text: String| async move {
            Ok::<_, String>(format!("{name} {text}"))
        })
}

async fn refused(registrations: Registrations) -> String {
    Runtime::open("memory:").registrations(registrations).start().await.unwrap_err().to_string()
}

#[tokio::test]
async fn p4_one_value_registers_everything_that_a_program_has() {
    let modules = Registrations::new().merge(app());
    let builder = Runtime::open("memory:")
        .registrations(modules)
        .activity("own", |_: ActivityContext| async { Ok::<_, String>(()) });
    let runtime = builder.start().await.unwrap();
    let client = runtime.client();
    let run = client.start(greeting, "greeting-1", "Ada".to_owned()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "Hello, Ada!");
    let run = client.start("flow.tea", "tea-1", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap().to_text(), "service.echo flow.tea");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_registrations_that_overlap_are_refused_at_start() {
    let twice = "PER-0603 registered twice";
    assert!(refused(app().merge(app())).await.starts_with(twice));
    assert!(refused(app().register(greet)).await.starts_with(twice));
    // The first mistake is the one that is reported, in whichever part it is.
    let mistaken = Registrations::new()
        .orchestration("odd", "one", |_: OrchestrationContext| async { Ok::<_, String>(()) });
    let error = refused(app().merge(mistaken).merge(app())).await;
    assert!(error.starts_with("PER-0619 bad version"), "{error}");
}

#[test]
fn p4_registrations_show_their_names() {
    let shown = format!("{:?}", app());
    for name in ["greeting", "flow.*", "greet", "service.*"] {
        assert!(shown.contains(&format!("{name:?}")), "{shown}");
    }
}

//! Registrations as one value, and the checks of a start.

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

/// Two connections to services, of which activities share one each.
struct Pool(&'static str);
struct Mailer(&'static str);

#[activity(state(Pool))]
async fn query(ctx: ActivityContext) -> Result<String, String> {
    Ok(ctx.state::<Pool>().0.to_owned())
}

#[activity(state(Pool, Mailer))]
async fn mail(ctx: ActivityContext) -> Result<String, String> {
    Ok(format!("{} {}", ctx.state::<Pool>().0, ctx.state::<Mailer>().0))
}

#[activity(state(Pool))]
async fn undeclared(ctx: ActivityContext) -> Result<String, String> {
    Ok(ctx.state::<Mailer>().0.to_owned())
}

const SHIP: Activity<u64, String> = Activity::named("ship");

#[orchestration(version = "1.2.0", uses(query, mail))]
async fn report(ctx: OrchestrationContext) -> Result<String, String> {
    let queried = ctx.schedule_activity(query, ()).await?;
    let mailed = ctx.schedule_activity(mail, ()).await?;
    Ok(format!("{queried}, {mailed}"))
}

#[orchestration(uses(report, SHIP, "by.name", far))]
async fn far(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.schedule_sub_orchestration(report, ()).await?)
}

fn reports() -> Registrations {
    Registrations::new().register(report).register(query).register(mail)
}

#[tokio::test]
async fn p4_state_is_given_once_and_found_by_its_type() {
    let builder = Runtime::open("memory:").state(Mailer("mail")).registrations(reports()).state(Pool("pool"));
    let runtime = builder.start().await.unwrap();
    let run = runtime.client().start(report, "report-1", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "pool, pool mail");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_a_start_without_declared_state_names_each_activity_and_type() {
    let error = refused(reports().state(Pool("pool"))).await;
    assert_eq!(
        error,
        "PER-0625 missing state: activity \"mail\" needs a all::registrations::Mailer; give it to the builder with \
         `.state(…)`, with exactly this type"
    );
    let error = refused(reports()).await;
    let parts = ["\"mail\" needs a all::registrations::Pool", "Mailer", "\"query\" needs a"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    // Another type, even a pointer to the right one, is not it.
    let error = refused(reports().state(std::sync::Arc::new(Pool("pool"))).state(Mailer("mail"))).await;
    assert!(error.starts_with("PER-0625"), "{error}");
    let error = refused(reports().state(Pool("one")).state(Pool("two"))).await;
    assert!(
        error.starts_with("PER-0603 registered twice: state of the type all::registrations::Pool"),
        "{error}"
    );
}

#[tokio::test]
async fn p4_an_activity_sees_no_state_that_it_does_not_declare() {
    let builder = Runtime::open("memory:").register(undeclared).state(Pool("pool")).state(Mailer("mail"));
    let builder = builder.orchestration("ask", "1.0.0", |ctx: OrchestrationContext| async move {
        ctx.schedule_activity(undeclared, ()).await.map_err(|error| error.to_string())
    });
    let runtime = builder.start().await.unwrap();
    let run = runtime.client().start("ask", "ask-1", ()).await.unwrap();
    let error = run.result().await.unwrap_err().to_string();
    assert!(error.contains("PER-0407 no state") && error.contains("#[activity(state("), "{error}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_a_start_without_what_orchestrations_use_names_all_of_it() {
    let pair = || Registrations::new().state(Pool("pool")).state(Mailer("mail")).register(far);
    let error = refused(pair().register(report).register(query)).await;
    assert_eq!(
        error,
        "PER-0608 not registered: orchestration \"far\" 1.0.0 uses the activity \"ship\", orchestration \"far\" 1.0.0 uses \
         the activity or orchestration \"by.name\", orchestration \"report\" 1.2.0 uses the activity \"mail\"; register it, \
         or remove the declaration"
    );
    let error = refused(pair()).await;
    assert!(error.contains("uses the orchestration \"report\""), "{error}");
    // Code for a pattern counts, for activities and for orchestrations.
    let patterns = pair()
        .merge(reports())
        .fallback_activity("sh*", |_: ActivityContext, _: String, (): ()| async { Ok::<_, String>(()) })
        .fallback_orchestration("by.*", "1.0.0", |_: OrchestrationContext, _: String, (): ()| async {
            Ok::<_, String>(())
        });
    Runtime::open("memory:").registrations(patterns).start().await.unwrap().shutdown().await.unwrap();
}

/// Says its version, after it has continued as new as often as it is told.
async fn says_version(ctx: OrchestrationContext, times: u32) -> Result<String, String> {
    match times {
        0 => Ok(ctx.info().version),
        _ => ctx.continue_as_new(times - 1).await,
    }
}

fn versions() -> Registrations {
    Registrations::new()
        .orchestration("flow", "1.0.0", says_version)
        .orchestration("flow", "2.0.0", says_version)
        .orchestration("parent", "1.0.0", |ctx: OrchestrationContext| async move {
            ctx.schedule_sub_orchestration(FLOW, 1).await.map_err(String::from)
        })
}

const FLOW: Orchestration<u32, String> = Orchestration::named("flow");

/// The versions that a start, an execution after continue-as-new and a child get.
async fn versions_with(registrations: Registrations) -> Vec<String> {
    let runtime = Runtime::open("memory:").registrations(registrations).start().await.unwrap();
    let client = runtime.client();
    let mut versions = Vec::new();
    for times in [0, 2] {
        let run = client.start(FLOW, &format!("flow-{times}"), times).await.unwrap();
        versions.push(run.result().await.unwrap());
    }
    versions.push(client.start("parent", "parent-1", ()).await.unwrap().result().await.unwrap().to_text());
    let asked = StartOptions::default().version("2.0.0");
    let run = client.start_with(FLOW, "asked-1", 0, asked).await.unwrap();
    versions.push(run.result().await.unwrap());
    runtime.shutdown().await.unwrap();
    versions
}

#[tokio::test]
async fn g27_a_policy_decides_the_version_where_none_is_asked_for() {
    use perennial::options::VersionPolicy;
    let exact = |version: &str| VersionPolicy::Exact(version.to_owned());
    assert_eq!(versions_with(versions()).await, ["2.0.0", "2.0.0", "2.0.0", "2.0.0"]);
    let latest = versions().version_policy("flow", VersionPolicy::Latest);
    assert_eq!(versions_with(latest).await, ["2.0.0", "2.0.0", "2.0.0", "2.0.0"]);
    let first = versions().version_policy(FLOW, exact("1.0.0"));
    assert_eq!(first.handlers().latest_version("flow").as_deref(), Some("1.0.0"));
    // A caller that specifies a version gets it.
    assert_eq!(versions_with(first).await, ["1.0.0", "1.0.0", "1.0.0", "2.0.0"]);

    let error = refused(versions().version_policy("flow", exact("3.0.0"))).await;
    let expected = "PER-0608 not registered: the version policy of orchestration \"flow\" uses version 3.0.0";
    assert!(error.starts_with(expected), "{error}");
    let error = refused(versions().version_policy("flow", exact("newest"))).await;
    assert!(error.starts_with("PER-0619 bad version"), "{error}");
    let twice = versions().version_policy("flow", exact("1.0.0")).version_policy("flow", exact("2.0.0"));
    assert!(refused(twice).await.starts_with("PER-0603 registered twice: version policy"));
}

#[test]
fn g27_tests_and_runtimes_prefer_releases_to_pre_releases() {
    let tea = |_: OrchestrationContext, _: u32| async move { Ok::<u32, String>(1) };
    let app = Registrations::new();
    let app = app.orchestration("tea", "1.0.0", tea).orchestration("tea", "2.0.0-beta.1", tea);
    assert_eq!(app.handlers().latest_version("tea").as_deref(), Some("1.0.0"));
}

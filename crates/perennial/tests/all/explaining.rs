//! Why an instance does not move (H42): the same answer in the runtime's process, in another one, and after a restart.

use std::sync::Arc;
use std::time::Duration;

use perennial::explain::{Explanation, FindingKind, Wait, WaitReason};
use perennial::prelude::*;
use perennial::{Client, ErrorCode, Filter, InstanceView, RuntimeBuilder, RuntimeOptions};
use perennial_core::store::{
    MemoryStore, NewSession, NodeInfo, Served, SessionId, SessionRole, Store, TaskReport,
};
use perennial_testkit::conformance::wait_for;

use super::support::{Place, now_ms, relaxed, soon, until, until_blocked};

const HOUR: Duration = Duration::from_secs(3_600);
const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
const ADD: Update<u32, u32> = Update::named("add");

#[activity]
async fn charge(_: ActivityContext) -> Result<u32, String> {
    Err("card service 503".to_owned())
}

#[orchestration]
async fn pays(ctx: OrchestrationContext) -> Result<u32, String> {
    let policy = RetryPolicy::fixed(HOUR).attempts(5);
    Ok(ctx.schedule_activity(charge, ()).retry(policy).await?)
}

/// Fails three times at once, then waits for an hour.
#[orchestration]
async fn pays_in_vain(ctx: OrchestrationContext) -> Result<u32, String> {
    let policy = RetryPolicy::linear(Duration::from_millis(1), HOUR).attempts(5);
    let policy = RetryPolicy {
        backoff: perennial::Backoff::Exponential {
            first: Duration::from_millis(1),
            factor_percent: 100_000,
            max: HOUR,
        },
        ..policy
    };
    Ok(ctx.schedule_activity(charge, ()).retry(policy).await?)
}

#[activity]
async fn uploads(ctx: ActivityContext) -> Result<(), String> {
    ctx.heartbeat("40 %");
    ctx.cancelled().await;
    Ok(())
}

#[orchestration]
async fn copies(ctx: OrchestrationContext) -> Result<(), String> {
    Ok(ctx.schedule_activity(uploads, ()).await?)
}

#[activity]
async fn silent(ctx: ActivityContext) -> Result<(), String> {
    ctx.cancelled().await;
    Ok(())
}

#[orchestration]
async fn silently(ctx: OrchestrationContext) -> Result<(), String> {
    Ok(ctx.schedule_activity(silent, ()).await?)
}

#[orchestration]
async fn forgetful(ctx: OrchestrationContext) -> Result<String, String> {
    ctx.schedule_activity("forgotten", "5").await
}

#[orchestration]
async fn forgets_twice(ctx: OrchestrationContext) -> Result<(String, String), String> {
    let first = ctx.schedule_activity("forgotten", "5");
    let second = ctx.schedule_activity("forgotten", "6");
    let (first, second) = ctx.join2(first, second).await;
    Ok((first?, second?))
}

#[orchestration]
async fn order(ctx: OrchestrationContext) -> Result<bool, String> {
    let first = ctx.schedule_wait(APPROVED).await;
    let second = ctx.timeout(24 * HOUR, ctx.schedule_wait(APPROVED)).await.unwrap_or(false);
    Ok(first && second)
}

#[orchestration]
async fn sleeps(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_timer(48 * HOUR).await;
    Ok(())
}

#[orchestration]
async fn parent(ctx: OrchestrationContext, levels: u32) -> Result<u32, String> {
    match levels {
        0 => Ok(u32::from(ctx.schedule_wait(APPROVED).await)),
        _ => Ok(ctx.schedule_sub_orchestration(parent, levels - 1).await?),
    }
}

#[orchestration]
async fn fans_out(ctx: OrchestrationContext) -> Result<usize, String> {
    let waits = (0..80).map(|number| ctx.schedule_wait(format!("event-{number}")));
    Ok(ctx.join(waits.collect::<Vec<_>>()).await.len())
}

#[orchestration]
async fn adds(ctx: OrchestrationContext) -> Result<u32, String> {
    let sum = ctx.state(0_u32);
    let outer = ctx.clone();
    ctx.on_update(ADD, &sum, move |sum, number| {
        let ctx = outer.clone();
        async move {
            ctx.schedule_timer(48 * HOUR).await;
            Ok(sum.update(|sum| {
                *sum += number;
                *sum
            }))
        }
    });
    ctx.wait_until(&sum, |sum| *sum > 10).await;
    Ok(sum.read(|sum| *sum))
}

#[orchestration]
async fn broken(_: OrchestrationContext) -> Result<(), String> {
    panic!("a bug")
}

#[orchestration]
async fn cleans_up(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.cancelled().await;
    ctx.shield(ctx.schedule_timer(HOUR)).await;
    Ok(())
}

fn app(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .options(RuntimeOptions { node: "shop-1".to_owned(), ..relaxed() })
        .register(pays)
        .register(pays_in_vain)
        .register(copies)
        .register(silently)
        .register(forgetful)
        .register(forgets_twice)
        .register(order)
        .register(sleeps)
        .register(parent)
        .register(fans_out)
        .register(adds)
        .register(broken)
        .register(cleans_up)
        .register(charge)
        .register(uploads)
        .register(silent)
}

async fn open(place: &Place) -> Runtime {
    app(Runtime::open(place.url())).start().await.unwrap()
}

/// The explanation of an instance once it begins like this.
#[track_caller]
pub(crate) fn explained<'a>(
    client: &'a Client,
    id: &'a str,
    beginning: &'a str,
) -> impl Future<Output = Explanation> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = tokio::time::Instant::now() + super::support::PATIENCE / 2;
        loop {
            let explanation = client.explain(id).await.unwrap();
            if explanation.to_string().starts_with(beginning) {
                return explanation;
            }
            assert!(tokio::time::Instant::now() < deadline, "{caller}: {id} waits for {explanation}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An explanation with times and ages taken out, and checked to be the same from elsewhere.
async fn line(client: &Client, guest: &Client, id: &str, beginning: &str) -> String {
    let told = masked(&explained(client, id, beginning).await.to_string());
    assert_eq!(masked(&explained(guest, id, beginning).await.to_string()), told);
    told
}

fn masked(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_inclusive([' ', '\n']) {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_unit = matches!(bare, "ms" | "s" | "min" | "h" | "d");
        let is_number = |word: &str| word.trim_matches(['(', ' ']).parse::<u64>().is_ok();
        match words.last().is_some_and(|last| is_number(last)) && is_unit {
            true => {
                // `3 h 12 min` is one age.
                words.pop();
                let is_second = words.last().is_some_and(|last| last.starts_with("[age]"));
                let end: String = word.chars().skip_while(|c| c.is_alphabetic()).collect();
                if is_second {
                    words.pop();
                }
                words.push(format!("[age]{end}"));
            }
            false if bare.len() == 20 && bare.ends_with('Z') => {
                words.push(word.replace(bare, "[time]"));
            }
            false => words.push(word.to_owned()),
        }
    }
    words.concat()
}

#[test]
fn times_and_ages_are_masked() {
    let text = "for 3 h 12 min, next at 2026-11-16T14:02:10Z (in 8 s); 7 more";
    assert_eq!(masked(text), "for [age], next at [time] (in [age]); 7 more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_operations_are_explained_alike_in_every_process_and_after_a_restart() {
    let place = Place::new();
    let mut runtime = open(&place).await;
    let (client, guest) = (runtime.client(), place.guest());
    client.start(pays, "pays", ()).await.unwrap();
    client.start(copies, "copies", ()).await.unwrap();
    client.start(silently, "silently", ()).await.unwrap();
    client.start(forgetful, "forgetful", ()).await.unwrap();
    client.start(order, "order", ()).await.unwrap();
    client.start(sleeps, "sleeps", ()).await.unwrap();
    client.start(parent, "parent", 2).await.unwrap();
    let delayed = StartOptions::default().delay(HOUR);
    client.start_with(order, "later", (), delayed).await.unwrap();
    client.raise_event("order", APPROVED, true).await.unwrap();
    let retry = "activity `charge` (event 2): attempt 1 of 5 failed [age] ago with card service 503, next at [time] (in [age])";
    let event = "event `approved` for [age]; a timer set with it fires in [age]";
    let child = "child `parent::1.2` (event 2), which waits for child `parent::1.2::1.2` (event 2), which waits for \
                 event `approved` for [age]";
    let no_runtime = "no runtime is running on this store; the last one is known to have run until [time]";
    for round in 0..3 {
        let (client, guest) = (runtime.client(), &guest);
        let line = async |id: &str, beginning: &str| line(&client, guest, id, beginning).await;
        let failed = "activity `charge` (event 2): attempt 1 of 5 failed";
        assert_eq!(line("pays", failed).await, retry, "round {round}");
        let running = line("copies", "activity `uploads` (event 2): attempt 1 of 1 running").await;
        let heard = "activity `uploads` (event 2): attempt 1 of 1 running on shop-1 for [age], heartbeat [age] old: 40 %";
        assert_eq!(running, heard);
        assert!(
            line("silently", "activity `silent` (event 2): attempt 1 of 1")
                .await
                .contains(" shop-1 for [age]")
        );
        let forgotten = line("forgetful", "activity `forgotten` (event 2): queued").await;
        assert_eq!(
            forgotten,
            "activity `forgotten` (event 2): queued for [age], no live node has it registered"
        );
        assert_eq!(line("order", "event `approved` for").await, event);
        assert_eq!(line("sleeps", "timer").await, "timer until [time] (in [age])");
        assert_eq!(line("later", "its delayed").await, "its delayed start until [time] (in [age])");
        assert_eq!(line("parent", "child").await, child);
        soon(runtime.shutdown_within(Duration::from_millis(50))).await.unwrap();
        // From a store without a runtime.
        let left = masked(&guest.explain("pays").await.unwrap().to_string());
        assert_eq!(left, format!("{no_runtime}\n{retry}"));
        let left = guest.explain("copies").await.unwrap();
        assert!(left.is_stuck(), "its activity is to run: {left}");
        let left = guest.explain("sleeps").await.unwrap();
        assert!(!left.is_stuck() && left.to_string().starts_with("no runtime"), "nothing is due: {left}");
        assert!(left.at.as_millis().abs_diff(now_ms()) < 60_000);
        runtime = open(&place).await;
    }
    let runtime_client = runtime.client();
    runtime_client.terminate("order", "enough").await.unwrap();
    until(&guest, "order", |view| view.status.is_final()).await;
    let over = guest.explain("order").await.unwrap();
    assert_eq!((over.to_string().as_str(), over.waits.len()), ("nothing: it has been terminated: enough", 0));
    assert!(matches!(guest.explain("nobody").await, Err(ClientError::NotFound { .. })));
    soon(runtime.shutdown_within(Duration::from_millis(50))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_states_of_an_instance_are_explained_alike_in_every_process() {
    let place = Place::new();
    let runtime = open(&place).await;
    let (client, guest) = (runtime.client(), place.guest());
    let line = async |id: &str, beginning: &str| line(&client, &guest, id, beginning).await;
    client.start(broken, "broken", ()).await.unwrap();
    until_blocked(&client, "broken", "PER-0201").await;
    assert!(line("broken", "blocked for").await.contains("tried 1 time: PER-0201"));
    client.start(order, "order", ()).await.unwrap();
    client.pause("order", Why::new("an incident").by("ada")).await.unwrap();
    assert_eq!(
        line("order", "paused").await,
        "paused by ada since [time]: an incident\nevent `approved` for [age]"
    );
    client.start(sleeps, "sleeps", ()).await.unwrap();
    client.pause_orchestration("sleeps", "a release").await.unwrap();
    let paused = line("sleeps", "paused with").await;
    assert!(paused.starts_with("paused with its orchestration since [time]: a release\n"), "{paused}");
    client.start(adds, "adds", ()).await.unwrap();
    assert!(line("adds", "a condition of its own code").await.contains("an update has to change it"));
    let update = tokio::spawn({
        let client = client.clone();
        async move { drop(client.update("adds", ADD, 3).await) }
    });
    let updated = line("adds", "the handler of update").await;
    assert!(updated.starts_with("the handler of update `add` (event 2) for [age]\ntimer until"), "{updated}");
    update.abort();
    client.start(cleans_up, "cleans-up", ()).await.unwrap();
    client.cancel("cleans-up", "no stock").grace(HOUR).await.unwrap();
    let cancelled = line("cleans-up", "cancellation").await;
    assert!(
        cancelled.starts_with(
            "cancellation requested [age] ago, ends at the latest at [time] (in [age]): no stock"
        ),
        "{cancelled}"
    );
    client.start(fans_out, "fans-out", ()).await.unwrap();
    let wide = explained(&guest, "fans-out", "event `event-0` for").await;
    assert_eq!((wide.waits.len(), wide.more), (50, 30), "a fan-out is listed in part");
    assert!(wide.to_string().ends_with("\nand 30 more") && wide.short() == "event event-0 (+79)");
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_messages_and_missing_code_are_explained_from_outside() {
    let place = Place::new();
    let guest = place.guest();
    guest.start("order", "order", ()).await.unwrap();
    let new = guest.explain("order").await.unwrap();
    let told = masked(&new.to_string());
    assert_eq!(
        told,
        "no runtime has run on this store yet\nits next turn: 1 message not applied yet, the oldest for [age]"
    );
    assert!(new.is_stuck() && new.waits[0].remedy.is_some());
    // A runtime that has none of its code.
    let runtime = Runtime::open(place.url()).register(sleeps).options(relaxed()).start().await.unwrap();
    until_blocked(&guest, "order", "PER-0301").await;
    let explanation = guest.explain("order").await.unwrap();
    let is_delay =
        |wait: &Wait| matches!(wait.reason, WaitReason::Start { .. } | WaitReason::Messages { .. });
    assert!(!explanation.waits.iter().any(is_delay), "its next retry is no delayed start: {explanation}");
    let missing = explanation.waits.iter().find(|wait| wait.text.starts_with("no live node"));
    assert_eq!(missing.unwrap().text, "no live node has orchestration `order` registered");
    assert_eq!(
        missing.unwrap().remedy.as_deref(),
        Some("register `order` in the program, and start it again")
    );
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_a_damaged_history_is_explained_as_such() {
    let place = Place::new();
    let runtime = open(&place).await;
    runtime.client().start(sleeps, "sleeps", ()).await.unwrap();
    explained(&runtime.client(), "sleeps", "timer").await;
    soon(runtime.shutdown()).await.unwrap();
    let turns = place.execute("UPDATE turns SET checksum = checksum + 1");
    assert_eq!(turns, 1);
    let damaged = place.guest().explain("sleeps").await.unwrap();
    let unread = damaged.waits.iter().find(|wait| matches!(wait.reason, WaitReason::Unread { .. })).unwrap();
    assert!(unread.is_stuck() && unread.text.contains("PER-0101"), "{unread}");
    place.execute("UPDATE turns SET checksum = checksum - 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_work_on_other_nodes_names_them() {
    let store = Arc::new(MemoryStore::new(now_ms));
    let options = RuntimeOptions { node: "owner".to_owned(), ..relaxed() };
    let builder = Runtime::open("memory:").store(Arc::clone(&store) as _).options(options);
    let runtime = builder.register(copies).start().await.unwrap();
    let client = runtime.client();
    client.start(copies, "copies", ()).await.unwrap();
    let of = "activity `uploads` (event 2):";
    let told = async |beginning: &str| {
        masked(&explained(&client, "copies", &format!("{of} {beginning}")).await.to_string())
    };
    assert_eq!(told("queued").await, format!("{of} queued for [age], no live node has it registered"));
    // Another node, which is only a session here.
    let id = SessionId(7);
    let info =
        NodeInfo { name: "worker".to_owned(), activities: vec!["up*".to_owned()], ..NodeInfo::default() };
    let session =
        |lease_ms| NewSession { id, role: SessionRole::Node, node: id, lease_ms, info: info.encode() };
    wait_for(|reply| store.open_session(session(3_600_000), reply)).unwrap();
    assert_eq!(
        told("attempt").await,
        format!(
            "{of} attempt 1 of 1 queued for [age]; worker can run it once a slot is free (1 queued activity)"
        )
    );
    let served = Served { names: ["uploads".to_owned()].into(), ..Served::default() };
    let taken = wait_for(|reply| store.take_tasks(id, served, 10, 3_600_000, reply)).unwrap();
    assert_eq!(
        told("attempt 1 of 1 running").await,
        format!("{of} attempt 1 of 1 running on worker for [age]")
    );
    let report = TaskReport { details: Some("40 %".into()), ..TaskReport::of(taken[0].id) };
    wait_for(|reply| store.renew_tasks(id, vec![report.clone()], 3_600_000, reply)).unwrap();
    assert_eq!(
        told("attempt 1 of 1 running").await,
        format!("{of} attempt 1 of 1 running on worker for [age], heartbeat [age] old: 40 %")
    );
    // The lease expires, and the task has not been taken again.
    wait_for(|reply| store.renew_tasks(id, vec![report], 0, reply)).unwrap();
    let lost = format!("{of} attempt 1 of 1 was running on worker, which stopped [age] ago; it runs again");
    assert_eq!(told("attempt 1 of 1 was").await, lost);
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_what_is_stuck_is_found_by_its_cause() {
    let place = Place::new();
    let runtime = open(&place).await;
    let (client, guest) = (runtime.client(), place.guest());
    client.start(order, "order", ()).await.unwrap();
    client.start(sleeps, "sleeps", ()).await.unwrap();
    explained(&client, "order", "event").await;
    assert_eq!(guest.find_stuck().await.unwrap().findings, []);
    for id in ["broken-1", "broken-2"] {
        client.start(broken, id, ()).await.unwrap();
        until_blocked(&client, id, "PER-0201").await;
    }
    client.start(forgetful, "forgetful", ()).await.unwrap();
    explained(&client, "forgetful", "activity `forgotten` (event 2): queued").await;
    client.start(forgets_twice, "twice", ()).await.unwrap();
    soon(async {
        while client.stats().await.unwrap().tasks_queued.rows < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    client.start(pays_in_vain, "in-vain", ()).await.unwrap();
    explained(&client, "in-vain", "activity `charge` (event 2): attempt 3 of 5 failed").await;
    let report = guest.find_stuck().await.unwrap();
    let found: Vec<(FindingKind, usize, Vec<String>)> =
        report.findings.iter().map(|found| (found.kind, found.count, found.instances.clone())).collect();
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            (FindingKind::Blocked, 2, ids(&["broken-1", "broken-2"])),
            (FindingKind::ActivityNotRegistered, 2, ids(&["forgetful", "twice"])),
            (FindingKind::ActivityFailing, 1, ids(&["in-vain"])),
        ]
    );
    assert!(report.is_complete && report.findings.iter().all(|found| !found.remedy.is_empty()));
    assert_eq!(report.findings[0].remedy, ErrorCode::Panic.remedy());
    assert!(report.findings[2].text.starts_with("activity `charge` fails repeatedly: 3 attempts, the last"));
    soon(runtime.shutdown()).await.unwrap();
    // No runtime is running now, and one instance has work to do.
    guest.start("order", "waits", ()).await.unwrap();
    let report = guest.find_stuck().await.unwrap();
    let missing = report.findings.iter().find(|found| found.kind == FindingKind::NoRuntime).unwrap();
    assert!(missing.instances.contains(&"waits".to_owned()), "{missing:?}");
    assert!(missing.text.contains("no runtime is running on this store"), "{missing:?}");
    // A program that has lost one of them.
    let runtime = Runtime::open(place.url()).register(order).options(relaxed()).start().await.unwrap();
    let report = soon(async {
        loop {
            let report = guest.find_stuck().await.unwrap();
            let is_it = |kind| report.findings.iter().any(|found| found.kind == kind);
            if is_it(FindingKind::OrchestrationNotRegistered) && !is_it(FindingKind::NoRuntime) {
                return report;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let lost = report.findings.iter().find(|found| found.text.contains("`sleeps`")).unwrap();
    assert_eq!((lost.kind, &lost.instances), (FindingKind::OrchestrationNotRegistered, &ids(&["sleeps"])));
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_status_list_and_tree_speak_of_an_instance_alike() {
    let place = Place::new();
    let runtime = open(&place).await;
    let client = runtime.client();
    client.start(parent, "parent", 1).await.unwrap();
    explained(&client, "parent", "child `parent::1.2` (event 2), which waits for event").await;
    let child: InstanceView = client.status("parent::1.2").await.unwrap();
    let page = client.list(Filter::new().id_prefix("parent::"), None, 10).await;
    assert_eq!(page.unwrap().rows, std::slice::from_ref(&child));
    let tree = client.tree("parent").await.unwrap();
    assert_eq!(tree.children[0].instance, child);
    assert_eq!(child.parent.as_ref().map(|link| link.instance.as_str()), Some("parent"));
    let text = serde_json::to_string(&tree).unwrap();
    assert!(text.starts_with(r#"{"id":"parent","key":"#), "{text}");
    assert_eq!(serde_json::from_str::<perennial::client::Tree>(&text).unwrap(), tree);
    let each = client.explain_each(&[tree.instance.clone(), child]).await.unwrap();
    let short: Vec<String> = each.iter().map(Explanation::short).collect();
    assert_eq!(short, ["child parent::1.2", "event approved"]);
    let json = serde_json::to_string(&client.explain("parent").await.unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&json).unwrap().id, "parent");
    soon(runtime.shutdown()).await.unwrap();
}

#[activity]
async fn approval(_: ActivityContext) -> Result<Later<bool>, String> {
    Ok(Later::Pending)
}

#[orchestration]
async fn asks_somebody(ctx: OrchestrationContext) -> Result<bool, String> {
    Ok(ctx.schedule_activity(approval, ()).total_timeout(24 * HOUR).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_an_activity_that_waits_for_its_token_says_until_when() {
    let place = Place::new();
    let builder = Runtime::open(place.url()).register(asks_somebody).register(approval).options(relaxed());
    let runtime = builder.start().await.unwrap();
    let client = runtime.client();
    client.start(asks_somebody, "asks", ()).await.unwrap();
    let beginning = "activity `approval` (event 2): attempt 1 of 1 has waited for its completion token for";
    let told = line(&client, &place.guest(), "asks", beginning).await;
    assert_eq!(told, format!("{beginning} [age], gives up in [age]"));
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_details_are_decoded_for_whoever_has_the_key_and_marked_for_others() {
    let (place, codecs) = (Place::new(), || crate::codecs::Masked::codecs(&["k1"]));
    let runtime = app(Runtime::open(place.url())).codecs(codecs()).start().await.unwrap();
    runtime.client().start(copies, "copies", ()).await.unwrap();
    let beginning = "activity `uploads` (event 2): attempt 1 of 1 running on shop-1 for";
    let with_key = Client::open_with_codecs(&place.url(), codecs()).unwrap();
    let told = masked(&explained(&with_key, "copies", beginning).await.to_string());
    assert!(told.ends_with("heartbeat [age] old: 40 %"), "{told}");
    let told = masked(&place.guest().explain("copies").await.unwrap().to_string());
    assert!(!told.contains("40 %") && told.contains("masked"), "{told}");
    soon(runtime.shutdown_within(Duration::from_millis(50))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h42_children_are_followed_to_a_limited_depth() {
    let place = Place::new();
    let runtime = open(&place).await;
    let client = runtime.client();
    client.start(parent, "deep", 8).await.unwrap();
    let bottom = format!("deep{}", "::1.2".repeat(8));
    soon(async {
        while client.status(&bottom).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    explained(&client, &bottom, "event").await;
    let told = client.explain("deep").await.unwrap().to_string();
    assert_eq!(told.matches("child `").count(), 6, "{told}");
    assert!(told.ends_with(", which is running"), "{told}");
    // What the row of a child shows is reported even where its history is not read.
    let seventh = format!("deep{}", "::1.2".repeat(6));
    client.pause(&seventh, "an audit").await.unwrap();
    until(&client, &seventh, |view| view.blocked.is_some()).await;
    let told = masked(&client.explain("deep").await.unwrap().to_string());
    assert!(told.ends_with(": paused since [time]: an audit"), "{told}");
    let sixth = client.status(&format!("deep{}", "::1.2".repeat(5))).await.unwrap();
    let listed = client.explain_each(&[sixth]).await.unwrap().remove(0);
    assert_eq!(listed.short(), format!("child {seventh}: paused"));
    soon(runtime.shutdown()).await.unwrap();
}

//! Preflight: open instances against the code of tomorrow, while today's runs.

use perennial::prelude::*;
use perennial::replay::PreflightReport;
use perennial::{Filter, RuntimeBuilder};

use super::support::Place;

const GO: ExternalEvent<bool> = ExternalEvent::named("go");

#[activity]
async fn pick(_: ActivityContext, item: String) -> Result<String, String> {
    Ok(item)
}

#[activity]
async fn pack(_: ActivityContext, item: String) -> Result<String, String> {
    Ok(item)
}

#[orchestration]
async fn parcel(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    let item = ctx.schedule_activity(pick, item).await?;
    ctx.schedule_wait(GO).await;
    Ok(item)
}

/// The same orchestration after a change that forgot those that are under way.
mod tomorrow {
    use super::*;

    #[orchestration]
    pub(super) async fn parcel(ctx: OrchestrationContext, item: String) -> Result<String, String> {
        let item = ctx.schedule_activity(pack, item).await?;
        ctx.schedule_wait(GO).await;
        Ok(item)
    }

    #[orchestration(version = "2.0.0", name = "parcel")]
    pub(super) async fn parcel_2(_: OrchestrationContext, item: String) -> Result<String, String> {
        Ok(item)
    }

    #[orchestration(name = "parcel")]
    pub(super) async fn restless(ctx: OrchestrationContext, _: String) -> Result<String, String> {
        loop {
            std::hint::black_box(ctx.is_replaying());
        }
    }

    #[orchestration(name = "parcel")]
    pub(super) async fn clumsy(_: OrchestrationContext, _: String) -> Result<String, String> {
        panic!("dropped it")
    }
}

struct Shop {
    _place: Place,
    url: String,
    runtime: Runtime,
}

/// A shop with three parcels that wait, and one that is done.
async fn shop() -> Shop {
    let place = Place::new();
    let url = place.url();
    let runtime = Runtime::open(&url).register(parcel).register(pick).start().await.unwrap();
    let client = runtime.client();
    for id in ["p-1", "p-2", "p-3", "done"] {
        client.start(parcel, id, "book".to_owned()).await.unwrap();
    }
    client.raise_event("done", GO, true).await.unwrap();
    client.wait("done").await.unwrap();
    for id in ["p-1", "p-2", "p-3"] {
        while client.history(id).await.unwrap().turns.len() < 2 {
            tokio::task::yield_now().await;
        }
    }
    Shop { _place: place, url, runtime }
}

async fn check(builder: RuntimeBuilder) -> PreflightReport {
    builder.preflight().await.unwrap()
}

#[tokio::test]
async fn p8_preflight_passes_the_code_that_wrote_the_histories() {
    let shop = shop().await;
    let mut steps = Vec::new();
    let report = Runtime::open(&shop.url)
        .register(parcel)
        .preflight_with(|progress| steps.push((progress.checked, progress.total.rows)))
        .await
        .unwrap();
    assert!(report.is_ok());
    assert_eq!((report.checked, report.compatible), (3, 3), "what has ended needs no code");
    assert_eq!(steps, [(1, 3), (2, 3), (3, 3)]);
    assert_eq!(report.to_string(), "3 open: 3 compatible, 0 incompatible, 0 without code");
}

#[tokio::test]
async fn p8_preflight_names_the_event_and_the_line_of_a_divergence_and_changes_nothing() {
    let shop = shop().await;
    let report = check(Runtime::open(&shop.url).register(tomorrow::parcel)).await;
    assert!(!report.is_ok());
    assert_eq!((report.compatible, report.incompatible.len()), (0, 3));
    let found = &report.incompatible[0];
    assert_eq!((found.id.as_str(), found.code.as_str()), ("p-1", "PER-0203"));
    assert_eq!(found.event.unwrap().0, 2);
    let location = found.location.as_deref().unwrap();
    assert!(location.contains("preflight.rs:"), "{location}");
    assert!(found.report.contains("\"pick\"") && found.report.contains("\"pack\""), "{}", found.report);
    let words = report.to_string();
    assert!(words.ends_with("3 open: 0 compatible, 3 incompatible, 0 without code"), "{words}");
    // The check blocks no instance, and all continue with the code that runs.
    let client = shop.runtime.client();
    let blocked = Filter::new().blocked(true);
    assert_eq!(client.list(blocked, None, 10).await.unwrap().rows.len(), 0);
    client.raise_event("p-1", GO, true).await.unwrap();
    assert_eq!(client.result("p-1").await.unwrap().to_text(), "book");
}

#[tokio::test]
async fn p8_preflight_counts_who_needs_a_version_that_is_missing() {
    let shop = shop().await;
    let later = StartOptions::default().delay(Duration::from_secs(3_600));
    shop.runtime.client().start_with("parcel", "p-4", "book", later).await.unwrap();
    let report = check(Runtime::open(&shop.url).register(tomorrow::parcel_2)).await;
    assert_eq!((report.checked, report.missing.len()), (4, 1));
    let missing = &report.missing[0];
    assert_eq!((missing.name.as_str(), missing.version.as_str()), ("parcel", "1.0.0"));
    assert_eq!(missing.ids[..3], ["p-1", "p-2", "p-3"]);
    let words = report.to_string();
    assert!(words.starts_with("PER-0301 missing code: parcel 1.0.0 is not registered; "), "{words}");
    let report = check(Runtime::open(&shop.url)).await;
    assert_eq!((report.checked, report.compatible), (4, 0), "one that has not begun needs its code, too");
}

#[tokio::test]
async fn p8_preflight_survives_code_that_panics_or_never_rests() {
    let shop = shop().await;
    let report = check(Runtime::open(&shop.url).register(tomorrow::clumsy)).await;
    assert_eq!(report.incompatible.len(), 3);
    assert_eq!(report.incompatible[0].code, "PER-0201");
    assert!(report.incompatible[0].reason.contains("dropped it"));
    let options = RuntimeOptions { turn_deadline: Duration::from_millis(50), ..RuntimeOptions::default() };
    let report = check(Runtime::open(&shop.url).options(options).register(tomorrow::restless)).await;
    let codes: Vec<&str> = report.incompatible.iter().map(|found| found.code.as_str()).collect();
    assert_eq!(codes, ["PER-0205"; 3]);
}

#[tokio::test]
async fn p8_preflight_reports_a_bad_registration_or_store_as_an_error() {
    let twice = Runtime::open("sqlite:nowhere.db").register(parcel).register(parcel).preflight().await;
    assert!(twice.unwrap_err().to_string().starts_with("PER-0603"));
    let place = Place::new();
    let checked = Runtime::open(place.url()).register(parcel).preflight().await;
    assert!(checked.is_err(), "a preflight creates no store");
    assert!(!place.exists());
}

#[tokio::test]
async fn p8_preflight_needs_no_state_of_activities() {
    struct Pool;
    #[activity(name = "pick", state(Pool))]
    async fn pick_with_pool(_: ActivityContext, item: String) -> Result<String, String> {
        Ok(item)
    }
    let shop = shop().await;
    let report = check(Runtime::open(&shop.url).register(parcel).register(pick_with_pool)).await;
    assert_eq!((report.checked, report.compatible), (3, 3));
    shop.runtime.shutdown().await.unwrap();
}

//! Filters: built from functions and values, and read from text.

use perennial::prelude::*;
use perennial::{ErrorCode, Filter, Timestamp, attribute};
use serde::Serialize;

use super::support::Place;

#[orchestration]
async fn order(ctx: OrchestrationContext, customer: u32) -> Result<u32, String> {
    ctx.set_attribute("customer", customer);
    ctx.set_attribute("city", if customer == 7 { "New York" } else { "Oslo" });
    Ok(customer)
}

#[orchestration]
async fn other(_: OrchestrationContext) -> Result<(), String> {
    Ok(())
}

fn read(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_filter_is_read_from_text_and_written_as_the_same_text() {
    let key = "01890a5d-ac96-774b-bcce-b302099a8057";
    for text in [
        "",
        "status=running,failed name=order version=1.2.0 id_prefix=order- blocked=true paused=false",
        "attr.customer=7 attr.total>=99.5 attr.total<200 attr.city^=Os attr.list=[1,\"a b\"] attr.n<=3 attr.m>-1",
        "name=\"my order\" attr.city=\"New York\" attr.city^=\"New Y\"",
        "created_from=2026-11-16T00:00:00Z created_before=2026-11-17T12:30:00.500Z ended_before=1970-01-01T00:00:01Z",
        "name=[draft] version={1} id_prefix={order} attr.city^=[Os attr.city^={",
        "order=newest",
        &format!("parent={key}"),
    ] {
        assert_eq!(read(text).to_string(), text);
    }
    assert_eq!(
        read("  status=running \t status=failed,running\n"),
        Filter::new().statuses([Status::Running, Status::Failed])
    );
    assert_eq!(read("created_from_ms=5"), Filter::new().created_from(Timestamp::from_millis(5)));
    assert_eq!(
        read("created_from=1970-01-02"),
        Filter::new().created_from(Timestamp::from_millis(86_400_000))
    );
    assert_eq!(read("attr.city=Oslo"), Filter::new().attribute("city", "Oslo"));
    assert_eq!(read("order=oldest"), Filter::new());
}

#[test]
fn what_is_not_a_filter_is_refused_with_the_term() {
    for (text, words) in [
        ("asleep", "\"asleep\" is not FIELD=VALUE"),
        ("name=a state=running", "\"state=running\": the fields are status, name"),
        ("status=asleep", "the statuses are pending, running"),
        ("blocked=maybe", "`true` or `false`"),
        ("parent=x", "this is not a key"),
        ("created_from=yesterday", "a time is written as"),
        ("order=random", "`newest` or `oldest`"),
        ("name>order", "only attributes can be compared"),
        ("name=\"open", "the value is not JSON"),
        ("name=\"a\"b", "is not FIELD=VALUE"),
        ("attr.list=[1", "the value is not JSON"),
        ("=5", "is not FIELD=VALUE"),
        ("name =5", "is not FIELD=VALUE"),
    ] {
        let error = text.parse::<Filter>().expect_err(text);
        assert_eq!(error.code(), ErrorCode::BadFilter);
        let said = error.to_string();
        assert!(said.starts_with("PER-0640 bad filter: ") && said.contains(words), "{text}: {said}");
    }
}

#[tokio::test]
async fn filters_take_functions_descriptions_names_and_values() {
    let place = Place::new();
    let runtime = Runtime::open(place.url()).register(order).register(other).start().await.unwrap();
    let client = runtime.client();
    for customer in [7, 8] {
        client.start(order, &format!("order-{customer}"), customer).await.unwrap().result().await.unwrap();
    }
    client.start(other, "other-1", ()).await.unwrap().result().await.unwrap();
    let described: Orchestration<u32, u32, String> = Orchestration::named("order");
    for (filter, expected) in [
        (Filter::new(), vec!["order-7", "order-8", "other-1"]),
        (Filter::new().orchestration(order), vec!["order-7", "order-8"]),
        (Filter::new().orchestration(other), vec!["other-1"]),
        (Filter::new().orchestration(described), vec!["order-7", "order-8"]),
        (Filter::new().orchestration("other"), vec!["other-1"]),
        (Filter::new().orchestration(order).newest_first(true), vec!["order-8", "order-7"]),
        (Filter::new().attribute("customer", 7), vec!["order-7"]),
        (Filter::new().attribute("customer", 7.0), vec!["order-7"]),
        (read("attr.city=\"New York\""), vec!["order-7"]),
        (read("attr.city^=Os name=order"), vec!["order-8"]),
        (Filter::new().condition(attribute("customer").at_most(7)), vec!["order-7"]),
        (Filter::new().created_before(Timestamp::UNIX_EPOCH), vec![]),
        (Filter::new().created_from(Timestamp::UNIX_EPOCH).status(Status::Failed), vec![]),
    ] {
        let rows = client.list(filter.clone(), None, 10).await.unwrap().rows;
        assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), expected, "{filter}");
    }
    runtime.shutdown().await.unwrap();
}

/// A value that JSON cannot hold.
#[derive(Serialize)]
struct Grid(std::collections::BTreeMap<(u8, u8), u8>);

#[tokio::test]
async fn a_value_that_cannot_be_written_is_reported_by_the_call() {
    let runtime = Runtime::open("memory:").start().await.unwrap();
    let filter = Filter::new().attribute("grid", Grid([((1, 2), 3)].into()));
    let error = runtime.client().count(filter).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unwritable);
    let words = "PER-0626 unwritable: a value of the filter cannot be written as JSON: attribute \"grid\": key must be a string";
    assert!(error.to_string().starts_with(words), "{error}");
    runtime.shutdown().await.unwrap();
}

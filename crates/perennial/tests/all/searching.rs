//! S15 to S17 end to end: attributes that orchestrations set are found by value, prefix and range, from this process and
//! from others, after restarts, and by everything that takes a filter.

use perennial::prelude::*;
use perennial::{Action, Condition, Filter, Prune, attribute};

use super::support::Place;

const MOVED: ExternalEvent<String> = ExternalEvent::named("moved");

/// Lives in a city until it is told to stop, by an empty name.
#[orchestration]
async fn resident(ctx: OrchestrationContext, born: i64) -> Result<i64, String> {
    ctx.set_attribute("born", born);
    loop {
        let city = ctx.schedule_wait(MOVED).await;
        if city.is_empty() {
            return Ok(born);
        }
        ctx.set_attribute("city", city);
    }
}

async fn found(client: &Client, conditions: &[Condition]) -> Vec<String> {
    let filter = Filter::new().conditions(conditions.to_vec());
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let page = client.list(filter.clone(), after, 2).await.unwrap();
        ids.extend(page.rows.into_iter().map(|row| row.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let count = client.count(filter).await.unwrap();
    assert_eq!((count.rows, count.more), (ids.len() as u64, false));
    ids
}

/// Once an instance has the city.
async fn moves(client: &Client, id: &str, city: &str) {
    client.raise_event(id, MOVED, city.to_owned()).await.unwrap();
    super::support::until(client, id, |status| {
        status.attributes.get("city").is_some_and(|value| value.to_text() == city)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s16_attributes_are_found_by_prefix_and_range_over_restarts() {
    let place = Place::new();
    let open = async || Runtime::open(place.url()).register(resident).start().await.unwrap();
    let runtime = open().await;
    let client = runtime.client();
    for (id, born) in [("ada", 1815), ("kong", -551), ("hypatia", 355), ("edsger", 1930)] {
        client.start(resident, id, born).await.unwrap();
    }
    for (id, city) in
        [("ada", "London"), ("kong", "曲阜"), ("hypatia", "Alexandria"), ("edsger", "Rotterdam")]
    {
        moves(&client, id, city).await;
    }
    runtime.shutdown().await.unwrap();

    let runtime = open().await;
    let client = runtime.client();
    let (born, city) = (|| attribute("born"), || attribute("city"));
    assert_eq!(found(&client, &[born().less_than(355)]).await, ["kong"]);
    assert_eq!(found(&client, &[born().at_least(355), born().at_most(1815.0)]).await, ["ada", "hypatia"]);
    assert_eq!(found(&client, &[city().starts_with("曲")]).await, ["kong"]);
    assert_eq!(found(&client, &[city().greater_than("London")]).await, ["kong", "edsger"]);
    assert_eq!(found(&client, &["born>1900".parse().unwrap(), city().starts_with("Rot")]).await, ["edsger"]);
    // A changed attribute is found by its new value, also from another process.
    moves(&client, "edsger", "Austin").await;
    let guest = place.guest();
    for client in [&client, &guest] {
        assert_eq!(found(client, &[city().starts_with("Rot")]).await, [""; 0]);
        assert_eq!(found(client, &[city().starts_with("A")]).await, ["hypatia", "edsger"]);
    }
    // And by everything that takes a filter.
    let filter = |condition| Filter::new().condition(condition);
    let stop = Action::Raise { event: "moved".to_owned(), payload: "".into() };
    let told = client.for_each(filter(city().starts_with("A")), stop, |_| ()).await.unwrap();
    assert_eq!((told.seen, told.done), (2, 2));
    for id in ["hypatia", "edsger"] {
        client.wait(id).await.unwrap();
    }
    let pruned = client.prune(Prune::all().only(filter(born().less_than(1900))), |_| ()).await.unwrap();
    assert_eq!(pruned.done, 1);
    runtime.shutdown().await.unwrap();
    let runtime = open().await;
    assert_eq!(found(&runtime.client(), &[born().greater_than(-1_000)]).await, ["ada", "kong", "edsger"]);
    runtime.shutdown().await.unwrap();
}

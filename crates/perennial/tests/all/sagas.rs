//! P2: sagas beside the same orchestrations done by hand. They decide the same, in fewer lines.

use perennial::prelude::*;
use perennial_testkit::TestEnvironment;

#[activity]
async fn book(_: ActivityContext, what: String) -> Result<String, String> {
    if what == "car" { Err("no cars left".to_owned()) } else { Ok(format!("{what}-7")) }
}

#[activity]
async fn unbook(_: ActivityContext, booking: String) -> Result<(), String> {
    if booking == "hotel-7" { Err(format!("{booking} cannot be given back")) } else { Ok(()) }
}

#[activity]
async fn charge(_: ActivityContext, cents: u64) -> Result<u64, String> {
    Ok(cents)
}

#[activity]
async fn refund(_: ActivityContext, _cents: u64) -> Result<(), String> {
    Ok(())
}

// ---- one kind of step -----------------------------------------------------------------------------------------------

#[orchestration]
async fn trip(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    let saga = Saga::new(&ctx);
    saga.run(async {
        let mut bookings = Vec::new();
        for what in ["flight", "hotel", "car"] {
            let booking = ctx.schedule_activity(book, what.to_owned()).await?;
            saga.undo(unbook, booking.clone());
            bookings.push(booking);
        }
        Ok(bookings)
    })
    .await
}

#[orchestration]
async fn trip_by_hand(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    let mut bookings = Vec::new();
    for what in ["flight", "hotel", "car"] {
        match ctx.schedule_activity(book, what.to_owned()).await {
            Ok(booking) => bookings.push(booking),
            Err(error) => {
                while let Some(booking) = bookings.pop() {
                    if let Err(failure) = ctx.schedule_activity(unbook, booking).await {
                        ctx.trace_error(format!("a step could not be undone: {failure}"));
                    }
                }
                return Err(error.into());
            }
        }
    }
    Ok(bookings)
}

// ---- different kinds of steps ---------------------------------------------------------------------------------------

#[orchestration]
async fn sale(ctx: OrchestrationContext) -> Result<(), String> {
    let saga = Saga::new(&ctx);
    saga.run(async {
        saga.undo(unbook, ctx.schedule_activity(book, "flight".to_owned()).await?);
        saga.undo(refund, ctx.schedule_activity(charge, 900).await?);
        ctx.schedule_activity(book, "car".to_owned()).await?;
        Ok(())
    })
    .await
}

#[orchestration]
async fn sale_by_hand(ctx: OrchestrationContext) -> Result<(), String> {
    let flight = ctx.schedule_activity(book, "flight".to_owned()).await?;
    let unbook_flight = || async {
        if let Err(failure) = ctx.schedule_activity(unbook, flight.clone()).await {
            ctx.trace_error(format!("a step could not be undone: {failure}"));
        }
    };
    let paid = match ctx.schedule_activity(charge, 900).await {
        Ok(paid) => paid,
        Err(error) => {
            unbook_flight().await;
            return Err(error.into());
        }
    };
    if let Err(error) = ctx.schedule_activity(book, "car".to_owned()).await {
        if let Err(failure) = ctx.schedule_activity(refund, paid).await {
            ctx.trace_error(format!("a step could not be undone: {failure}"));
        }
        unbook_flight().await;
        return Err(error.into());
    }
    Ok(())
}

// ---- a saga that is cancelled ---------------------------------------------------------------------------------------

#[orchestration]
async fn cancellable(ctx: OrchestrationContext) -> Result<(), String> {
    let saga = Saga::new(&ctx);
    let steps = saga.run(async {
        saga.undo(unbook, ctx.schedule_activity(book, "flight".to_owned()).await?);
        ctx.schedule_wait("paid").await;
        Ok(())
    });
    // Boxed, so that the steps are dropped, and their open calls cancelled, before they are undone.
    match ctx.select2(Box::pin(steps), ctx.cancelled()).await {
        Either::First(outcome) => outcome,
        Either::Second(_) => {
            saga.compensate().await;
            ctx.end_cancelled(()).await
        }
    }
}

fn environment() -> TestEnvironment {
    let env =
        TestEnvironment::new().register(trip).register(trip_by_hand).register(sale).register(sale_by_hand);
    env.register(cancellable).register(book).register(unbook).register(charge).register(refund)
}

/// The lines of a function in this file, from its signature to its closing brace.
fn lines_of(function: &str) -> usize {
    let signature = format!("async fn {function}(");
    let mut lines = include_str!("sagas.rs").lines().skip_while(|line| !line.starts_with(&signature));
    2 + lines.by_ref().skip(1).take_while(|line| *line != "}").count()
}

#[test]
fn p2_a_saga_decides_as_code_by_hand_does_and_needs_fewer_lines() {
    let mut env = environment();
    assert!(env.run(trip, ()).is_err() && env.run(sale, ()).is_err());
    for (id, name) in [("a", "trip"), ("b", "trip_by_hand"), ("c", "sale"), ("d", "sale_by_hand")] {
        let run = env.start(Orchestration::<(), Payload>::named(name), id, ());
        assert!(env.result(&run).unwrap_err().to_string().contains("no cars left"));
    }
    let scheduled = |id: &str| {
        let history = env.history(id);
        let lines = history.history().flatten().map(|event| event.summary());
        lines.filter(|line| line.starts_with("ActivityScheduled")).collect()
    };
    let [trip, trip_by_hand, sale, sale_by_hand]: [Vec<String>; 4] = ["a", "b", "c", "d"].map(scheduled);
    assert_eq!(trip.len(), 5, "three steps, two of them undone: {trip:?}");
    assert_eq!((trip, sale), (trip_by_hand, sale_by_hand));

    assert_eq!((lines_of("trip"), lines_of("trip_by_hand")), (13, 17));
    assert_eq!((lines_of("sale"), lines_of("sale_by_hand")), (10, 23));
}

#[tokio::test]
async fn p2_a_saga_beside_cancelled_undoes_its_steps_when_it_is_cancelled() {
    let runtime =
        Runtime::open("memory:").register(cancellable).register(book).register(unbook).start().await.unwrap();
    let client = runtime.client();
    let run = client.start(cancellable, "c", ()).await.unwrap();
    while !client.history("c").await.unwrap().flatten().any(|event| event.summary().contains("\"paid\"")) {
        tokio::task::yield_now().await;
    }
    client.cancel("c", "no money").await.unwrap();
    let ended = run.result().await.unwrap_err();
    assert!(matches!(&ended, RunError::Cancelled { reason, .. } if reason == "no money"), "{ended:?}");
    let history = client.history("c").await.unwrap();
    let decided: Vec<String> = history.flatten().map(|event| event.summary()).collect();
    let place = |what: &str| {
        decided.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{decided:#?}"))
    };
    assert!(place("\"unbook\" \"flight-7\"") < place("ExternalUnsubscribed"), "{decided:#?}");
    assert!(place("ExternalUnsubscribed") < place("ActivityCompleted of 6"), "{decided:#?}");
    runtime.shutdown().await.unwrap();
}

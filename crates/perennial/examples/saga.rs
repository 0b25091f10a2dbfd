//! When a later step fails, what was done before is undone, in reverse; even if the process dies half-way.

use perennial::prelude::*;

#[activity]
async fn book(_: ActivityContext, what: String) -> Result<String, String> {
    if what == "car" { Err("no cars left".to_owned()) } else { Ok(format!("{what}-7")) }
}

#[activity]
async fn unbook(_: ActivityContext, booking: String) -> Result<(), String> {
    println!("undone: {booking}");
    Ok(())
}

async fn book_all(ctx: &OrchestrationContext, saga: &mut Saga) -> Result<Vec<String>, String> {
    let mut bookings = Vec::new();
    for what in ["flight", "hotel", "car"] {
        let booking = ctx.schedule_activity(book, what.to_owned()).await?;
        let (undo_ctx, undo) = (ctx.clone(), booking.clone());
        saga.add(move || async move { undo_ctx.schedule_activity(unbook, undo).await.map_err(String::from) });
        bookings.push(booking);
    }
    Ok(bookings)
}

#[orchestration]
async fn trip(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    let mut saga = Saga::new();
    match book_all(&ctx, &mut saga).await {
        Ok(bookings) => Ok(bookings),
        Err(error) => {
            let steps = saga.len();
            let failures = saga.compensate().await;
            Err(format!("{error}; {} of {steps} steps undone", steps - failures.len()))
        }
    }
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(trip).register(book).register(unbook).start().await?;
    match runtime.client().start(trip, "trip-1", ()).await?.result().await {
        Ok(bookings) => println!("booked: {bookings:?}"),
        Err(RunError::Failed { error, .. }) => println!("not booked: {error}"),
        Err(error) => return Err(error.into()),
    }
    runtime.shutdown().await
}

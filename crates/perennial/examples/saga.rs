//! If a later step fails, completed steps are undone in reverse order, even if the process dies in between.

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

//! A worker process is killed repeatedly, and every order is still completed.
//!
//! `cargo run --release -p perennial --example survive`. The program starts itself as a worker on an embedded
//! SQLite file, starts orders from outside, kills the worker (like `kill -9`) while they run, and starts it
//! again. At the end it shows the history of one order and that none was lost.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use perennial::Filter;
use perennial::prelude::*;

const ORDERS: usize = 200;
const KILLS: usize = 5;

async fn order(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    let reserved = ctx.schedule_activity("reserve", item).await?;
    ctx.schedule_timer(Duration::from_millis(1_200)).await;
    let parcels = ctx.join((0..3).map(|_| ctx.schedule_activity("pack", reserved.clone()))).await;
    let packed = parcels.into_iter().collect::<Result<Vec<String>, String>>()?;
    ctx.schedule_activity("ship", packed.join(", ")).await
}

/// Stands in for a call to another system.
async fn work(_: ActivityContext, input: String) -> Result<String, String> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(input)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1) {
        Some(url) => worker(&url).await,
        None => director().await,
    }
}

/// Runs orders until it is killed.
async fn worker(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let _runtime = Runtime::open(url)
        .orchestration("order", "1.0.0", order)
        .activity("reserve", work)
        .activity("pack", work)
        .activity("ship", work)
        .start()
        .await?;
    std::future::pending().await
}

/// Starts orders, kills the worker, and checks the results.
async fn director() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite:{}", directory.path().join("orders.db").display());
    let begun = Instant::now();
    let mut worker = start_worker(&url)?;
    let client = connect(&url, directory.path()).await?;
    for number in 1..=ORDERS {
        let options = StartOptions::default().version("1.0.0");
        client.start_with("order", &format!("order-{number}"), "a rose", options).await?;
    }
    println!("started {ORDERS} orders");
    for kill in 1..=KILLS {
        tokio::time::sleep(Duration::from_millis(250)).await;
        worker.kill()?;
        worker.wait()?;
        println!("killed the worker ({kill} of {KILLS}); {} orders are done", completed(&client).await?);
        worker = start_worker(&url)?;
    }
    for number in 1..=ORDERS {
        client.result(&format!("order-{number}")).await?;
    }
    println!("\nhow order-1 went:");
    for turn in &client.history("order-1").await? {
        for event in &turn.events {
            println!("  turn {:>2}  event {:>2}  {}", turn.number, event.id, event.summary());
        }
    }
    let done = completed(&client).await?;
    worker.kill()?;
    worker.wait()?;
    println!(
        "\nstarted {ORDERS}, completed {done}, lost {}, kills {KILLS}, {:.1?}",
        ORDERS - done,
        begun.elapsed()
    );
    Ok(())
}

fn start_worker(url: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(url).spawn()
}

/// Opens the store beside the worker, once the worker has created it.
async fn connect(url: &str, directory: &Path) -> Result<Client, Box<dyn std::error::Error>> {
    while !directory.join("orders.db").exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(Client::open(url)?)
}

async fn completed(client: &Client) -> Result<usize, Box<dyn std::error::Error>> {
    let filter = Filter::new().status(Status::Completed);
    Ok(client.list(filter, None, ORDERS).await?.rows.len())
}

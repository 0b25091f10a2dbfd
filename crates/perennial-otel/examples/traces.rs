//! Sends the trace of an order to a collector: `cargo run -p perennial-otel --example traces`.
//!
//! The collector is http://localhost:4318, unless OTEL_EXPORTER_OTLP_ENDPOINT names another one.

use perennial::prelude::*;
use perennial_otel::{OtlpOptions, Traces};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[activity]
async fn charge(ctx: ActivityContext, cents: u64) -> Result<String, String> {
    // A span of the activity's own code is a child of the attempt.
    let call = tracing::info_span!("call bank", otel.kind = "client", cents);
    async { tokio::time::sleep(Duration::from_millis(20)).await }.instrument(call).await;
    if ctx.attempt() == 1 {
        Err("the bank did not answer".to_owned())
    } else {
        Ok(format!("receipt-{cents}"))
    }
}

#[orchestration]
async fn ship(_ctx: OrchestrationContext, parcel: String) -> Result<String, String> {
    Ok(format!("{parcel} shipped"))
}

#[orchestration]
async fn order(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    let retry = RetryPolicy::fixed(Duration::from_millis(50)).attempts(3);
    let receipt = ctx.schedule_activity(charge, cents).retry(retry).await?;
    ctx.schedule_wait("packed").await;
    Ok(ctx.schedule_sub_orchestration(ship, receipt).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let traces = Traces::otlp(OtlpOptions::default().service_name("shop"))?;
    tracing_subscriber::registry().with(traces.layer()).init();
    let runtime = Runtime::open("memory:").register(charge).register(ship).register(order).start().await?;
    let client = runtime.client();
    // Whatever starts within a span belongs to it, such as an order to the request that brought it.
    let request = tracing::info_span!("request", otel.name = "POST /orders", otel.kind = "server");
    let work = async {
        let run = client.start(order, "order-1", 500).await?;
        client.raise_event("order-1", "packed", "yes").await?;
        Ok::<_, Box<dyn std::error::Error>>(run.result().await?)
    };
    println!("{}", work.instrument(request).await?);
    runtime.shutdown().await?;
    traces.shutdown();
    Ok(())
}

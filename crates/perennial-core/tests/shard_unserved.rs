//! A node says what it has nobody for (G22). Alone in its file: what is logged depends on who else runs in the process.

mod log;

use std::sync::Arc;

use log::Log;
use perennial_core::shard::ShardOptions;
use perennial_core::{Handlers, OrchestrationContext, Payload, ShardId};
use perennial_testkit::Desk;

async fn calls(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let called = ctx.schedule_activity("unknown", ()).await;
    called.map_err(|failure| Payload::from(format!("{failure:?}")))
}

#[test]
fn g22_each_shard_says_once_that_this_node_cannot_run_an_activity() {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let served = Some(Arc::new(Desk::served(&["known"], &[])));
        let handlers = Handlers::default().with("calls", Desk::VERSION, calls);
        let mut desk = Desk::with_options(handlers, ShardOptions { served, ..ShardOptions::default() });
        desk.start("calls", "a", ());
        desk.settle();
        assert!(log.take()[0].starts_with("WARN PER-0409 not served here"));
        let mut others = (0..).map(|number| format!("b-{number}"));
        let neighbour = others.find(|id| ShardId::of(id) == ShardId::of("a")).unwrap();
        desk.start("calls", &neighbour, ());
        desk.settle();
        assert_eq!(desk.tasks(&neighbour), ["unknown 1 queued"]);
        assert_eq!(log.take(), [""; 0]);
    });
}

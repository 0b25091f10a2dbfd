//! A node says what it has nobody for (G22). Alone in its file: what is logged depends on who else runs in the process.

use std::sync::Arc;

use crate::log::Log;
use perennial_core::shard::ShardOptions;
use perennial_core::{Handlers, OrchestrationContext, Payload, ShardId};
use perennial_testkit::ManualNode;

async fn calls(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let called = ctx.schedule_activity("unknown", ()).await;
    called.map_err(|failure| Payload::from(format!("{failure:?}")))
}

#[test]
fn g22_each_shard_says_once_that_this_node_cannot_run_an_activity() {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let served = Some(Arc::new(ManualNode::served(&["known"], &[])));
        let handlers = Handlers::default().with("calls", ManualNode::VERSION, calls);
        let mut node = ManualNode::with_options(handlers, ShardOptions { served, ..ShardOptions::default() });
        node.start("calls", "a", ());
        node.settle();
        assert!(log.take_warnings()[0].starts_with("WARN activity not served here"));
        let mut others = (0..).map(|number| format!("b-{number}"));
        let neighbour = others.find(|id| ShardId::of(id) == ShardId::of("a")).unwrap();
        node.start("calls", &neighbour, ());
        node.settle();
        assert_eq!(node.tasks(&neighbour), ["unknown 1 queued"]);
        assert_eq!(log.take_warnings(), [""; 0]);
    });
}

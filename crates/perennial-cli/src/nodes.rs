//! `perennial nodes`: the processes that work on a store.

use perennial::Client;
use perennial::client::NodeView;

use crate::exit::Failure;
use crate::output::{columns, line, moment, object, table};

pub(crate) async fn run(client: &Client, as_json: bool) -> Result<(), Failure> {
    let nodes = client.nodes().await?;
    if as_json {
        return nodes.iter().try_for_each(object);
    }
    if nodes.is_empty() {
        return line("no runtime is running on this store");
    }
    let names =
        ["node", "host", ">process", "state", ">shards", ">lanes", ">slots", "since", "version", "tags"];
    let mut rows = columns(&names);
    for node in &nodes {
        rows.add_row([
            node.name.clone(),
            node.host.clone(),
            node.process.to_string(),
            state(node).to_owned(),
            node.shards.to_string(),
            node.lanes.to_string(),
            node.slots.to_string(),
            moment(node.since.as_millis()),
            node.version.clone(),
            node.tags.join(","),
        ]);
    }
    table(&rows)
}

fn state(node: &NodeView) -> &'static str {
    match (node.is_live, node.owns_shards) {
        (false, _) => "expired",
        (true, true) => "live",
        (true, false) => "worker",
    }
}

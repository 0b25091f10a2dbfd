//! What an instance returns cannot be told by the name of its orchestration.
//~ a name alone does not say what the orchestration returns
//~ pass the function or an `Orchestration`; `Client::result` gives the result as a payload

use perennial::prelude::*;

async fn look(client: Client) {
    let _ = client.run("checkout", "order-1");
}

fn main() {
    let _ = look;
}

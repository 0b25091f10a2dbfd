//! An orchestration is started by name with an input that only a typed call takes.

use perennial::prelude::*;

async fn by_name(client: &Client) -> perennial::Result<()> {
    client.start("count", "c-1", 5).await?;
    Ok(())
}

fn main() {}

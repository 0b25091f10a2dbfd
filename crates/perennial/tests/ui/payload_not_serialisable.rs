//! An input and a result that cannot be written as JSON.
//~ `Order` cannot be written into a history
//~ `Receipt` cannot be written into a history
//~ derive `serde::Serialize` and `serde::Deserialize` for it

use perennial::prelude::*;

struct Order;

struct Receipt;

#[activity]
async fn charge(_: ActivityContext, order: Order) -> Result<Receipt, String> {
    let Order = order;
    Ok(Receipt)
}

fn main() {}

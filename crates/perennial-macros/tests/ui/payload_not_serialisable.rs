//! An input and a result that cannot be written as JSON.

use perennial::prelude::*;

struct Order;

struct Receipt;

#[activity]
async fn charge(_: ActivityContext, order: Order) -> Result<Receipt, String> {
    let Order = order;
    Ok(Receipt)
}

fn main() {}

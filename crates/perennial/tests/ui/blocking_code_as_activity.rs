//! A closure that gives no future is registered as one that does.
//~ this is not the code of an activity
//~ without a future, use `blocking_activity`

use perennial::prelude::*;

fn main() {
    let _ = Runtime::open("memory:").activity("length", |_: ActivityContext, text: String| Ok::<_, String>(text.len()));
}

//! Closures, state and visibility need no more than what is written here.

use perennial::prelude::*;

mod inner {
    use super::*;

    /// Documented, public, renamed.
    #[activity(name = "greet loudly", retry = 3, timeout = "30s", tag = "gpu", state(String))]
    pub async fn greet(ctx: ActivityContext, name: String) -> Result<String, String> {
        Ok(format!("{}, {name}!", ctx.state::<String>()))
    }

    #[activity(error = "message")]
    pub(crate) async fn parse(_: ActivityContext, text: String) -> Result<i64, std::num::ParseIntError> {
        text.parse()
    }
}

const CHARGE: Activity<u64, String> = Activity::named("charge");

#[orchestration(name = "hello", version = "2.1.0", uses(inner::greet, inner::parse, CHARGE, "shout", greeting))]
async fn greeting(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    let number = ctx.schedule_activity(inner::parse, "5".to_owned()).await;
    let _: Result<String, String> = ctx.schedule_activity(inner::greet, name).await.map_err(String::from);
    Ok(number.map_err(String::from)?.to_string())
}

fn main() {
    let _ = Runtime::open("memory:")
        .register(greeting)
        .register(inner::parse)
        .register(inner::greet)
        .state("Hello".to_owned())
        .activity("shout", |_: ActivityContext, text: String| async move { Ok::<_, String>(text) })
        .orchestration("loud", "1.0.0", |ctx: OrchestrationContext, text: String| async move {
            ctx.schedule_activity("shout", text).await
        });
}

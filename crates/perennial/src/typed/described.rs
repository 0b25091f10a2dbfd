//! Activities, orchestrations, queries and updates identified by name and types.

use std::fmt;
use std::marker::PhantomData;

macro_rules! described {
    ($(
        $(#[$documentation:meta])*
        $name:ident<$($type:ident $(= $default:ty)?),*> as $types:ty;
    )*) => {$(
        $(#[$documentation])*
        pub struct $name<$($type $(= $default)?),*> {
            name: &'static str,
            types: PhantomData<$types>,
        }

        impl<$($type),*> $name<$($type),*> {
            /// Refers to the given name.
            pub const fn named(name: &'static str) -> Self {
                $name { name, types: PhantomData }
            }

            /// The name of the target.
            pub const fn name(&self) -> &'static str {
                self.name
            }
        }

        impl<$($type),*> Clone for $name<$($type),*> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($type),*> Copy for $name<$($type),*> {}

        impl<$($type),*> fmt::Debug for $name<$($type),*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.name).finish()
            }
        }
    )*};
}

described! {
    /// An activity, identified by its name and types.
    ///
    /// ```
    /// use perennial::Activity;
    ///
    /// const CHARGE: Activity<u64, String> = Activity::named("charge");
    /// assert_eq!(CHARGE.name(), "charge");
    /// ```
    Activity<I, O, E = String> as fn(I) -> Result<O, E>;

    /// An orchestration, identified by its name and types.
    ///
    /// ```
    /// use perennial::Orchestration;
    ///
    /// const CHECKOUT: Orchestration<u64, String> = Orchestration::named("checkout");
    /// assert_eq!(CHECKOUT.name(), "checkout");
    /// ```
    Orchestration<I, O, E = String> as fn(I) -> Result<O, E>;

    /// A query, identified by its name and types: input and answer.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const DONE: Query<(), u32> = Query::named("done");
    ///
    /// #[orchestration]
    /// async fn count(ctx: OrchestrationContext, upto: u32) -> Result<(), String> {
    ///     let counted = ctx.state(0);
    ///     ctx.on_query(DONE, &counted, |counted, ()| counted.read(|counted| *counted));
    ///     counted.update(|counted| *counted = upto);
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(count).start().await?;
    /// # let client = runtime.client();
    /// client.start(count, "count-1", 3).await?.result().await?;
    /// assert_eq!(client.query("count-1", DONE, ()).await?, 3);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    Query<I, O> as fn(I) -> O;

    /// An update, identified by its name and types: input, answer and error.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const WITHDRAW: Update<i64, i64> = Update::named("withdraw");
    ///
    /// #[orchestration]
    /// async fn account(ctx: OrchestrationContext, balance: i64) -> Result<i64, String> {
    ///     let balance = ctx.state(balance);
    ///     ctx.on_update(WITHDRAW, &balance, |balance, cents| async move {
    ///         Ok(balance.update(|balance| { *balance -= cents; *balance }))
    ///     })
    ///     .validate(|balance, cents| match balance.read(|balance| balance >= cents) {
    ///         true => Ok(()),
    ///         false => Err("not enough".to_owned()),
    ///     });
    ///     ctx.wait_until(&balance, |balance| *balance == 0).await;
    ///     Ok(0)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(account).start().await?;
    /// # let client = runtime.client();
    /// client.start(account, "ada", 100).await?;
    /// assert_eq!(client.update("ada", WITHDRAW, 70).await?, 30);
    /// match client.update("ada", WITHDRAW, 70).await {
    ///     Err(UpdateError::Refused { error: Some(error), .. }) => assert_eq!(error, "not enough"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # runtime.shutdown().await
    /// # }
    /// ```
    Update<I, O, E = String> as fn(I) -> Result<O, E>;
}

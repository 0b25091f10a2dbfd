//! What stands for an activity that is mocked.

use std::borrow::Cow;
use std::future::Future;

use perennial::ActivityContext;
use perennial::typed::{Activity, ActivityMeta, Call, by};

/// Something that stands for an activity from `A` to `Result<O, E>`: a function marked with `#[activity]`, an
/// [`Activity`], or a name (then the mock's own types count). Several arguments are a tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity that takes `{A}` and returns `Result<{O}, {E}>`",
    label = "not an activity with the types of the mock",
    note = "pass a function marked with `#[activity]` and a closure from its input (several arguments as a tuple) to \
            the `Result` that it returns, or a name"
)]
pub trait MockTarget<A, O, E, K> {
    /// The registered name.
    fn name(&self) -> Cow<'_, str>;
}

macro_rules! functions {
    ($($kind:ident($($type:ident),*) = $input:ty;)*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> MockTarget<$input, O, E, by::$kind> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut>,
            M: ActivityMeta,
            Fut: Future<Output = Result<O, E>>,
        {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }
        }
    )*};
}

functions! {
    Function0() = ();
    Function1(A) = A;
    Function2(A, B) = (A, B);
    Function3(A, B, C) = (A, B, C);
    Function4(A, B, C, D) = (A, B, C, D);
}

impl<A, O, E> MockTarget<A, O, E, by::Name> for &str {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<A, O, E> MockTarget<A, O, E, by::Described> for Activity<A, O, E> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Activity::name(self))
    }
}

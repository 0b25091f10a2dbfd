//! The `uses(…)` declarations of orchestrations.

use std::fmt;

use super::by;
use super::call::{ActivityMeta, Call, OrchestrationMeta};
use super::context::OrchestrationContext;
use super::described::{Activity, Orchestration};
use crate::activity::ActivityContext;

/// An activity or orchestration that `#[orchestration(uses(…))]` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub(crate) kind: UsedKind,
    pub(crate) name: &'static str,
}

/// The kind of a used name. A name in double quotes may be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedKind {
    Activity,
    Orchestration,
    Either,
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            UsedKind::Activity => "activity",
            UsedKind::Orchestration => "orchestration",
            UsedKind::Either => "activity or orchestration",
        };
        write!(f, "{kind} {:?}", self.name)
    }
}

/// Items that `uses(…)` accepts: a marked function, an [`Activity`], an [`Orchestration`] or a name.
#[diagnostic::on_unimplemented(
    message = "this is neither an activity nor an orchestration",
    label = "neither an activity nor an orchestration",
    note = "name functions marked with `#[activity]` or `#[orchestration]`, or write the registered name in double quotes"
)]
pub trait UseTarget<K> {
    /// The declared item.
    fn used(&self) -> Used;
}

/// Called by the attribute for each item of `uses(…)`.
#[doc(hidden)]
pub fn used<K>(target: &impl UseTarget<K>) -> Used {
    target.used()
}

macro_rules! functions {
    ($($way:ident($($type:ident),*);)*) => {$(
        impl<Fun, M, Fut $(, $type)*> UseTarget<(by::$way, ActivityContext, $($type,)*)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut>,
            M: ActivityMeta,
        {
            fn used(&self) -> Used {
                Used { kind: UsedKind::Activity, name: M::NAME }
            }
        }

        impl<Fun, M, Fut $(, $type)*> UseTarget<(by::$way, OrchestrationContext, $($type,)*)> for Fun
        where
            Fun: Fn(OrchestrationContext $(, $type)*) -> Call<M, Fut>,
            M: OrchestrationMeta,
        {
            fn used(&self) -> Used {
                Used { kind: UsedKind::Orchestration, name: M::NAME }
            }
        }
    )*};
}

functions! {
    Function0();
    Function1(A);
    Function2(A, B);
    Function3(A, B, C);
    Function4(A, B, C, D);
}

#[diagnostic::do_not_recommend]
impl<I, O, E> UseTarget<by::Described> for Activity<I, O, E> {
    fn used(&self) -> Used {
        Used { kind: UsedKind::Activity, name: self.name() }
    }
}

#[diagnostic::do_not_recommend]
impl<I, O, E> UseTarget<by::Described> for Orchestration<I, O, E> {
    fn used(&self) -> Used {
        Used { kind: UsedKind::Orchestration, name: self.name() }
    }
}

#[diagnostic::do_not_recommend]
impl UseTarget<by::Name> for &'static str {
    fn used(&self) -> Used {
        Used { kind: UsedKind::Either, name: self }
    }
}

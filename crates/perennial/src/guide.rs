//! The README and the guide, so that their code is compiled along with that of the documentation.
//!
//! One item per page: a block that does not compile is reported with the page's name and line.

macro_rules! pages {
    ($($name:ident = $path:literal;)*) => {$(
        #[doc = include_str!($path)]
        mod $name {}
    )*};
}

pages! {
    readme = "../../../README.md";
    crate_readme = "../README.md";
    introduction = "../../../docs/src/introduction.md";
    learn = "../../../docs/src/learn.md";
    awaiting = "../../../docs/src/awaiting.md";
    recipes = "../../../docs/src/recipes.md";
    operate = "../../../docs/src/operate.md";
    move_store = "../../../docs/src/move.md";
    watching = "../../../docs/src/watching.md";
    logs = "../../../docs/src/logs.md";
    metrics = "../../../docs/src/metrics.md";
    traces = "../../../docs/src/traces.md";
    test = "../../../docs/src/test.md";
    how_we_test = "../../../docs/src/how-we-test.md";
    versioning = "../../../docs/src/versioning.md";
    building = "../../../docs/src/building.md";
    errors = "../../../docs/src/errors.md";
    coming_from = "../../../docs/src/coming_from.md";
    own_store = "../../../docs/src/own_store.md";
}

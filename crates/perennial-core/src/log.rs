//! The targets under which Perennial writes to the log, through [`tracing`].
//!
//! The guide's page on logs lists targets, levels, messages and fields, and a check in this repository compares that
//! page with the code. Payloads are never logged: inputs, results and the errors of activities stay in the history.

/// Attempts of activities: failures, retries, exhausted retries. Also the target of the span around an attempt.
pub const ACTIVITY: &str = "perennial::activity";

/// Instances: started, continued, ended, blocked, paused, reset.
pub const INSTANCE: &str = "perennial::instance";

/// The node as a whole: sessions, shards gained and lost, clocks, threads.
pub const NODE: &str = "perennial::node";

/// The store: slow commits, failed calls, damaged rows.
pub const STORE: &str = "perennial::store";

/// The spans of traces: starts, turns, queries and updates. Nothing is logged there.
pub const TRACE: &str = "perennial::trace";

/// Log lines of orchestration code whose module cannot be derived from its type.
pub const ORCHESTRATION: &str = "perennial::orchestration";

/// The module that defines a function or closure, from its type name.
///
/// A function within another function is reported as `crate::module::outer`: filters match targets by prefix, so it is
/// still found under its module. Type names are not guaranteed to have this form; code with another form is logged
/// under [`ORCHESTRATION`].
pub fn module_of(type_name: &'static str) -> &'static str {
    // The function itself, without closures in it and without generic arguments.
    let end = type_name.find(['<', '{', '(', '&', ' ']).unwrap_or(type_name.len());
    let function = type_name[..end].trim_end_matches("::");
    function.rsplit_once("::").map_or(ORCHESTRATION, |(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::{ORCHESTRATION, module_of};

    fn name_of<T>(_: T) -> &'static str {
        std::any::type_name::<T>()
    }

    #[test]
    fn e19_functions_and_closures_belong_to_their_module() {
        assert_eq!(module_of(name_of(e19_functions_and_closures_belong_to_their_module)), module_path!());
        assert_eq!(module_of(name_of(|| || ())), module_path!());
        let outer = || || ();
        assert_eq!(module_of(name_of(outer())), module_path!());
        assert_eq!(module_of(name_of(name_of::<Vec<u8>>)), module_path!());
    }

    #[test]
    fn e19_a_type_without_a_module_is_logged_under_a_name_of_ours() {
        for type_name in ["<a::B as c::D>::run", "u8", "", "{{closure}}"] {
            assert_eq!(module_of(type_name), ORCHESTRATION, "{type_name}");
        }
    }
}

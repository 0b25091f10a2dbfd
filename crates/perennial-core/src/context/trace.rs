//! Log lines of orchestration code, under the target of the module that defines the code.
//!
//! `tracing` describes every place that logs by a static callsite, which its macros define in the crate that uses them.
//! The methods of a context are compiled here, so they create a callsite for each calling location, once, when it logs
//! for the first time. Callsites are never freed; there are as many as there are such locations in the program.

use std::collections::HashMap;
use std::fmt::Display;
use std::panic::Location;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use tracing_core::callsite::{self, Callsite};
use tracing_core::field::{FieldSet, Value};
use tracing_core::metadata::{Kind, LevelFilter};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Level, Metadata, dispatcher, identify_callsite};

use super::OrchestrationContext;
use crate::execution::state::Access;
use crate::history::{Started, TraceContext};

const FIELDS: &[&str] = &["message", "instance", "execution", "event", "trace_id"];

/// Identifies a callsite. The same code can be registered from several modules.
type Site = (&'static Location<'static>, Level, &'static str);

static CALLSITES: RwLock<Option<HashMap<Site, &'static CallerSite>>> = RwLock::new(None);

impl OrchestrationContext {
    /// Logs at level ERROR, under the target of the module that the orchestration is defined in.
    ///
    /// The line has the fields `instance`, `execution`, `event` (the last event before the step that logs) and, if the
    /// instance is traced, `trace_id`, and the file and line of the caller. It is written while the
    /// turn runs, and not when the turn is replayed. If a turn fails or its commit fails, the turn is taken again and
    /// the line is written again, so a line in the log does not prove that the turn was recorded.
    #[track_caller]
    pub fn trace_error(&self, message: impl Display) {
        self.trace(Level::ERROR, Location::caller(), &message);
    }

    /// Logs at level WARN. See [`trace_error`](Self::trace_error) for target, fields and when it is written.
    #[track_caller]
    pub fn trace_warn(&self, message: impl Display) {
        self.trace(Level::WARN, Location::caller(), &message);
    }

    /// Logs at level INFO. See [`trace_error`](Self::trace_error) for target, fields and when it is written.
    #[track_caller]
    pub fn trace_info(&self, message: impl Display) {
        self.trace(Level::INFO, Location::caller(), &message);
    }

    /// Logs at level DEBUG. See [`trace_error`](Self::trace_error) for target, fields and when it is written.
    #[track_caller]
    pub fn trace_debug(&self, message: impl Display) {
        self.trace(Level::DEBUG, Location::caller(), &message);
    }

    fn trace(&self, level: Level, caller: &'static Location<'static>, message: &dyn Display) {
        let is_off = level > LevelFilter::current();
        // The call is made even if the level is off: whether code may call its context must not depend on the log
        // level.
        let live = self.call(
            "trace",
            Access::Look,
            || None,
            |state| {
                let is_written = !state.replaying && !is_off;
                let place = || Place {
                    instance: Arc::clone(&state.instance),
                    started: Arc::clone(&state.started),
                    event: state.ledger.events(),
                };
                Ok(is_written.then(|| (place(), state.log_target)))
            },
        );
        if let Some((place, target)) = live {
            let site = CallerSite::of((caller, level, target));
            site.write(&place, message);
        }
    }
}

/// Where in its history an orchestration logs.
struct Place {
    instance: Arc<str>,
    started: Arc<Started>,
    /// The last event before the step that logs.
    event: u64,
}

/// A location in the user's code that logs through a context.
struct CallerSite {
    metadata: OnceLock<Metadata<'static>>,
    interest: AtomicU8,
}

const NEVER: u8 = 0;
const SOMETIMES: u8 = 1;
const ALWAYS: u8 = 2;

impl Callsite for CallerSite {
    fn set_interest(&self, interest: Interest) {
        let interest = match interest {
            interest if interest.is_never() => NEVER,
            interest if interest.is_always() => ALWAYS,
            _ => SOMETIMES,
        };
        self.interest.store(interest, Ordering::Relaxed);
    }

    fn metadata(&self) -> &Metadata<'_> {
        self.metadata.get().expect("set before the callsite is registered")
    }
}

impl CallerSite {
    fn of(place: Site) -> &'static CallerSite {
        let known = CALLSITES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = known.as_ref().and_then(|known| known.get(&place)) {
            return site;
        }
        drop(known);
        let (site, is_new) = {
            let mut known = CALLSITES.write().unwrap_or_else(PoisonError::into_inner);
            let known = known.get_or_insert_default();
            match known.get(&place) {
                Some(site) => (*site, false),
                None => {
                    let site = CallerSite::make(place);
                    known.insert(place, site);
                    (site, true)
                }
            }
        };
        if is_new {
            // Not under the lock: registering calls into subscribers, which may run arbitrary code.
            callsite::register(site);
        }
        site
    }

    fn make((caller, level, target): Site) -> &'static CallerSite {
        let interest = AtomicU8::new(SOMETIMES);
        let site: &'static CallerSite =
            Box::leak(Box::new(CallerSite { metadata: OnceLock::new(), interest }));
        site.metadata.get_or_init(|| {
            let fields = FieldSet::new(FIELDS, identify_callsite!(site));
            let (file, line) = (Some(caller.file()), Some(caller.line()));
            Metadata::new("orchestration", target, level, file, line, Some(target), fields, Kind::EVENT)
        });
        site
    }

    fn is_enabled(&self) -> bool {
        match self.interest.load(Ordering::Relaxed) {
            NEVER => false,
            ALWAYS => true,
            _ => dispatcher::get_default(|dispatch| dispatch.enabled(self.metadata())),
        }
    }

    fn write(&'static self, place: &Place, message: &dyn Display) {
        if !self.is_enabled() {
            return;
        }
        let metadata = self.metadata();
        let fields = metadata.fields();
        let mut names = fields.iter();
        let mut next = || names.next().expect("as many as `FIELDS`");
        let (text, id, number, last, trace) = (next(), next(), next(), next(), next());
        let Place { instance, started, event } = place;
        let trace_id = started.trace.as_deref().and_then(TraceContext::trace_id);
        let message = format_args!("{message}");
        let values: [_; 5] = [
            (&text, Some(&message as &dyn Value)),
            (&id, Some(&&**instance as &dyn Value)),
            (&number, Some(&started.execution as &dyn Value)),
            (&last, Some(event as &dyn Value)),
            (&trace, trace_id.as_ref().map(|trace_id| trace_id as &dyn Value)),
        ];
        Event::dispatch(metadata, &fields.value_set(&values));
    }
}

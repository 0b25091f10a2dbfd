//! The location of the last panic of a thread, if the process records it.
//!
//! A caught panic has a message, which may contain ids and payloads, but no location. Only a panic hook sees the
//! location, and a library should not install one without its caller's knowledge, so that is left to the runtime.

use std::cell::RefCell;
use std::panic::PanicHookInfo;

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Records the location of a panic for the failure that it causes. To be called from a panic hook.
pub fn note_panic(info: &PanicHookInfo<'_>) {
    // The column is omitted: it says little, and a formatter changes it.
    set(info.location().map(|location| format!("{}:{}", location.file(), location.line())));
}

pub(crate) fn set(place: Option<String>) {
    // Fails only while the thread's locals are being destroyed, when no failure will be reported.
    let _ = PLACE.try_with(|noted| noted.replace(place));
}

/// Takes the location of the panic that was just caught.
pub(crate) fn take() -> Option<String> {
    PLACE.try_with(RefCell::take).unwrap_or_default()
}

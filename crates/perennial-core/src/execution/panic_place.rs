//! Where the last panic of a thread was, if the process notes it.
//!
//! What is caught has the words of a panic, which may hold ids and payloads, and not its place. Only a panic hook learns
//! that. A library that sets one behind its caller's back is a nuisance, so that this is left to the runtime.

use std::cell::RefCell;
use std::panic::PanicHookInfo;

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes where a panic is, for the failure that is made of it. To be called from a panic hook.
pub fn note_panic(info: &PanicHookInfo<'_>) {
    // The column says little, and a formatter moves it.
    set(info.location().map(|location| format!("{}:{}", location.file(), location.line())));
}

pub(crate) fn set(place: Option<String>) {
    // A panic while the thread's locals are destroyed has nobody to tell.
    let _ = PLACE.try_with(|noted| noted.replace(place));
}

/// Takes the place of the panic that was just caught.
pub(crate) fn take() -> Option<String> {
    PLACE.try_with(RefCell::take).unwrap_or_default()
}

//! Parts of the messages of errors.

use perennial_core::store::Skippable;

/// Names what can be skipped instead.
pub(crate) fn skippable(id: &str, blocking: Option<Skippable>) -> String {
    match blocking {
        Some(what) => format!("instance {id:?} is blocked by {what}; skip that one"),
        None => format!(
            "instance {id:?} is not blocked by anything that can be skipped; its status shows the cause, and \
             `perennial doctor` the remedy"
        ),
    }
}

/// The value that cannot be written.
pub(crate) fn value_for(id: &str) -> String {
    match id {
        "" => "a value of the filter".to_owned(),
        id => format!("the payload for instance {id:?}"),
    }
}

/// A number of events in brackets; nothing if it is not known.
pub(crate) fn counted(unread: usize) -> String {
    if unread == 0 { String::new() } else { format!(" ({unread})") }
}

/// What is known of an instance that did not end in time.
pub(crate) fn still_open(blocked: Option<&str>) -> String {
    match blocked {
        Some(reason) => format!(", because it is blocked: {reason}"),
        None => ", and is still running; `Client::explain` shows what it waits for".to_owned(),
    }
}

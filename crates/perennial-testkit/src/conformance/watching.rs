//! S8: hints that something may have changed.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::instances::{message, row, start};
use super::subject::{Make, Subject};

pub fn s8_a_message_gives_a_hint(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    subject.write(session, start(&row(1, "a")));
    let (sender, hints) = mpsc::channel();
    let (other_sender, other_hints) = mpsc::channel();
    subject.store().watch(Arc::new(move || sender.send(()).unwrap_or_default()));
    subject.store().watch(Arc::new(move || other_sender.send(()).unwrap_or_default()));
    for _ in 0..3 {
        // What was hinted before does not count.
        while hints.try_recv().is_ok() {}
        while other_hints.try_recv().is_ok() {}
        subject.sent(message("a", None, "hello"));
        for hints in [&hints, &other_hints] {
            hints.recv_timeout(Duration::from_secs(60)).expect("everybody who watches gets a hint");
        }
    }
}

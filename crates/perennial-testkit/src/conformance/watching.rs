//! S8: hints that something may have changed.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::instances::{Build, member, message, row, start, task};
use super::subject::{Make, Subject};
use super::tasks::{served, with_one};

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

pub fn s8_requests_answers_and_results_give_a_hint(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 1, 60_000).len(), 1);
    let (sender, hints) = mpsc::channel();
    subject.store().watch(Arc::new(move || sender.send(()).unwrap_or_default()));
    let hinted = |what: &str| {
        let hint = hints.recv_timeout(Duration::from_secs(60));
        assert!(hint.is_ok(), "{what} gives a hint");
        // What was hinted before does not count for what comes next.
        while hints.try_recv().is_ok() {}
    };
    let number = subject.asked("a", subject.clock.now_ms() + 60_000, "?");
    hinted("a request");
    subject.write(session, member(&a).answering(number, "done"));
    hinted("an answer");
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    hinted("a result");
}

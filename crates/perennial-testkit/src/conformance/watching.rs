//! S8: hints about possible changes, with their shards.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use perennial_core::store::{
    Changes, InstanceRow, RowChange, SessionId, SessionRole, ShardSet, Status, TaskRow, TaskState,
};
use perennial_core::{Payload, SHARDS};

use super::instances::{Build, member, message, outgoing, row, start, start_request, starting, status, task};
use super::subject::{Make, Subject, new_session};
use super::tasks::{served, with_one};

/// The hints of a store as a channel.
fn hints(subject: &Subject) -> mpsc::Receiver<Changes> {
    let (sender, hints) = mpsc::channel();
    subject.store().watch(Arc::new(move |changes| sender.send(*changes).unwrap_or_default()));
    hints
}

/// Waits until a hint of a kind names the shard of an instance.
fn hinted(hints: &mpsc::Receiver<Changes>, row: &InstanceRow, kind: fn(&Changes) -> &ShardSet, what: &str) {
    loop {
        match hints.recv_timeout(Duration::from_secs(60)) {
            Ok(changes) if kind(&changes).contains(row.shard) => return,
            Ok(_) => {}
            Err(_) => panic!("{what} gives a hint that names the shard"),
        }
    }
}

pub fn s8_a_message_gives_a_hint(make: Make<'_>) {
    let (subject, _, a) = with_one(make);
    let (one, other) = (hints(&subject), hints(&subject));
    for _ in 0..3 {
        // Earlier hints do not count.
        while one.try_recv().is_ok() {}
        while other.try_recv().is_ok() {}
        subject.sent(message("a", None, "hello"));
        for hints in [&one, &other] {
            hinted(hints, &a, |changes| &changes.inbox, "a message, for every watcher,");
        }
    }
}

pub fn s8_starts_requests_replies_and_results_give_a_hint(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 1, 60_000).len(), 1);
    let hints = hints(&subject);
    let delayed = InstanceRow { wake_at_ms: Some(9_000), ..row(2, "delayed") };
    subject.sent(start_request(&delayed, "start"));
    hinted(&hints, &delayed, |changes| &changes.inbox, "a start, even a delayed one,");
    let number = subject.requested("a", 60_000, "?");
    hinted(&hints, &a, |changes| &changes.requests, "a request");
    subject.write(session, member(&a).replying(number, "done"));
    hinted(&hints, &a, |changes| &changes.replies, "a reply");
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    hinted(&hints, &a, |changes| &changes.inbox, "a result");
}

pub fn s8_tasks_that_can_be_taken_give_a_hint(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let holder = SessionId(7);
    let hints = hints(&subject);
    let waiting = TaskRow { state: TaskState::Waiting, due_ms: Some(1), ..task(&a, 3) };
    subject.write(session, member(&a).putting([waiting, task(&a, 2)]));
    hinted(&hints, &a, |changes| &changes.tasks, "a queued task");
    assert_eq!(subject.take(holder, &served(&["charge"], &[]), 1, 60_000).len(), 1);
    subject.give_back(holder, vec![task(&a, 2).id]);
    hinted(&hints, &a, |changes| &changes.tasks, "a task that is given back");
}

pub fn s8_endings_and_published_values_give_a_hint(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let hints = hints(&subject);
    let published = RowChange { published: Some(Some(Payload::null())), ..RowChange::default() };
    subject.write(session, member(&a).turn(2, "published").changing(published));
    hinted(&hints, &a, |changes| &changes.endings, "a published value");
    subject.write(session, member(&a).turn(3, "ended").changing(status(Status::Completed)));
    hinted(&hints, &a, |changes| &changes.endings, "an ending");
}

pub fn s8_a_commit_gives_a_hint_to_the_owners_of_other_shards(make: Make<'_>) {
    let subject = Subject::new(make);
    let one = subject.open_session(60_000);
    let mine = subject.claim(one, SHARDS / 2).unwrap();
    let other = new_session(SessionRole::Lane, 60_000);
    subject.open(other.clone()).unwrap();
    subject.claim(other.id, SHARDS).unwrap();
    let rows: Vec<InstanceRow> = (1..=64).map(|number| row(number, &format!("order-{number}"))).collect();
    let (of_one, of_other): (Vec<_>, Vec<_>) = rows.iter().partition(|row| mine.contains(&row.shard));
    let hints = hints(&subject);
    subject.write(other.id, start(of_other[0]));
    let sends = [outgoing(of_other[0], None, "hello"), starting(of_other[1], "start", None)];
    subject.write(one, start(of_one[0]).sending(sends));
    hinted(&hints, of_other[0], |changes| &changes.inbox, "a message to another lane's shard");
    subject.write(one, member(of_one[0]).sending([starting(of_other[2], "start", None)]));
    hinted(&hints, of_other[2], |changes| &changes.inbox, "a start in another lane's shard");
}

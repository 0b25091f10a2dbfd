//! S7: deletion of instances that have ended.

use std::sync::Arc;
use std::thread;

use perennial_core::store::{
    Commit, CommitOutcome, Conflict, Count, Criteria, DeleteOutcome, InstanceRow, Page, RowChange,
    SendOutcome, SessionId, Status, StoreStats, TaskId, TaskRow, TaskState,
};

use super::instances::{
    Build, blocked, bytes, member, message, outgoing, row, start, start_request, status, task,
};
use super::subject::{Make, Subject};
use super::tasks::served;

/// An instance with rows of every kind: turns of two executions, messages, tasks and requests.
fn with_rows(subject: &Subject, session: SessionId, row: &InstanceRow) {
    let next = RowChange { execution: Some(2), ..RowChange::default() };
    let of_second = TaskRow { id: TaskId { execution: 2, ..task(row, 2).id }, ..task(row, 2) };
    let waiting = TaskRow { state: TaskState::Waiting, due_ms: Some(9_000), ..task(row, 3) };
    let batch = [
        start(row).putting([task(row, 2), waiting]),
        member(row)
            .turn(2, "continued as new")
            .sending([outgoing(row, None, "1"), outgoing(row, Some("k"), "2")]),
        member(row).turn_of(2, 1, "began").changing(next).putting([of_second]),
        member(row).turn_of(2, 2, "went on"),
    ];
    for outcome in subject.commit(session, batch) {
        assert!(matches!(outcome, CommitOutcome::Durable { .. }), "{outcome:?}");
    }
    subject.take(session, &served(&["charge"], &[]), 1, 60_000);
    for _ in 0..2 {
        subject.requested(&row.id, 60_000, "?");
    }
}

/// Everything that a store returns about an instance.
fn rows_of(subject: &Subject, session: SessionId, row: &InstanceRow) -> String {
    let inbox: Vec<_> =
        subject.inbox(session, 0, 1_000).into_iter().filter(|message| message.key == row.key).collect();
    let requests = subject.requests(session, 0, 1_000).into_iter();
    let requests: Vec<_> = requests.filter(|request| request.key == row.key).collect();
    let turns = [1, 2].map(|execution| subject.turns(row, execution, 0, 1_000));
    let loaded = subject.load(row, 0);
    format!("{:?} {loaded:?} {turns:?} {inbox:?} {requests:?}", subject.find(&row.id))
}

/// The row counts of the things that belong to instances.
fn belongings(stats: &StoreStats) -> [Count; 5] {
    [stats.inbox, stats.tasks_queued, stats.tasks_leased, stats.tasks_waiting, stats.requests]
}

pub fn s7_a_deleted_instance_leaves_no_rows(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    with_rows(&subject, session, &b);
    let (only_b, of_b) = (subject.stats(), rows_of(&subject, session, &b));
    with_rows(&subject, session, &a);
    let ended = RowChange {
        wake_at_ms: Some(Some(1)),
        owed: Some(true),
        blocked: Some(Some(blocked())),
        ..status(Status::Failed)
    };
    subject.write(session, member(&a).turn_of(2, 3, "ended").changing(ended));
    assert_eq!(subject.delete([&a]), [DeleteOutcome::Deleted]);
    assert_eq!((subject.find("a"), subject.load(&a, 0)), (None, None));
    for execution in 1..=2 {
        assert_eq!(subject.turns(&a, execution, 0, 10), Vec::<Arc<[u8]>>::new());
    }
    assert_eq!(belongings(&subject.stats()), belongings(&only_b), "no row is left behind");
    assert_eq!(subject.stats().instances, only_b.instances);
    assert_eq!(rows_of(&subject, session, &b), of_b, "others keep theirs");
    assert_eq!(subject.list(&Criteria::default(), None, 10).rows.len(), 1);
}

pub fn s7_only_ended_instances_are_deleted(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let rows: Vec<InstanceRow> = (1..)
        .zip(Status::ALL)
        .map(|(number, status)| InstanceRow { status, ..row(number, status.name()) })
        .collect();
    for row in &rows {
        with_rows(&subject, session, row);
    }
    let before: Vec<String> = rows.iter().map(|row| rows_of(&subject, session, row)).collect();
    // Each instance is independent of the others, in the order of the call; the last is named twice.
    let nobody = row(99, "nobody");
    let named = rows.iter().chain([&nobody, &rows[5]]);
    let outcomes: Vec<DeleteOutcome> = rows
        .iter()
        .map(|row| if row.status.is_final() { DeleteOutcome::Deleted } else { DeleteOutcome::NotEnded })
        .chain([DeleteOutcome::Gone, DeleteOutcome::Gone])
        .collect();
    assert_eq!(subject.delete(named), outcomes);
    for (row, before) in rows.iter().zip(&before).filter(|(row, _)| !row.status.is_final()) {
        assert_eq!(rows_of(&subject, session, row), *before, "{} is untouched", row.id);
    }
    assert_eq!(subject.list(&Criteria::default(), None, 10).rows.len(), 2);
    assert_eq!(subject.delete([]), []);
}

pub fn s7_the_id_of_a_deleted_instance_is_free_at_once(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let mut last = row(1, "a");
    subject.write(session, start(&last).changing(status(Status::Completed)));
    for number in 2..6 {
        assert_eq!(subject.delete([&last]), [DeleteOutcome::Deleted]);
        assert_eq!(subject.send(message("a", None, "hello")), SendOutcome::NoInstance);
        let next = row(number, "a");
        if number % 2 == 0 {
            subject.write(session, start(&next));
        } else {
            subject.sent(start_request(&next, "start"));
        }
        assert_eq!(subject.find("a").map(|row| row.key), Some(next.key));
        assert_eq!(subject.delete([&last, &next]), [DeleteOutcome::Gone, DeleteOutcome::NotEnded]);
        // The new instance is not mistaken for the old one.
        let late = member(&last).turn(2, "late").changing(status(Status::Failed));
        assert_eq!(subject.commit(session, [late]), [CommitOutcome::Conflict(Conflict::MissingTurn)]);
        let late = member(&last).changing(status(Status::Failed)).putting([task(&last, 2)]);
        assert_eq!(subject.commit(session, [late]), [CommitOutcome::Conflict(Conflict::NoInstance)]);
        let sent = subject.write(session, member(&next).sending([outgoing(&last, None, "lost")]));
        assert_eq!(sent, [None]);
        let inbox = subject.load(&next, 0).unwrap().inbox.into_iter().map(|row| row.number);
        subject.write(session, member(&next).changing(status(Status::Completed)).consuming(inbox));
        last = next;
    }
    let stats = subject.stats();
    assert_eq!(belongings(&stats), [Count::default(); 5]);
}

pub fn s7_a_reply_outlives_its_instance_until_the_deadline(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    let [answered, open] = [(); 2].map(|()| subject.requested("a", 1_000, "?"));
    let ended = member(&a).turn(2, "ended").changing(status(Status::Completed));
    subject.write(session, ended.replying(answered, "done"));
    assert_eq!(subject.delete([&a]), [DeleteOutcome::Deleted]);
    // The reply was written, and its caller can still read it.
    assert_eq!(subject.reply_to(answered), Some(bytes("done")));
    assert_eq!((subject.reply_to(open), subject.withdraw(open)), (None, false));
    subject.clock.advance(1_001);
    subject.sweep();
    assert_eq!(subject.reply_to(answered), None);
}

/// The life of an instance as batches. Each sends something to its neighbour, which may be deleted.
fn life(row: &InstanceRow, before: &InstanceRow) -> [Commit; 3] {
    [
        start(row)
            .putting([task(row, 2)])
            .sending([outgoing(row, None, "unread"), outgoing(before, None, "x")]),
        member(row).turn(2, "went on").putting([task(row, 3)]).sending([outgoing(before, Some("k"), "y")]),
        member(row)
            .turn(3, "ended")
            .changing(status(Status::Completed))
            .sending([outgoing(before, None, "z")]),
    ]
}

/// Runs one life after the other.
fn live_and_end(subject: &Subject, session: SessionId, rows: &[InstanceRow]) {
    let mut before = &rows[0];
    for row in rows {
        for step in life(row, before) {
            let mut tries = 0;
            loop {
                match subject.commit(session, [step.clone()]).remove(0) {
                    CommitOutcome::Durable { .. } => break,
                    // The instance with the id has ended, so the id becomes free.
                    CommitOutcome::Conflict(Conflict::IdTaken(taken)) => assert!(taken.status.is_final()),
                    other => panic!("{} was deleted before it ended: {other:?}", row.id),
                }
                tries += 1;
                assert!(tries < 100_000, "{} is not deleted", row.id);
                thread::yield_now();
            }
        }
        before = row;
    }
}

pub fn s7_deletions_and_commits_at_the_same_time_leave_no_orphans(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    // Ten ids, each reused as soon as it is free.
    let rows: Vec<InstanceRow> =
        (0..60).map(|number| row(number + 1, &format!("order-{}", number % 10))).collect();
    let deleted = thread::scope(|scope| {
        let committer = scope.spawn(|| live_and_end(&subject, session, &rows));
        let mut deleted: Vec<usize> = vec![0; rows.len()];
        loop {
            let is_last_pass = committer.is_finished();
            let outcomes = subject.delete(&rows);
            for (count, outcome) in deleted.iter_mut().zip(outcomes) {
                *count += usize::from(outcome == DeleteOutcome::Deleted);
            }
            if is_last_pass {
                return deleted;
            }
        }
    });
    assert_eq!(deleted, vec![1; rows.len()], "each exactly once");
    assert_eq!(subject.list(&Criteria::default(), None, 100), Page::default());
    assert_eq!(belongings(&subject.stats()), [Count::default(); 5]);
    for row in &rows {
        assert_eq!(subject.turns(row, 1, 0, 10), Vec::<Arc<[u8]>>::new());
    }
}

//! S6, S7: obsolete rows are deleted in bounded steps.

use std::sync::Arc;

use perennial_core::store::{
    Commit, CommitOutcome, Conflict, Criteria, DeleteOutcome, InstanceRow, Page, PageLimit, RowChange,
    SessionId, Status, StoreError, Swept,
};

use super::instances::{Build, bytes, member, message, outgoing, row, start, status, task};
use super::subject::{Make, Subject, wait_for};
use super::tasks::with_one;

/// Sweeps in steps of this many rows, and returns the number of rows that each step deleted.
fn steps(subject: &Subject, rows: usize) -> Vec<u64> {
    let mut steps = Vec::new();
    loop {
        let swept = subject.sweep_some(rows);
        assert!(swept.rows <= rows as u64, "{swept:?} of at most {rows}");
        assert!(swept.rows > 0 || !swept.more, "each step deletes a row if there is one");
        if swept.rows > 0 {
            steps.push(swept.rows);
        }
        if !swept.more {
            return steps;
        }
    }
}

pub fn s6_sweeping_is_bounded(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    assert_eq!(subject.sweep_some(10), Swept::default());
    let requests: Vec<u64> = (0..25).map(|_| subject.requested("a", 1_000, "?")).collect();
    let replies = requests[..10].iter().fold(member(&a), |member, number| member.replying(*number, "done"));
    subject.write(session, replies);
    let later = subject.requested("a", 5_000, "?");
    assert_eq!(subject.sweep_some(10), Swept::default(), "nothing is past its deadline");
    subject.clock.advance(1_000);
    assert_eq!(subject.sweep_some(0), Swept { rows: 0, more: true });
    assert_eq!(subject.sweep_some(7), Swept { rows: 7, more: true });
    assert_eq!(steps(&subject, 7).iter().sum::<u64>(), 18);
    assert_eq!(subject.sweep_some(7), Swept::default());
    assert!(requests.iter().all(|number| subject.reply_to(*number).is_none()));
    let left: Vec<u64> = subject.requests(session, 0, 10).iter().map(|request| request.number).collect();
    assert_eq!(left, [later]);
}

/// An instance that has ended with this many turns, in two executions.
fn large(subject: &Subject, session: SessionId, row: &InstanceRow, turns: u64) {
    subject.write(session, start(row).putting([task(row, 2)]));
    let next = RowChange { execution: Some(2), ..RowChange::default() };
    let first = (2..=turns / 2).map(|number| member(row).turn(number, "x"));
    let second = (1..=turns - turns / 2).map(|number| member(row).turn_of(2, number, "y"));
    let members: Vec<Commit> = first.chain(second).collect();
    for batch in members.chunks(500) {
        let outcomes = subject.commit(session, batch.iter().cloned());
        assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
    }
    subject.sent(message(&row.id, None, "unread"));
    subject.requested(&row.id, 60_000, "?");
    let ended = RowChange { ended_ms: Some(Some(5)), ..status(Status::Completed) };
    subject.write(session, member(row).changing(RowChange { execution: next.execution, ..ended }));
}

pub fn s7_a_large_instance_is_deleted_at_once_and_swept_in_steps(make: Make<'_>) {
    const TURNS: u64 = 5_000;
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    large(&subject, session, &a, TURNS);
    subject.write(session, start(&b));
    assert_eq!(subject.delete([&a]), [DeleteOutcome::Deleted]);
    // No read returns any part of it.
    let gone = |what: &str| {
        assert_eq!((subject.find("a").map(|row| row.key), subject.load(&a, 0)), (None, None), "{what}");
        for execution in 1..=2 {
            assert_eq!(subject.turns(&a, execution, 0, 10), Vec::<Arc<[u8]>>::new(), "{what}");
            assert_eq!(subject.turns(&a, execution, 2_000, 10), Vec::<Arc<[u8]>>::new(), "{what}");
        }
    };
    gone("before it is swept");
    assert_eq!(subject.delete([&a]), [DeleteOutcome::Gone]);
    let stats = subject.stats();
    assert_eq!((stats.inbox.rows, stats.tasks_queued.rows, stats.requests.rows), (0, 0, 0));
    assert_eq!(subject.list(&Criteria::default(), None, 10).rows, std::slice::from_ref(&b));
    // Nothing is added to its remains.
    for (late, conflict) in [
        (member(&a).turn_of(2, TURNS - TURNS / 2 + 1, "late"), Conflict::MissingTurn),
        (member(&a).turn_of(2, 2, "y"), Conflict::MissingTurn),
        (member(&a).turn_of(2, 2, "other"), Conflict::MissingTurn),
        (member(&a).turn_of(3, 1, "late"), Conflict::NoInstance),
        (member(&a).changing(status(Status::Failed)), Conflict::NoInstance),
    ] {
        let outcome = subject.commit(session, [late.clone()]);
        assert_eq!(outcome, [CommitOutcome::Conflict(conflict)], "{late:?}");
    }
    let steps = steps(&subject, 700);
    assert!(steps.iter().sum::<u64>() <= TURNS, "{steps:?}");
    gone("after it was swept");
    assert_eq!(subject.turns(&b, 1, 0, 10), [bytes("started")], "others keep theirs");
    assert_eq!(subject.sweep_some(700), Swept::default());
}

pub fn s7_the_id_of_a_large_deleted_instance_is_free_at_once(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, next) = (row(1, "a"), row(2, "a"));
    large(&subject, session, &a, 3_000);
    assert_eq!(subject.delete([&a]), [DeleteOutcome::Deleted]);
    subject.write(session, start(&next).sending([outgoing(&next, None, "x")]));
    steps(&subject, 500);
    assert_eq!(subject.find("a"), Some(next.clone()));
    assert_eq!(subject.turns(&next, 1, 0, 10), [bytes("started")]);
    assert_eq!(subject.load(&next, 0).unwrap().inbox.len(), 1);
}

fn prune(
    subject: &Subject,
    session: SessionId,
    row: &InstanceRow,
    execution: u64,
    rows: usize,
) -> Result<Swept, StoreError> {
    wait_for(|reply| subject.store().prune_executions(session, row.shard, row.key, execution, rows, reply))
}

/// An instance in its fourth execution, with three turns in each.
fn in_fourth_execution(subject: &Subject, session: SessionId, row: &InstanceRow) {
    let execution = |execution| RowChange { execution: Some(execution), ..RowChange::default() };
    subject.write(session, start(row));
    for of in 1..=4 {
        for number in 1..=3 {
            if (of, number) != (1, 1) {
                subject.write(session, member(row).turn_of(of, number, "x").changing(execution(of)));
            }
        }
    }
}

fn turns_of(subject: &Subject, row: &InstanceRow) -> [usize; 4] {
    [1, 2, 3, 4].map(|execution| subject.turn_rows(row, execution, 0, PageLimit::rows(10)).len())
}

pub fn s7_pruning_executions_never_deletes_the_current_one(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    for row in [&a, &b] {
        in_fourth_execution(&subject, session, row);
    }
    assert_eq!(prune(&subject, session, &a, 1, 100), Ok(Swept::default()), "nothing is before the first");
    assert_eq!(prune(&subject, session, &a, 2, 100), Ok(Swept { rows: 3, more: false }));
    assert_eq!(turns_of(&subject, &a), [0, 3, 3, 3]);
    assert_eq!(prune(&subject, session, &a, 99, 100), Ok(Swept { rows: 6, more: false }));
    assert_eq!(turns_of(&subject, &a), [0, 0, 0, 3]);
    assert_eq!(prune(&subject, session, &a, u64::MAX, 100), Ok(Swept::default()));
    assert_eq!((turns_of(&subject, &a), turns_of(&subject, &b)), ([0, 0, 0, 3], [3; 4]));
    // The instance continues.
    subject.write(session, member(&a).turn_of(4, 4, "went on"));
    assert_eq!(subject.load(&a, 0).unwrap().turns.len(), 4);
    let nobody = row(9, "nobody");
    assert_eq!(prune(&subject, session, &nobody, 9, 100), Ok(Swept::default()));
}

pub fn s7_pruning_executions_is_bounded_and_starts_with_the_oldest(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    in_fourth_execution(&subject, session, &a);
    assert_eq!(prune(&subject, session, &a, 3, 4), Ok(Swept { rows: 4, more: true }));
    assert_eq!(turns_of(&subject, &a), [0, 2, 3, 3]);
    let left = subject.turn_rows(&a, 2, 0, PageLimit::rows(10));
    assert_eq!(left.iter().map(|turn| turn.number).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(prune(&subject, session, &a, 3, 4), Ok(Swept { rows: 2, more: false }));
    assert_eq!(turns_of(&subject, &a), [0, 0, 3, 3]);
}

pub fn s7_only_the_owner_prunes_executions(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    in_fourth_execution(&subject, session, &a);
    let other = subject.open_session(60_000);
    for stranger in [other, SessionId(u128::MAX)] {
        assert_eq!(prune(&subject, stranger, &a, 4, 100), Err(StoreError::SessionGone));
    }
    subject.release(session, [a.shard].into_iter().collect()).unwrap();
    assert_eq!(prune(&subject, session, &a, 4, 100), Err(StoreError::SessionGone));
    assert_eq!(turns_of(&subject, &a), [3; 4]);
    subject.claim(other, 1).unwrap();
    assert_eq!(prune(&subject, other, &a, 4, 100), Ok(Swept { rows: 9, more: false }));
    assert_eq!(
        subject.list(&Criteria::default(), None, 10),
        Page { rows: vec![subject.find("a").unwrap()], next: None }
    );
}

/// An instance that was continued three times, every ten seconds, with three turns in each execution.
fn continued_every_ten_seconds(subject: &Subject, session: SessionId, row: &InstanceRow) {
    subject.write(session, start(row).changing(RowChange::default()));
    for number in 2..=3 {
        subject.write(session, member(row).turn(number, "x"));
    }
    for of in 2..=4 {
        subject.clock.advance(10_000);
        let next = RowChange { execution: Some(of), ..RowChange::default() };
        subject.write(session, member(row).turn_of(of, 1, "x").changing(next));
        for number in 2..=3 {
            subject.write(session, member(row).turn_of(of, number, "x"));
        }
    }
}

pub fn s7_executions_are_swept_by_the_stores_clock_only_on_request(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let (a, b) = (row(1, "a"), row(2, "b"));
    continued_every_ten_seconds(&subject, session, &a);
    assert_eq!(subject.sweep_some(100), Swept::default(), "no age was given");
    assert_eq!(subject.sweep_executions(100, 20_001), Swept::default(), "none is old enough");
    // The first was continued 20 s ago, the second 10 s ago, the third just now.
    assert_eq!(subject.sweep_executions(100, 20_000), Swept { rows: 3, more: false });
    assert_eq!(turns_of(&subject, &a), [0, 3, 3, 3]);
    assert_eq!(subject.sweep_executions(100, 20_000), Swept::default());
    subject.write(session, start(&b));
    subject.clock.advance(1);
    assert_eq!(subject.sweep_executions(100, 0), Swept { rows: 6, more: false });
    assert_eq!(turns_of(&subject, &a), [0, 0, 0, 3], "the current execution stays");
    assert_eq!(turns_of(&subject, &b)[0], 1, "an instance that was never continued stays");
    subject.clock.advance(1_000_000);
    assert_eq!(subject.sweep_executions(100, 0), Swept::default());
    assert_eq!((turns_of(&subject, &a)[3], turns_of(&subject, &b)[0]), (3, 1));
}

pub fn s7_executions_that_were_continued_long_ago_are_swept_in_steps(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    continued_every_ten_seconds(&subject, session, &a);
    assert_eq!(subject.sweep_executions(0, 5_000), Swept { rows: 0, more: true });
    assert_eq!(subject.sweep_executions(4, 5_000), Swept { rows: 4, more: true });
    assert_eq!(turns_of(&subject, &a), [0, 2, 3, 3], "the oldest come first");
    assert_eq!(subject.sweep_executions(2, 5_000), Swept { rows: 2, more: false });
    assert_eq!(turns_of(&subject, &a), [0, 0, 3, 3]);
    // Executions that were pruned by number are not swept by age again.
    assert_eq!(prune(&subject, session, &a, 4, 100), Ok(Swept { rows: 3, more: false }));
    subject.clock.advance(100_000);
    assert_eq!(subject.sweep_executions(100, 5_000), Swept::default());
    // A deleted instance leaves no rows.
    subject.write(
        session,
        member(&a).changing(RowChange { ended_ms: Some(Some(5)), ..status(Status::Completed) }),
    );
    assert_eq!(subject.delete([&a]), [DeleteOutcome::Deleted]);
    assert_eq!(subject.sweep_executions(100, 0), Swept::default());
}

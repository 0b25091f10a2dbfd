//! S5: tasks as commits of the owner write and cancel them.

use perennial_core::store::{
    InstanceRow, RowChange, Served, SessionId, TaskId, TaskRenewal, TaskRow, TaskState,
};
use perennial_core::{ActivityError, EventId, PastAttempt, Payload, Trail};

use super::instances::{Build, bytes, member, row, start, task};
use super::subject::{Make, Subject};

pub(super) fn served(names: &[&str], tags: &[&str]) -> Served {
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Served { names: set(names), tags: set(tags), ..Served::default() }
}

/// A store with a running instance `a`, and the session that owns it.
pub(super) fn with_one(make: Make<'_>) -> (Subject, SessionId, InstanceRow) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a));
    (subject, session, a)
}

/// The tasks of an instance's current execution.
pub(super) fn tasks(subject: &Subject, row: &InstanceRow) -> Vec<TaskRow> {
    subject.load(row, 0).expect("the instance").tasks
}

pub(super) fn leased(row: &InstanceRow, event: u64, holder: SessionId) -> TaskRow {
    let state = TaskState::Leased { holder, cancelled: false };
    TaskRow { state, due_ms: Some(1_700_000_060_000), ..task(row, event) }
}

fn cancelled(task: TaskRow) -> TaskRow {
    let TaskState::Leased { holder, .. } = task.state else { panic!("{task:?} is not leased") };
    TaskRow { state: TaskState::Leased { holder, cancelled: true }, ..task }
}

pub fn s5_a_task_that_waits_forever_is_stored(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let forever = TaskRow { state: TaskState::Waiting, due_ms: Some(u64::MAX), ..task(&a, 2) };
    subject.write(session, member(&a).putting([forever]));
    let due_ms = tasks(&subject, &a)[0].due_ms;
    assert!(due_ms >= Some(1 << 62), "{due_ms:?}");
}

pub fn g51_tasks_are_taken_by_prefixes_of_their_names(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let names = ["http.get", "http.post", "httq", "HTTP.get", "http.é", "mail", "http"];
    let named = |(name, event): (&str, u64)| TaskRow { name: name.to_owned(), ..task(&a, event) };
    let tagged = TaskRow { name: "http.put".to_owned(), tag: Some("gpu".to_owned()), ..task(&a, 20) };
    subject.write(session, member(&a).putting(names.into_iter().zip(2..).map(named).chain([tagged])));
    let holder = subject.open_session(60_000);
    let taken = |prefixes: &[&str], names: &[&str], limit: usize| {
        let prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        let served = Served { prefixes, ..served(names, &[]) };
        let rows = subject.take(holder, &served, limit, 60_000);
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(taken(&["z", "http.x"], &[], 10), [""; 0]);
    assert_eq!(taken(&["http."], &[], 1), ["http.get"], "no more than asked for, by event");
    assert_eq!(taken(&["http.", "http"], &["http.post"], 10), ["http.post", "http.é", "http"], "each once");
    assert_eq!(taken(&[""], &[], 10), ["httq", "HTTP.get", "mail"], "all, but for tags that are not served");
}

fn past() -> Trail {
    let failure = ActivityError::Application("née\n".into());
    let first = PastAttempt::new(1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_500).failed(&failure);
    Trail::default().and(first.on("shop-2")).and(PastAttempt::new(1, 2, 3))
}

pub fn s5_every_column_of_a_task_is_kept(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let holder = SessionId(u128::MAX - 7);
    let rows = [
        task(&a, 2),
        TaskRow {
            attempt: 1_000,
            state: TaskState::Waiting,
            due_ms: Some(1_700_000_123_456),
            since_ms: None,
            details: Some(Payload::from_json("{\"step\": 3, \"of\": \"née\"}").unwrap()),
            heard_ms: Some(1_700_000_123_000),
            interruptions: 7,
            begun: Some(SessionId(u128::MAX)),
            past: past(),
            name: "Zahlung – prüfen".to_owned(),
            tag: Some("gpu \"0\"".to_owned()),
            work: None,
            ..task(&a, 3)
        },
        leased(&a, 4, holder),
        cancelled(leased(&a, 5, holder)),
        TaskRow { work: Some(bytes("\0é")), details: Some(Payload::null()), ..task(&a, 6) },
        TaskRow { work: Some(bytes("")), tag: Some(String::new()), due_ms: Some(0), ..task(&a, 7) },
    ];
    subject.write(session, member(&a).turn(2, "scheduled").putting(rows.clone()));
    assert_eq!(tasks(&subject, &a), rows);
}

pub fn s5_a_task_replaces_an_older_one(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let first = TaskRow { details: Some(Payload::null()), tag: Some("gpu".to_owned()), ..task(&a, 2) };
    subject.write(session, member(&a).putting([first, task(&a, 3)]));
    let retry = TaskRow {
        attempt: 2,
        state: TaskState::Waiting,
        due_ms: Some(1_700_000_005_000),
        interruptions: 1,
        begun: Some(SessionId(5)),
        past: past(),
        ..task(&a, 2)
    };
    subject.write(session, member(&a).putting([retry.clone()]));
    assert_eq!(tasks(&subject, &a), [retry.clone(), task(&a, 3)], "nothing of the older one is left");
    // The same holds for a leased task, whose holder then loses it.
    let other = subject.open_session(60_000);
    assert_eq!(subject.take(other, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    let again = TaskRow { attempt: 2, ..task(&a, 3) };
    subject.write(session, member(&a).putting([again.clone()]));
    assert_eq!(tasks(&subject, &a), [retry, again]);
    assert_eq!(subject.renew_tasks(other, vec![(task(&a, 3).id, None)], 5_000), [TaskRenewal::Gone]);
    assert!(!subject.finish(other, task(&a, 3).id, 1, "late"));
}

pub fn s5_changes_of_a_members_tasks_are_made_in_order(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let second = TaskRow { attempt: 2, ..task(&a, 3) };
    let put_twice = member(&a).putting([task(&a, 2), task(&a, 3), second.clone()]);
    subject.write(session, put_twice.cancelling([task(&a, 2).id]));
    assert_eq!(tasks(&subject, &a), std::slice::from_ref(&second));
    subject.write(session, member(&a).cancelling([second.id]).putting([task(&a, 3)]));
    assert_eq!(tasks(&subject, &a), [task(&a, 3)]);
}

pub fn s5_a_task_that_is_not_leased_is_deleted_when_cancelled(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let waiting = TaskRow { state: TaskState::Waiting, due_ms: Some(9_000), ..task(&a, 3) };
    subject.write(session, member(&a).putting([task(&a, 2), waiting.clone(), task(&a, 4)]));
    let nothing = TaskId { event: EventId(99), ..waiting.id };
    subject.write(session, member(&a).turn(2, "gave up").cancelling([task(&a, 2).id, waiting.id, nothing]));
    assert_eq!(tasks(&subject, &a), [task(&a, 4)]);
    let taken = subject.take(session, &served(&["charge"], &[]), 10, 5_000);
    assert_eq!(taken.iter().map(|task| task.id).collect::<Vec<_>>(), [task(&a, 4).id]);
}

pub fn s5_a_task_that_another_node_runs_is_marked_when_cancelled(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let other = subject.open_session(60_000);
    subject.write(session, member(&a).putting([task(&a, 2), task(&a, 3)]));
    let taken = subject.take(other, &served(&["charge"], &[]), 10, 5_000);
    let (gone, kept) = (taken[0].id, taken[1].id);
    subject.write(session, member(&a).turn(2, "gave up").cancelling([gone]));
    assert_eq!(tasks(&subject, &a), [cancelled(taken[0].clone()), taken[1].clone()]);
    let renewals = subject.renew_tasks(other, vec![(gone, None), (kept, None)], 5_000);
    assert_eq!(renewals, [TaskRenewal::Cancelled, TaskRenewal::Kept]);
    // Cancelling again changes nothing, and no session can take it.
    subject.write(session, member(&a).cancelling([gone]));
    assert_eq!(subject.renew_tasks(other, vec![(gone, None)], 5_000), [TaskRenewal::Cancelled]);
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000), []);
    // The holder that finishes it removes it.
    assert!(subject.finish(other, gone, 1, "too late"));
    assert_eq!(tasks(&subject, &a).len(), 1);
}

pub fn s5_a_task_that_its_owner_runs_is_deleted_when_cancelled(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let endless = TaskRow { due_ms: None, ..leased(&a, 3, session) };
    subject.write(session, member(&a).putting([endless]));
    subject.write(session, member(&a).cancelling([task(&a, 3).id]));
    assert_eq!(tasks(&subject, &a), []);
    assert_eq!(subject.renew_tasks(session, vec![(task(&a, 3).id, None)], 5_000), [TaskRenewal::Gone]);
}

pub fn s5_loading_returns_the_tasks_of_the_current_execution_by_event(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let b = row(2, "b");
    subject.write(session, start(&b).putting([task(&b, 5)]));
    let of_second = |event| TaskRow { id: TaskId { execution: 2, ..task(&a, event).id }, ..task(&a, event) };
    let events = [300, 2, 11, 10, 9, 1_000, 255, 256];
    subject.write(session, member(&a).putting(events.map(|event| task(&a, event))));
    subject.write(session, member(&a).putting([of_second(4), of_second(3)]));
    let in_order = [2, 9, 10, 11, 255, 256, 300, 1_000].map(|event| task(&a, event));
    assert_eq!(tasks(&subject, &a), in_order);
    assert_eq!(subject.load(&a, 1).unwrap().tasks, in_order, "whichever turns are asked for");
    let next = RowChange { execution: Some(2), ..RowChange::default() };
    subject.write(session, member(&a).turn_of(2, 1, "began").changing(next));
    assert_eq!(tasks(&subject, &a), [of_second(3), of_second(4)]);
    assert_eq!(tasks(&subject, &b), [task(&b, 5)]);
}

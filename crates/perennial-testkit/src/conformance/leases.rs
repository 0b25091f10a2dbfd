//! S5: tasks as nodes take, renew, finish and give them back.

use std::collections::BTreeSet;
use std::thread;

use perennial_core::Payload;
use perennial_core::store::{
    Evidence, InstanceRow, RowChange, SendOutcome, SessionId, Status, TaskId, TaskRenewal, TaskReport,
    TaskRow, TaskState,
};

use super::instances::{Build, blocked, bytes, member, message, row, start, status, task};
use super::subject::Make;
use super::tasks::{served, tasks, with_one};

fn ids(tasks: &[TaskRow]) -> BTreeSet<TaskId> {
    let ids: BTreeSet<TaskId> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids.len(), tasks.len(), "each exactly once");
    ids
}

fn held(mut task: TaskRow, holder: SessionId, now_ms: u64, lease_ms: u64) -> TaskRow {
    task.lease(holder, now_ms, now_ms + lease_ms);
    task
}

fn payload(json: &str) -> Option<Payload> {
    Some(Payload::from_json(json).expect("this is JSON"))
}

pub fn s5_a_task_is_leased_by_the_stores_clock(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let queued =
        TaskRow { due_ms: Some(1_700_000_900_000), details: payload("1"), attempt: 3, ..task(&a, 2) };
    subject.write(session, member(&a).putting([queued.clone()]));
    subject.clock.advance(1_234);
    let other = subject.open_session(60_000);
    let expected = held(queued, other, subject.clock.now_ms(), 5_000);
    let taken_tasks = subject.take(other, &served(&["charge"], &[]), 10, 5_000);
    assert_eq!((&taken_tasks, &tasks(&subject, &a)), (&vec![expected.clone()], &taken_tasks));
    subject.clock.advance(4_000);
    assert_eq!(subject.renew_tasks(other, vec![(expected.id, None)], 7_000), [TaskRenewal::Kept]);
    let renewed = TaskRow { due_ms: Some(subject.clock.now_ms() + 7_000), ..expected };
    assert_eq!(tasks(&subject, &a), [renewed]);
}

pub fn s5_a_node_takes_only_tasks_that_it_can_run(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let named = |event, name: &str, tag: Option<&str>| TaskRow {
        name: name.to_owned(),
        tag: tag.map(str::to_owned),
        ..task(&a, event)
    };
    let rows = [
        named(2, "charge", None),
        named(3, "charge", Some("gpu")),
        named(4, "ship", None),
        named(5, "ship", Some("eu")),
        named(6, "Charge", None),
        named(7, "charge", Some("GPU")),
        named(8, "charge", Some("")),
        TaskRow { state: TaskState::Waiting, due_ms: Some(1), ..named(9, "charge", None) },
        held(named(10, "charge", None), SessionId(7), 2_000_000_000_000, 2_000_000_000_000),
    ];
    subject.write(session, member(&a).putting(rows));
    let take = |names: &[&str], tags: &[&str]| {
        let events: BTreeSet<u64> = ids(&subject.take(session, &served(names, tags), 100, 5_000))
            .iter()
            .map(|id| id.event.0)
            .collect();
        events.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(take(&[], &["gpu", "eu"]), Vec::<u64>::new());
    assert_eq!(take(&["refund"], &[]), Vec::<u64>::new());
    assert_eq!(take(&["charge"], &[]), [2]);
    assert_eq!(take(&["charge"], &["eu"]), Vec::<u64>::new());
    assert_eq!(take(&["charge", "ship"], &["gpu", "cpu"]), [3, 4]);
    assert_eq!(take(&["ship", "charge"], &["eu", "gpu"]), [5]);
    assert_eq!(take(&["Charge", "charge"], &["GPU", ""]), [6, 7, 8]);
    assert_eq!(
        take(&["Charge", "charge", "ship"], &["GPU", "gpu", "eu", ""]),
        Vec::<u64>::new(),
        "the rest is not queued"
    );
}

pub fn s5_a_node_takes_no_more_than_asked(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting((2..12).map(|event| task(&a, event))));
    let mut all = BTreeSet::new();
    for (limit, expected) in [(0, 0), (1, 1), (4, 4), (100, 5), (100, 0)] {
        let taken = subject.take(session, &served(&["charge"], &[]), limit, 5_000);
        assert_eq!(taken.len(), expected, "of {limit}");
        all.extend(ids(&taken));
    }
    assert_eq!(all.len(), 10, "none of them is taken twice");
}

pub fn s5_no_task_is_taken_twice(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let b = row(2, "b");
    subject.write(session, start(&b).putting((2..102).map(|event| task(&b, event))));
    subject.write(session, member(&a).putting((2..102).map(|event| task(&a, event))));
    let holders: Vec<SessionId> = (0..6).map(|_| subject.open_session(60_000)).collect();
    let take_all = |holder: SessionId| {
        let mut mine = Vec::new();
        loop {
            let taken = subject.take(holder, &served(&["charge"], &[]), 3, 60_000);
            if taken.is_empty() {
                return mine;
            }
            mine.extend(taken);
        }
    };
    let taken: Vec<TaskRow> = thread::scope(|scope| {
        let threads: Vec<_> = holders.iter().map(|holder| scope.spawn(|| take_all(*holder))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the thread does not panic")).collect()
    });
    assert_eq!(ids(&taken).len(), 200, "each task is taken exactly once");
    let mut stored: Vec<TaskRow> = [tasks(&subject, &a), tasks(&subject, &b)].concat();
    stored.sort_by_key(|task| task.id);
    let mut taken_tasks = taken;
    taken_tasks.sort_by_key(|task| task.id);
    assert_eq!(taken_tasks, stored, "a task is held by the session that took it");
}

pub fn s5_a_renewal_writes_the_details_of_the_attempt(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2), task(&a, 3)]));
    let other = subject.open_session(60_000);
    assert_eq!(subject.take(other, &served(&["charge"], &[]), 10, 5_000).len(), 2);
    let (one, two) = (task(&a, 2).id, task(&a, 3).id);
    let details = || tasks(&subject, &a).into_iter().map(|task| task.details).collect::<Vec<_>>();
    let kept = [TaskRenewal::Kept, TaskRenewal::Kept];
    let renew = |first, second| subject.renew_tasks(other, vec![(one, first), (two, second)], 5_000);
    assert_eq!(renew(payload("{\"at\": 1}"), None), kept);
    assert_eq!(details(), [payload("{\"at\": 1}"), None]);
    assert_eq!(renew(None, payload("null")), kept);
    assert_eq!(
        details(),
        [payload("{\"at\": 1}"), payload("null")],
        "a renewal without details keeps the previous ones"
    );
    assert_eq!(renew(payload("2"), None), kept);
    assert_eq!(details(), [payload("2"), payload("null")]);
    assert_eq!(subject.renew_tasks(other, vec![], 5_000), []);
}

pub fn h42_a_task_has_the_times_of_its_state_and_of_its_last_heartbeat(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    let (now_ms, times) = (
        || subject.clock.now_ms(),
        || tasks(&subject, &a).first().map(|row| (row.since_ms, row.heard_ms)).expect("a task"),
    );
    assert_eq!(times(), (task(&a, 2).since_ms, None), "as it was written");
    subject.clock.advance(1_000);
    let taken_ms = now_ms();
    let take = |lease_ms| subject.take(session, &served(&["charge"], &[]), 10, lease_ms).len();
    assert_eq!((take(5_000), times()), (1, (Some(taken_ms), None)));
    let renew = |details| subject.renew_tasks(session, vec![(task(&a, 2).id, details)], 5_000);
    subject.clock.advance(1_000);
    renew(None);
    assert_eq!(times(), (Some(taken_ms), None), "a renewal alone is not a heartbeat");
    let heard_ms = now_ms();
    renew(payload("40"));
    subject.clock.advance(1_000);
    renew(None);
    assert_eq!(times(), (Some(taken_ms), Some(heard_ms)));
    subject.give_back(session, vec![task(&a, 2).id]);
    assert_eq!(times(), (Some(now_ms()), None), "the heartbeat belongs to the other attempt");
    subject.clock.advance(1_000);
    assert_eq!(take(500), 1);
    renew(payload("50"));
    subject.clock.advance(6_000);
    assert_eq!(subject.take(session, &served(&["other"], &[]), 10, 500), []);
    assert_eq!(times(), (Some(now_ms()), None), "its lease has expired");
}

pub fn h42_tasks_are_listed_by_id_in_pages_without_payloads(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let b = row(2, "b");
    subject.write(session, start(&b).putting((2..5).map(|event| task(&b, event))));
    let of_second = TaskRow { id: TaskId { execution: 2, ..task(&a, 2).id }, ..task(&a, 2) };
    let first = TaskRow { details: payload("1"), attempt: 3, ..task(&a, 300) };
    subject.write(session, member(&a).putting([first.clone(), task(&a, 7), of_second.clone()]));
    let mut expected = vec![task(&a, 7), first, of_second, task(&b, 2), task(&b, 3), task(&b, 4)];
    expected.iter_mut().for_each(|row| (row.work, row.details) = (None, None));
    assert_eq!(subject.list_tasks(None, 100), expected);
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = subject.list_tasks(after, 2);
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        listed.extend(page);
    }
    assert_eq!(listed, expected);
    assert_eq!(subject.list_tasks(None, 0).len(), 1, "a page holds at least one");
}

pub fn s5_only_the_holder_renews(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let (mine, theirs, queued) = (task(&a, 2), task(&a, 3), task(&a, 4));
    subject.write(session, member(&a).putting([mine.clone(), theirs.clone()]));
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    let taken =
        [one, other].map(|holder| subject.take(holder, &served(&["charge"], &[]), 1, 5_000).remove(0));
    subject.write(session, member(&a).putting([queued.clone()]));
    let before = tasks(&subject, &a);
    subject.clock.advance(1_000);
    let nothing = task(&row(9, "nobody"), 2).id;
    let report = || payload("\"mine\"");
    let asked = vec![(taken[1].id, report()), (queued.id, report()), (nothing, report())];
    assert_eq!(subject.renew_tasks(one, asked, 9_000), [TaskRenewal::Gone; 3]);
    assert_eq!(tasks(&subject, &a), before, "nothing was written");
    // The answers are in the order of the call.
    let asked = vec![(nothing, None), (taken[0].id, None), (taken[1].id, None)];
    let renewals = subject.renew_tasks(one, asked, 9_000);
    assert_eq!(renewals, [TaskRenewal::Gone, TaskRenewal::Kept, TaskRenewal::Gone]);
}

pub fn s5_a_finished_task_becomes_a_message(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([TaskRow { attempt: 4, ..task(&a, 2) }, task(&a, 3)]));
    let earlier = subject.sent(message("a", None, "earlier"));
    let other = subject.open_session(60_000);
    subject.take(other, &served(&["charge"], &[]), 10, 5_000);
    assert!(subject.finish(other, task(&a, 2).id, 4, "charged"));
    let inbox = subject.inbox(session, 0, 10);
    let seen: Vec<_> = inbox.iter().map(|row| (row.key, row.shard, row.body.clone())).collect();
    assert_eq!(seen, [(a.key, a.shard, bytes("earlier")), (a.key, a.shard, bytes("charged"))]);
    assert!(inbox[1].number > earlier);
    assert_eq!(ids(&tasks(&subject, &a)), [task(&a, 3).id].into());
    // A task can be finished only once.
    assert!(!subject.finish(other, task(&a, 2).id, 4, "charged again"));
    // Results have no idempotency key: two of them are two messages.
    assert!(subject.finish(other, task(&a, 3).id, 1, "charged"));
    assert_eq!(subject.load(&a, 0).unwrap().inbox.len(), 3);
    // They are ordinary messages.
    let numbers: Vec<_> = subject.inbox(session, 0, 10).iter().map(|row| row.number).collect();
    subject.write(session, member(&a).turn(2, "charged").consuming(numbers));
    assert_eq!(subject.stats().inbox.rows, 0);
}

pub fn s5_only_the_holder_of_an_attempt_finishes_it(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2), task(&a, 3)]));
    let (stale, other) = (subject.open_session(60_000), subject.open_session(60_000));
    assert_eq!(subject.take(stale, &served(&["charge"], &[]), 10, 5_000).len(), 2);
    let again = TaskRow { attempt: 2, ..task(&a, 2) };
    subject.write(session, member(&a).putting([again.clone()]));
    let refused = |holder: SessionId, event: u64, attempt: u32| {
        let before = (subject.load(&a, 0), subject.stats());
        assert!(!subject.finish(holder, task(&a, event).id, attempt, "stale"));
        assert_eq!((subject.load(&a, 0), subject.stats()), before, "nothing was written");
    };
    // It is queued again, so no session holds it.
    refused(stale, 2, 1);
    refused(stale, 2, 2);
    assert_eq!(subject.take(other, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    refused(stale, 2, 1);
    refused(stale, 2, 2);
    refused(other, 2, 1);
    refused(other, 2, 3);
    refused(other, 3, 1);
    refused(stale, 99, 1);
    let of_second = TaskId { execution: 2, ..again.id };
    assert!(!subject.finish(other, of_second, 2, "another execution's"));
    // The holder of an expired lease can finish the task if no other session has taken it.
    subject.clock.advance(50_000);
    assert!(subject.finish(stale, task(&a, 3).id, 1, "slow"));
    assert!(subject.finish(other, task(&a, 2).id, 2, "charged"));
    assert_eq!(subject.load(&a, 0).unwrap().inbox.len(), 2);
}

pub fn s5_an_attempt_is_finished_only_once(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    let finish = || subject.finish(session, task(&a, 2).id, 1, "charged");
    let finished: Vec<bool> = thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(finish)).collect();
        threads.into_iter().map(|thread| thread.join().expect("the call was answered")).collect()
    });
    assert_eq!(finished.iter().filter(|finished| **finished).count(), 1);
    assert_eq!(subject.inbox(session, 0, 10).len(), 1);
}

pub fn s5_a_result_for_an_instance_that_has_ended_is_dropped_with_the_row(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2), task(&a, 3)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000).len(), 2);
    subject.write(session, member(&a).turn(2, "ended").changing(status(Status::Terminated)));
    assert!(subject.finish(session, task(&a, 2).id, 1, "late"));
    assert_eq!(ids(&tasks(&subject, &a)), [task(&a, 3).id].into());
    assert_eq!(subject.stats().inbox.rows, 0);
    // A deleted instance has no tasks to finish.
    subject.delete([&a]);
    assert!(!subject.finish(session, task(&a, 3).id, 1, "later"));
    assert_eq!((subject.stats().inbox.rows, subject.stats().tasks_leased.rows), (0, 0));
}

pub fn s5_a_result_reaches_a_blocked_instance(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    let block = RowChange { blocked: Some(Some(blocked())), ..RowChange::default() };
    subject.write(session, member(&a).changing(block));
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    assert_eq!(subject.inbox(session, 0, 10), []);
    assert_eq!(subject.load(&a, 0).unwrap().inbox[0].body, bytes("charged"));
}

pub fn s5_a_task_that_is_given_back_can_be_taken_again(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let first = TaskRow { attempt: 2, interruptions: 1, ..task(&a, 2) };
    subject.write(session, member(&a).putting([first.clone(), task(&a, 3), task(&a, 4)]));
    let (one, other) = (subject.open_session(60_000), subject.open_session(60_000));
    assert_eq!(subject.take(one, &served(&["charge"], &[]), 10, 5_000).len(), 3);
    subject.renew_tasks(one, vec![(first.id, payload("7"))], 5_000);
    subject.write(session, member(&a).cancelling([task(&a, 3).id]));
    // Only the holder can give a task back.
    let before = tasks(&subject, &a);
    subject.give_back(other, vec![first.id, task(&a, 4).id, task(&a, 99).id]);
    assert_eq!(tasks(&subject, &a), before);
    subject.give_back(one, vec![first.id, task(&a, 3).id, task(&a, 99).id]);
    let since_ms = Some(subject.clock.now_ms());
    let back = TaskRow { details: payload("7"), due_ms: None, since_ms, ..first.clone() };
    let now = tasks(&subject, &a);
    assert_eq!(now[0], back, "it is queued, with what was reported");
    assert_eq!(ids(&now), [first.id, task(&a, 4).id].into(), "a cancelled one is deleted");
    assert!(!subject.finish(one, first.id, 2, "late"));
    assert_eq!(subject.renew_tasks(one, vec![(first.id, None)], 5_000), [TaskRenewal::Gone]);
    let taken = subject.take(other, &served(&["charge"], &[]), 10, 5_000);
    assert_eq!(taken, [held(back, other, subject.clock.now_ms(), 5_000)]);
    assert!(subject.finish(other, first.id, 2, "charged"));
}

pub fn s5_a_task_with_an_expired_lease_is_queued_again(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(
        session,
        member(&a).putting([task(&a, 2), TaskRow { due_ms: None, ..super::tasks::leased(&a, 3, session) }]),
    );
    let (lost, other) = (subject.open_session(60_000), subject.open_session(60_000));
    assert_eq!(subject.take(lost, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    subject.clock.advance(4_999);
    assert_eq!(subject.take(other, &served(&["charge"], &[]), 10, 5_000), [], "its lease has not expired");
    subject.clock.advance(1);
    assert_eq!(subject.take(other, &served(&["else"], &[]), 10, 5_000), [], "its name is not served");
    let taken = subject.take(other, &served(&["charge"], &[]), 10, 5_000);
    assert_eq!(
        taken,
        [held(task(&a, 2), other, subject.clock.now_ms(), 5_000)],
        "a task of the owner itself never expires"
    );
    assert!(!subject.finish(lost, task(&a, 2).id, 1, "late"), "another session holds it");
    subject.write(session, member(&a).cancelling([task(&a, 2).id]));
    subject.clock.advance(5_000);
    assert_eq!(subject.take(lost, &served(&["charge"], &[]), 10, 5_000), [], "it is cancelled");
    assert_eq!(subject.load(&a, 0).unwrap().tasks.len(), 1);
}

pub fn g22_an_expired_lease_counts_if_its_lost_holder_had_recorded_the_start(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    let id = task(&a, 2).id;
    let take = |holder: SessionId| subject.take(holder, &served(&["charge"], &[]), 10, 5_000).remove(0);
    let note = |holder: SessionId, evidence: Evidence| {
        let report = TaskReport { evidence: Some(evidence), ..TaskReport::of(id) };
        assert_eq!(subject.report_tasks(holder, vec![report], 5_000), [TaskRenewal::Kept]);
    };
    let stored = || tasks(&subject, &a).remove(0);
    let known = |row: &TaskRow| (row.interruptions, row.begun);
    // The holder is alive: it was suspended, or could not renew.
    take(subject.open_session(60_000));
    subject.clock.advance(5_001);
    let mut holder = subject.open_session(1_000);
    assert_eq!(known(&take(holder)), (0, None));
    // The first lost holder only makes the next one record the start.
    for interruptions in [0, 1, 2] {
        subject.clock.advance(5_001);
        holder = subject.open_session(1_000);
        let row = take(holder);
        assert_eq!(known(&row), (interruptions, Some(SessionId::NOBODY)));
        note(holder, Evidence::Begins);
        assert_eq!(known(&stored()), (interruptions, Some(holder)));
    }
    // An attempt that was not started does not count, nor one that was given back.
    subject.clock.advance(5_001);
    holder = subject.open_session(1_000);
    assert_eq!(known(&take(holder)), (3, Some(SessionId::NOBODY)));
    subject.clock.advance(5_001);
    holder = subject.open_session(1_000);
    assert_eq!(known(&take(holder)), (3, Some(SessionId::NOBODY)));
    note(holder, Evidence::Begins);
    subject.give_back(holder, vec![id]);
    assert_eq!(known(&stored()), (3, Some(holder)));
    holder = subject.open_session(1_000);
    take(holder);
    note(holder, Evidence::Begins);
    note(holder, Evidence::Healthy);
    assert_eq!(known(&stored()), (0, None));
}

pub fn s5_a_lease_outlives_its_holders_session(make: Make<'_>) {
    // A node that releases its shards lets its running tasks finish.
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    subject.end(session).unwrap();
    let heir = subject.own_all();
    assert_eq!(subject.renew_tasks(session, vec![(task(&a, 2).id, None)], 5_000), [TaskRenewal::Kept]);
    assert_eq!(subject.take(heir, &served(&["charge"], &[]), 10, 5_000), []);
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    assert_eq!(subject.inbox(heir, 0, 10).len(), 1);
}

pub fn s5_a_result_is_never_refused_for_unread_messages(make: Make<'_>) {
    use super::instances::outgoing;
    use perennial_core::store::memory::MAX_UNREAD;

    let (subject, session, a) = with_one(make);
    let full = (0..MAX_UNREAD).map(|_| outgoing(&a, None, "x"));
    subject.write(session, member(&a).putting([task(&a, 2)]).sending(full));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(MAX_UNREAD));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    assert_eq!(subject.send(message("a", None, "too much")), SendOutcome::Full(MAX_UNREAD + 1));
}

pub fn s5_a_task_of_an_earlier_execution_can_be_finished(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 10, 5_000).len(), 1);
    let next = RowChange { execution: Some(2), ..RowChange::default() };
    subject.write(session, member(&a).turn_of(2, 1, "began").changing(next));
    let loaded = || subject.load(&a, 0).expect("the instance");
    assert_eq!(loaded().tasks, []);
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    assert_eq!(loaded().inbox.len(), 1, "the engine interprets the message");
    assert_eq!(subject.stats().tasks_leased.rows, 0);
    assert_eq!(loaded().row, InstanceRow { execution: 2, ..a.clone() });
}

pub fn n17_a_holder_lists_its_leases(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting((2..7).map(|event| task(&a, event))));
    let (holder, other) = (subject.open_session(60_000), subject.open_session(60_000));
    assert_eq!(subject.held(holder), []);
    // The answer was lost, but the leases exist.
    subject.take(holder, &served(&["charge"], &[]), 3, 5_000);
    let taken: Vec<TaskRow> =
        tasks(&subject, &a).into_iter().filter(|task| task.state != TaskState::Queued).collect();
    assert_eq!((taken.len(), &subject.held(holder)), (3, &taken));
    let of_other = subject.take(other, &served(&["charge"], &[]), 1, 5_000);
    assert_eq!((subject.held(other), subject.held(holder)), (of_other, taken.clone()));
    // The holder keeps cancelled tasks until it gives them up, and tasks whose lease does not expire.
    subject.write(session, member(&a).cancelling([taken[0].id]));
    let endless = TaskRow { due_ms: None, ..super::tasks::leased(&a, 9, holder) };
    subject.write(session, member(&a).putting([endless]));
    let events = |rows: &[TaskRow]| rows.iter().map(|row| row.id.event.0).collect::<BTreeSet<_>>();
    let mut expected = events(&taken);
    expected.insert(9);
    assert_eq!(events(&subject.held(holder)), expected);
    // Tasks that it finished, gave back or lost are not included.
    assert!(subject.finish(holder, taken[1].id, 1, "charged"));
    subject.give_back(holder, vec![taken[0].id, taken[2].id]);
    assert_eq!(events(&subject.held(holder)), [9].into());
    assert_eq!(subject.held(SessionId(u128::MAX)), []);
}

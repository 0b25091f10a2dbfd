use crate::history::{ActivityOptions, Decision, Event, EventKind, FORMAT, Payload, Started, Turn, UnitId};
use crate::instance::{InstanceKey, ShardId};
use crate::store::{SessionId, TaskId};

use super::super::in_flight::Next;
use super::super::queued::Batch;
use super::super::row_columns::RowColumns;
use super::*;

fn row(event: u64, state: TaskState, due_ms: Option<u64>) -> TaskRow {
    TaskRow {
        id: TaskId { key: InstanceKey::new(1, 1), execution: 1, event: EventId(event) },
        shard: ShardId(0),
        attempt: 1,
        state,
        due_ms,
        since_ms: None,
        details: None,
        heard_ms: None,
        interruptions: 0,
        begun: None,
        past: Default::default(),
        name: "a".to_owned(),
        tag: None,
        work: None,
    }
}

fn waiting(event: u64, due_ms: u64) -> TaskRow {
    row(event, TaskState::Waiting, Some(due_ms))
}

fn leased(event: u64, due_ms: Option<u64>) -> TaskRow {
    row(event, TaskState::Leased { holder: SessionId(1), cancelled: false }, due_ms)
}

/// Checks the index and the counters against the rows.
fn check(tasks: &Tasks) {
    let times = tasks.rows.iter().flat_map(|(event, row)| row.times().map(|at_ms| (at_ms, *event)));
    assert_eq!(tasks.due, times.collect());
    assert_eq!(tasks.elsewhere, tasks.rows.values().filter(|row| !is_owners(&row.row)).count());
}

fn plan(tasks: &mut Tasks) -> (Commit, InFlight) {
    let mut commit = Commit::empty(InstanceKey::new(1, 1), ShardId(0));
    let mut in_flight = InFlight::new(RowColumns::nothing_stored(1), Next::Gone, Batch::default());
    TaskPlan::of(tasks, |_| true).apply(&mut commit, &mut in_flight);
    (commit, in_flight)
}

#[test]
fn g13_the_next_due_time_follows_every_change_of_a_row() {
    let mut tasks = Tasks::default();
    tasks.load(vec![
        waiting(1, 30),
        leased(2, None),
        leased(3, Some(5)),
        row(4, TaskState::Queued, Some(20)),
    ]);
    check(&tasks);
    assert_eq!(tasks.next_due_ms(0), Some(20), "the lease of another node is not watched");
    assert_eq!((tasks.next_due_ms(21), tasks.next_due_ms(31)), (Some(30), None));
    assert_eq!(tasks.elsewhere(), 3);
    tasks.write(waiting(4, 25), Some(28));
    plan(&mut tasks);
    check(&tasks);
    assert_eq!(tasks.next_due_ms(0), Some(25));
    tasks.write(leased(4, None), None);
    plan(&mut tasks);
    check(&tasks);
    assert_eq!(tasks.next_due_ms(0), Some(30), "the owner's own attempts are not watched");
    tasks.write(leased(4, Some(9)), None);
    plan(&mut tasks);
    assert_eq!(tasks.next_due_ms(0), Some(28), "its deadline is remembered");
    assert!(tasks.take(EventId(4)).is_some() && tasks.take(EventId(4)).is_none());
    check(&tasks);
}

#[test]
fn g21_deadlines_of_loaded_rows_are_learned_from_the_history() {
    let options = ActivityOptions { total_timeout_ms: Some(50), ..ActivityOptions::default() };
    let scheduled = Decision::ActivityScheduled {
        id: None,
        name: "a".to_owned(),
        input: Payload::null(),
        options: Some(Box::new(options)),
    };
    let started = Started::new("n", "1.0.0", Payload::null(), 7);
    let mut ledger = Ledger::default();
    ledger.apply_turn(&first_turn(started, scheduled)).unwrap();
    let mut tasks = Tasks::default();
    tasks.load(vec![leased(2, Some(5))]);
    assert_eq!(tasks.next_due_ms(0), None);
    tasks.learn_deadlines(&ledger);
    check(&tasks);
    assert_eq!(tasks.next_due_ms(0), Some(60));
}

#[test]
fn g22_only_what_is_due_is_looked_at_and_own_attempts_once_after_hydrating() {
    let mut tasks = Tasks::default();
    tasks.load((1..=1_000).map(|event| waiting(event, 1_000 + event)).collect());
    tasks.write(leased(2_000, None), None);
    plan(&mut tasks);
    assert!(tasks.take_unattended(1_000).events.is_empty());
    assert_eq!(tasks.take_unattended(1_002).events, [EventId(1), EventId(2)].into());
    tasks.handle_hydrated();
    assert!(tasks.is_hydrated());
    let unattended = tasks.take_unattended(0);
    assert!(unattended.is_hydrated && unattended.events == [EventId(2_000)].into());
    assert!(!tasks.take_unattended(0).is_hydrated);
}

/// The plan of a turn writes and clones only what the turn changes, however many rows there are.
#[test]
fn n5_a_plan_holds_what_changes_and_nothing_else() {
    let mut tasks = Tasks::default();
    tasks.load((1..=10_000).map(|event| waiting(event, 1_000 + event)).collect());
    tasks.write(waiting(5, 7), None);
    let mut commit = Commit::empty(InstanceKey::new(1, 1), ShardId(0));
    let mut in_flight = InFlight::new(RowColumns::nothing_stored(1), Next::Gone, Batch::default());
    let mut plan = TaskPlan::of(&mut tasks, |_| true);
    plan.close(&mut tasks, EventId(6));
    plan.close(&mut tasks, EventId(20_000));
    plan.apply(&mut commit, &mut in_flight);
    let expected = [TaskChange::Put(Box::new(waiting(5, 7))), TaskChange::Cancel(waiting(6, 0).id)];
    assert_eq!(commit.tasks, expected);
    assert_eq!((in_flight.task_writes.len(), in_flight.given.len()), (1, 0));
    assert!(!tasks.has_writes() && tasks.rows.len() == 9_999);
    check(&tasks);
}

#[test]
fn g22_a_newer_row_replaces_one_that_leads_to_nothing() {
    let mut tasks = Tasks::default();
    tasks.write(waiting(1, 10), None);
    tasks.write(waiting(1, 20), None);
    assert!(tasks.is_written(EventId(1)) && !tasks.is_written_for_attempt(EventId(1)));
    let (commit, in_flight) = plan(&mut tasks);
    assert_eq!(commit.tasks, [TaskChange::Put(Box::new(waiting(1, 20)))]);
    tasks.write(waiting(1, 30), None);
    tasks.put_back_writes(in_flight.task_writes);
    let (commit, _) = plan(&mut tasks);
    let written = [TaskChange::Put(Box::new(waiting(1, 20))), TaskChange::Put(Box::new(waiting(1, 30)))];
    assert_eq!(commit.tasks, written, "what came to nothing is written before what came since");
    tasks.write(waiting(1, 40), None);
    tasks.drop_writes(EventId(1));
    assert!(!tasks.has_writes());
}

#[test]
fn n17_a_read_replaces_the_rows_of_other_nodes_unless_they_were_given_since() {
    let mut tasks = Tasks::default();
    tasks.load(vec![
        row(1, TaskState::Queued, None),
        row(2, TaskState::Queued, None),
        waiting(3, 30),
        leased(4, None),
    ]);
    assert!(tasks.begin_refresh() && !tasks.begin_refresh() && tasks.is_refreshing());
    tasks.write(row(5, TaskState::Queued, Some(50)), None);
    let (_, in_flight) = plan(&mut tasks);
    assert_eq!(in_flight.given, [EventId(5)]);
    tasks.handle_given(in_flight.given);
    let given = tasks.end_refresh().unwrap();
    assert!(tasks.end_refresh().is_none());
    tasks.handle_read(vec![leased(1, Some(90)), leased(7, Some(1))], |event| given.contains(&event));
    check(&tasks);
    let left: Vec<u64> = tasks.rows.keys().map(|event| event.0).collect();
    assert_eq!(left, [1, 3, 4, 5], "2 was finished elsewhere, 5 was given since, 7 was never ours");
    assert_eq!(tasks.get(EventId(1)), Some(&leased(1, Some(90))));
}

fn first_turn(started: Started, decision: Decision) -> Turn {
    let decision = EventKind::Decision { unit: UnitId::ROOT, decision };
    let kinds = [EventKind::Started(Box::new(started)), decision];
    let events = (1..).map(EventId).zip(kinds).map(|(id, kind)| Event { id, kind }).collect();
    Turn { format: FORMAT, number: 1, at_ms: 10, draws: 0, events }
}

/// How often rows are examined while this many activities, each of which failed once, are retried one by one.
fn looks(activities: u64) -> usize {
    let mut tasks = Tasks::default();
    tasks.load((1..=activities).map(|event| waiting(event, 1_000 + event)).collect());
    let mut looks = 0;
    for now_ms in 1_001..=1_000 + activities {
        let due = tasks.take_unattended(now_ms).events;
        looks += due.len();
        for event in due {
            tasks.write_then(leased(event.0, None), None, None);
        }
        plan(&mut tasks);
        // The turn that takes the result of the previous one examines them, too.
        looks += tasks.take_unattended(now_ms).events.len();
        tasks.take(EventId(now_ms - 1_000));
    }
    assert!(tasks.rows.is_empty() && tasks.due.is_empty());
    looks
}

#[test]
fn g22_a_retry_costs_the_same_beside_thirty_thousand_others() {
    assert_eq!(looks(4_000), 4_000, "once each");
    assert_eq!(looks(30_000), 30_000);
}

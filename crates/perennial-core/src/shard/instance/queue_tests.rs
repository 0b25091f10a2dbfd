use crate::history::{Job, Payload};
use crate::instance::{InstanceKey, ShardId};

use super::super::super::request::{InstanceCall, ReplyTo, RequestId};
use super::*;

fn event(name: &str) -> Message {
    Message::Job(Job::ExternalEvent {
        name: name.to_owned(),
        payload: Payload::null(),
        key: None,
        trace: None,
    })
}

fn cancel(grace_ms: u64) -> Message {
    Message::Job(Job::OrchestrationCancelRequested { reason: "c".to_owned(), grace_ms })
}

fn brought(message: Message) -> Queued {
    Queued::new(message, Origin::Caller(RequestId(1)), 0)
}

fn row(number: InboxNumber, message: &Message) -> InboxRow {
    let key = InstanceKey::new(1, 1);
    InboxRow { number, key, shard: ShardId(0), arrived_ms: 0, urgent: false, body: message.encode() }
}

fn name(queued: &Queued) -> String {
    match &queued.message {
        Message::Job(Job::ExternalEvent { name, .. }) => name.clone(),
        other => format!("{other:?}"),
    }
}

fn names(messages: &[Queued]) -> Vec<String> {
    messages.iter().map(name).collect()
}

/// Checks the counters of the queue against its content.
fn check(queue: &Queue) {
    let (mut counts, mut results, mut places) = (Counts::default(), BTreeMap::new(), BTreeMap::new());
    for queued in queue.iter() {
        if let Some(count) = counts.of(queued) {
            *count += 1;
        }
        counts.events += queued.events();
        for result in queued.results_of() {
            *results.entry(result).or_insert(0) += 1;
        }
        if queued.number().is_some() && queued.is_job() {
            *places.entry(queued.place).or_insert(0) += 1;
        }
    }
    assert_eq!((queue.counts, &queue.results, &queue.stored_places), (counts, &results, &places));
}

#[test]
fn n16_a_row_goes_before_higher_numbers_wherever_they_stand_else_to_the_end() {
    let mut queue = Queue::default();
    queue.push(brought(event("a")));
    queue.insert_read(&row(5, &event("5")));
    queue.push(brought(event("b")));
    queue.insert_read(&row(9, &event("9")));
    queue.insert_read(&row(3, &event("3")));
    queue.insert_read(&row(7, &event("7")));
    queue.insert_read(&row(4, &event("4")));
    check(&queue);
    assert!(queue.knows(4) && !queue.knows(6));
    assert_eq!(queue.iter().map(name).collect::<Vec<_>>(), ["a", "3", "4", "5", "b", "7", "9"]);
    assert_eq!(names(&queue.take_all()), ["a", "3", "4", "5", "b", "7", "9"]);
    check(&queue);
    assert!(queue.is_empty());
}

#[test]
fn g15_what_a_load_found_goes_before_what_callers_brought_meanwhile() {
    let (mut queue, mut pending_calls) = (Queue::default(), PendingCalls::default());
    queue.push(brought(event("a")));
    let query = InstanceCall::Query { name: "q".to_owned(), payload: Payload::null() };
    pending_calls.push(ReplyTo::Row(1), query, queue.next_place());
    queue.push(brought(event("b")));
    let callers = queue.take_brought();
    queue.insert_loaded(&row(6, &event("6")));
    queue.insert_loaded(&row(2, &event("2")));
    queue.bring_after_read(callers, &mut pending_calls);
    check(&queue);
    assert_eq!(queue.first_place(), Some(0));
    assert_eq!(names(&[queue.pop_front().unwrap(), queue.pop_front().unwrap()]), ["2", "6"]);
    assert!(pending_calls.take_before(queue.first_place()).is_empty(), "a is delivered before it");
    assert_eq!(names(&[queue.pop_front().unwrap()]), ["a"]);
    assert_eq!(pending_calls.take_before(queue.first_place()).len(), 1, "b is not");
}

#[test]
fn n5_messages_that_are_put_back_are_first_again() {
    let mut queue = Queue::default();
    for name in ["a", "b", "c"] {
        queue.push(brought(event(name)));
    }
    queue.insert_read(&row(1, &event("1")));
    let taken = vec![queue.pop_front().unwrap(), queue.pop_front().unwrap()];
    queue.push(brought(event("d")));
    queue.put_back(taken);
    check(&queue);
    assert_eq!(names(&queue.take_all()), ["a", "b", "c", "1", "d"]);
}

#[test]
fn n5_kinds_are_counted_and_taken_without_the_rest() {
    let mut queue = Queue::default();
    queue.push(brought(event("a")));
    queue.insert_read(&row(1, &Message::Retry));
    queue.push(brought(Message::Retry));
    queue.push(brought(cancel(50)));
    queue.insert_read(&row(2, &event("2")));
    let job = Job::TimerFired { source_event_id: EventId(4) };
    queue.push(brought(Message::Outcome { execution: 2, job }));
    check(&queue);
    assert_eq!((queue.events(), queue.stored_events()), (2, 1));
    assert!(queue.has_retry() && queue.has_cancel() && !queue.has_termination());
    let gaps = Gaps::default();
    assert_eq!((queue.overdue_cancel(&gaps, 49), queue.overdue_cancel(&gaps, 50)), (None, Some("c")));
    assert_eq!(queue.cancel_graces().collect::<Vec<_>>(), [Grace { from_ms: 0, grace_ms: 50 }]);
    assert!(queue.has_result(2, EventId(4)) && !queue.has_result(1, EventId(4)), "of another execution");
    assert_eq!(queue.take_retries().len(), 2);
    check(&queue);
    assert_eq!(queue.take_jobs().len(), 3);
    check(&queue);
    assert!(queue.take_row(2).is_none() && !queue.is_empty());
    queue.push(brought(Message::Terminate { reason: "t".to_owned() }));
    assert_eq!(queue.termination(), Some("t"));
}

/// The order is that of a plain list in which a row is inserted before the first row with a higher number.
#[test]
fn n5_the_order_is_that_of_a_list() {
    let mut state = 12_345_u64;
    let mut draw = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for _ in 0..200 {
        let (mut queue, mut list) = (Queue::default(), Vec::<(Option<u64>, String)>::new());
        for step in 0..60 {
            match draw(4) {
                0 => {
                    queue.push(brought(event(&format!("b{step}"))));
                    list.push((None, format!("b{step}")));
                }
                1 if !list.is_empty() => {
                    assert_eq!(queue.front().map(name).as_ref(), Some(&list[0].1));
                    assert_eq!(queue.pop_front().as_ref().map(name), Some(list.remove(0).1));
                }
                _ => {
                    let number = draw(1_000) + 1;
                    if queue.knows(number) {
                        continue;
                    }
                    queue.insert_read(&row(number, &event(&number.to_string())));
                    let later = list.iter().position(|(other, _)| other.is_some_and(|other| other > number));
                    list.insert(later.unwrap_or(list.len()), (Some(number), number.to_string()));
                }
            }
        }
        check(&queue);
        let expected: Vec<String> = list.into_iter().map(|(_, name)| name).collect();
        assert_eq!(names(&queue.take_all()), expected);
    }
}

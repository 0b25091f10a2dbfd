//! G13: a timer that fires does not overtake a message that arrived before it was due.

use perennial_core::store::{CommitOutcome, Conflict, InstanceRow, RowChange, Status};

use super::instances::{
    Build, bytes, member, message, outgoing, row, start, start_request, starting, status, task,
};
use super::subject::{Make, Subject};
use super::tasks::{served, with_one};

fn durable() -> CommitOutcome {
    CommitOutcome::Durable { sent: vec![] }
}

fn earlier() -> CommitOutcome {
    CommitOutcome::Conflict(Conflict::EarlierMessage)
}

pub fn g13_a_timer_that_fires_over_an_earlier_message_conflicts(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, start(&row(2, "b")));
    let arrived_ms = subject.clock.now_ms();
    subject.sent(message("b", None, "another instance's"));
    let number = subject.sent(message("a", None, "event"));
    let fire = |fired_ms| member(&a).turn(2, "fired").changing(status(Status::Failed)).firing(fired_ms);
    // Due when the message arrived, or before: the timer comes first.
    let before = subject.load(&a, 0);
    for fired_ms in [arrived_ms + 1, arrived_ms + 1_000, u64::MAX] {
        assert_eq!(subject.commit(session, [fire(fired_ms)]), [earlier()], "due at {fired_ms}");
        assert_eq!(subject.load(&a, 0), before, "nothing was written");
    }
    // A member that consumes the message has seen it.
    let first = member(&a).turn(2, "both").firing(arrived_ms + 1).consuming([number]);
    assert_eq!(subject.commit(session, [first]), [durable()]);
    subject.clock.advance(10);
    subject.sent(message("a", None, "later"));
    for (turn, fired_ms) in [(3, 0), (4, arrived_ms), (5, arrived_ms + 10)] {
        assert_eq!(subject.commit(session, [member(&a).turn(turn, "fired").firing(fired_ms)]), [durable()]);
    }
    // The same holds without a turn.
    assert_eq!(subject.commit(session, [member(&a).firing(arrived_ms + 11)]), [earlier()]);
}

pub fn g13_results_and_messages_of_members_count_as_earlier_too(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    subject.write(session, member(&a).putting([task(&a, 2)]));
    subject.take(session, &served(&["charge"], &[]), 1, 60_000);
    let now_ms = subject.clock.now_ms();
    assert!(subject.finish(session, task(&a, 2).id, 1, "charged"));
    let fire = |turn| member(&a).turn(turn, "fired").firing(now_ms + 5);
    assert_eq!(subject.commit(session, [fire(2)]), [earlier()]);
    let number = subject.inbox(session, 0, 10)[0].number;
    assert_eq!(subject.commit(session, [fire(2).consuming([number])]), [durable()]);
    // An earlier member of the batch may have sent one.
    let batch = [member(&a).turn(3, "sent").sending([outgoing(&a, None, "x")]), fire(4), fire(3)];
    let outcomes = subject.commit(session, batch);
    assert!(matches!(&outcomes[0], CommitOutcome::Durable { sent } if sent[0].is_some()));
    assert_eq!(outcomes[1..], [earlier(), CommitOutcome::Conflict(Conflict::OtherTurn)]);
    // Messages that the member itself sends come after it.
    let number = subject.inbox(session, 0, 10)[0].number;
    let last = fire(4).consuming([number]).sending([outgoing(&a, None, "y")]);
    assert!(matches!(&subject.commit(session, [last])[0], CommitOutcome::Durable { .. }));
}

pub fn g13_a_parked_start_is_not_an_earlier_message(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let now_ms = subject.clock.now_ms();
    let delayed = InstanceRow { wake_at_ms: Some(now_ms + 1_000), ..row(1, "delayed") };
    subject.sent(start_request(&delayed, "start"));
    let unread = member(&delayed).firing(now_ms + 1_000);
    assert_eq!(subject.commit(session, [unread.clone()]), [durable()]);
    let child = InstanceRow { wake_at_ms: Some(now_ms + 1_000), ..row(2, "child") };
    subject.write(session, unread.sending([starting(&child, "start", None)]));
    assert_eq!(subject.commit(session, [member(&child).firing(now_ms + 1_000)]), [durable()]);
    subject.sent(message("child", None, "event"));
    assert_eq!(subject.commit(session, [member(&child).firing(now_ms + 1_000)]), [earlier()]);
}

pub fn g13_a_repeated_turn_is_durable_whatever_has_arrived(make: Make<'_>) {
    let (subject, session, a) = with_one(make);
    let now_ms = subject.clock.now_ms();
    let fired = member(&a).turn(2, "fired").firing(now_ms + 1_000);
    subject.write(session, fired.clone());
    // The answer was lost, and a message arrived meanwhile.
    subject.sent(message("a", None, "event"));
    assert_eq!(subject.commit(session, [fired]), [durable()]);
    assert_eq!(subject.turns(&a, 1, 0, 10), [bytes("started"), bytes("fired")]);
    // Other conflicts with the stored state are reported first.
    let other = member(&a).turn(2, "otherwise").firing(now_ms + 1_000);
    assert_eq!(subject.commit(session, [other]), [CommitOutcome::Conflict(Conflict::OtherTurn)]);
    let early = member(&a).turn(4, "early").firing(now_ms + 1_000);
    assert_eq!(subject.commit(session, [early]), [CommitOutcome::Conflict(Conflict::MissingTurn)]);
    let gone = member(&a).turn(3, "third").firing(now_ms + 1_000).consuming([999_999]);
    assert_eq!(subject.commit(session, [gone]), [earlier()]);
    let change = RowChange { owed: Some(true), ..RowChange::default() };
    let nobody = member(&row(9, "nobody")).changing(change).firing(now_ms + 1_000);
    assert_eq!(subject.commit(session, [nobody]), [CommitOutcome::Conflict(Conflict::NoInstance)]);
}

//! S7: counts for operators.

use perennial_core::ErrorCode;
use perennial_core::store::memory::MAX_UNREAD;
use perennial_core::store::{
    Blocked, Count, Criteria, InstanceRow, RowChange, SessionId, Status, StoreStats, TaskRow, TaskState,
};

use super::instances::{Build, blocked, member, message, outgoing, row, start, status, task};
use super::subject::{Make, Subject};
use super::tasks::served;

fn exactly(rows: u64) -> Count {
    Count { rows, more: false }
}

fn counted(stats: &StoreStats, status: Status) -> Count {
    let of_status: Vec<Count> =
        stats.instances.iter().filter(|(of, _)| *of == status).map(|(_, count)| *count).collect();
    assert_eq!(of_status.len(), 1, "every status has one count, even if it is 0: {:?}", stats.instances);
    of_status[0]
}

pub fn s7_a_count_is_exact_up_to_a_bound(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    assert_eq!(subject.count(&Criteria::default(), 10), exactly(0));
    assert_eq!(subject.count(&Criteria::default(), 0), exactly(0));
    let rows: Vec<InstanceRow> = (1..=20)
        .map(|number| InstanceRow {
            name: if number % 4 == 0 { "refund" } else { "checkout" }.to_owned(),
            ..row(number, &format!("order-{number}"))
        })
        .collect();
    subject.commit(session, rows.iter().map(start));
    let refunds = Criteria { name: Some("refund".to_owned()), ..Criteria::default() };
    for newest_first in [false, true] {
        let (all, refunds) =
            (Criteria { newest_first, ..Criteria::default() }, Criteria { newest_first, ..refunds.clone() });
        let counts = [(&all, 0, 0, true), (&all, 1, 1, true), (&all, 19, 19, true), (&all, 20, 20, false)];
        let of_refunds = [(&refunds, 4, 4, true), (&refunds, 5, 5, false), (&refunds, 6, 5, false)];
        for (filter, at_most, rows, more) in counts.into_iter().chain(of_refunds) {
            assert_eq!(
                subject.count(filter, at_most),
                Count { rows, more },
                "of {filter:?} at most {at_most}"
            );
        }
        assert_eq!(subject.count(&all, 1_000_000_000), exactly(20));
    }
}

pub fn s7_stats_count_all_kinds_of_rows(make: Make<'_>) {
    let subject = Subject::new(make);
    let empty = subject.stats();
    assert_eq!(empty.instances.iter().map(|(status, _)| *status).collect::<Vec<_>>(), Status::ALL);
    assert!(empty.instances.iter().all(|(_, count)| *count == exactly(0)));
    let rest = [empty.blocked, empty.inbox, empty.tasks_queued, empty.tasks_leased, empty.tasks_waiting];
    assert_eq!((rest, empty.requests, empty.lag_ms), ([exactly(0); 5], exactly(0), 0));
    let session = subject.own_all();
    let mut number: u64 = 0;
    for (many, status) in (1..).zip(Status::ALL) {
        for _ in 0..many {
            number += 1;
            let blocked = number.is_multiple_of(5).then(blocked);
            let row = InstanceRow { status, blocked, ..row(number, &format!("order-{number}")) };
            subject.write(session, member(&row).inserting(row.clone()));
        }
    }
    let a = row(100, "a");
    let waiting = |event| TaskRow { state: TaskState::Waiting, due_ms: Some(1), ..task(&a, event) };
    subject.write(session, start(&a).putting((2..8).map(|event| task(&a, event))));
    subject.write(session, member(&a).putting([waiting(8), waiting(9)]));
    assert_eq!(subject.take(session, &served(&["charge"], &[]), 3, 60_000).len(), 3);
    let sent: Vec<_> = (0..4).map(|_| subject.sent(message("a", None, "x"))).collect();
    subject.write(session, member(&a).consuming([sent[0]]));
    let asked: Vec<_> = (0..3).map(|_| subject.requested("a", 60_000, "?")).collect();
    subject.write(session, member(&a).replying(asked[1], "done"));
    let stats = subject.stats();
    for (many, status) in (1..).zip(Status::ALL) {
        let many = if status == Status::Running { many + 1 } else { many };
        assert_eq!(counted(&stats, status), exactly(many), "{status:?}");
    }
    assert_eq!((stats.blocked, stats.inbox, stats.requests), (exactly(4), exactly(3), exactly(2)));
    let tasks = (stats.tasks_queued, stats.tasks_leased, stats.tasks_waiting);
    assert_eq!(tasks, (exactly(3), exactly(3), exactly(2)));
}

pub fn s7_blocked_instances_are_counted_by_code(make: Make<'_>) {
    let subject = Subject::new(make);
    assert_eq!(subject.details().blocked, []);
    let session = subject.own_all();
    let (diverged, missing) = (ErrorCode::Nondeterminism.to_string(), ErrorCode::MissingCode.to_string());
    let codes = [&diverged, &missing, &diverged];
    for (number, code) in (1..).zip(codes) {
        let blocked = Blocked { code: code.clone(), ..blocked() };
        let row = InstanceRow { blocked: Some(blocked), ..row(number, &format!("order-{number}")) };
        subject.write(session, member(&row).inserting(row.clone()));
    }
    subject.write(session, start(&row(9, "not blocked")));
    let counted = [(diverged, exactly(2)), (missing, exactly(1))];
    assert_eq!(subject.details().blocked, counted);
    let bytes = subject.details().bytes;
    assert!(bytes.is_empty() || bytes.iter().map(|(_, bytes)| bytes).sum::<u64>() > 0, "{bytes:?}");
}

pub fn s7_stats_count_exactly_up_to_ten_thousand(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let a = row(1, "a");
    subject.write(session, start(&a).sending((0..MAX_UNREAD).map(|_| outgoing(&a, None, "x"))));
    assert_eq!(subject.stats().inbox, exactly(10_000));
    subject.write(session, member(&a).sending([outgoing(&a, None, "x")]));
    assert_eq!(subject.stats().inbox, Count { rows: 10_000, more: true });
}

pub fn s7_the_lag_is_that_of_the_earliest_instance_that_can_continue(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let now_ms = subject.clock.now_ms();
    let insert = |row: &InstanceRow| {
        subject.write(session, member(row).inserting(row.clone()));
    };
    let waking =
        |number, id: &str, wake_at_ms| InstanceRow { wake_at_ms: Some(wake_at_ms), ..row(number, id) };
    insert(&row(1, "never"));
    insert(&waking(2, "later", now_ms + 1_000));
    insert(&InstanceRow { status: Status::Completed, ..waking(3, "ended", 1) });
    insert(&InstanceRow { blocked: Some(blocked()), ..waking(4, "blocked", 2) });
    assert_eq!(subject.stats().lag_ms, 0);
    subject.clock.advance(1_000);
    assert_eq!(subject.stats().lag_ms, 0, "it is due now, not late");
    subject.clock.advance(250);
    assert_eq!(subject.stats().lag_ms, 250);
    let earlier = InstanceRow { status: Status::Pending, ..waking(5, "earlier", now_ms - 500) };
    insert(&earlier);
    assert_eq!(subject.stats().lag_ms, 1_750);
    let unblocked =
        RowChange { blocked: Some(None), wake_at_ms: Some(Some(now_ms - 600)), ..RowChange::default() };
    subject.write(session, member(&row(4, "blocked")).changing(unblocked));
    assert_eq!(subject.stats().lag_ms, 1_850);
    end(&subject, session, &row(4, "blocked"));
    end(&subject, session, &earlier);
    assert_eq!(subject.stats().lag_ms, 250);
}

pub fn h42_the_earliest_due_time_of_each_shard_is_known(make: Make<'_>) {
    let subject = Subject::new(make);
    assert_eq!(subject.details().earliest, []);
    let session = subject.own_all();
    let (mut rows, mut expected) = (Vec::new(), std::collections::BTreeMap::new());
    for number in 1..200 {
        let due_ms = 10_000 - number * 7 % 31;
        let row = InstanceRow { wake_at_ms: Some(due_ms), ..row(number, &format!("order-{number}")) };
        // What has ended, or is blocked, is not due.
        let row = match number % 5 {
            0 => InstanceRow { status: Status::Failed, ..row },
            1 => InstanceRow { blocked: Some(blocked()), ..row },
            _ => {
                let earliest = expected.entry(row.shard.0).or_insert(due_ms);
                *earliest = due_ms.min(*earliest);
                row
            }
        };
        rows.push(member(&row).inserting(row.clone()));
    }
    subject.commit(session, rows);
    assert_eq!(subject.details().earliest, expected.into_iter().collect::<Vec<_>>());
}

fn end(subject: &Subject, session: SessionId, row: &InstanceRow) {
    subject.write(session, member(row).changing(status(Status::Completed)));
}

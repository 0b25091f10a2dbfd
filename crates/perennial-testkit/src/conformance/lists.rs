//! S7: lists of instances.

use perennial_core::store::{CommitOutcome, Filter, InstanceRow, RowChange, Status};

use super::instances::{Build, blocked, member, row};
use super::subject::{Make, Subject};

/// Rows of all kinds: six statuses, three names, some blocked.
fn mixed_rows() -> Vec<InstanceRow> {
    (0..60)
        .map(|number: usize| {
            let id = format!("{}-{number}", ["order", "orders", "invoice", "Order", "ördér"][number % 5]);
            InstanceRow {
                name: ["checkout", "refund", "archive"][number % 3].to_owned(),
                status: Status::ALL[number / 2 % 6],
                blocked: number.is_multiple_of(7).then(blocked),
                ..row(u64::try_from(number).unwrap(), &id)
            }
        })
        .collect()
}

fn filled(make: Make<'_>) -> (Subject, Vec<InstanceRow>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let rows = mixed_rows();
    // Not in the order of their keys, and they become what they are only later.
    let begun = rows.iter().rev().map(|row| {
        member(row).inserting(InstanceRow { status: Status::Running, blocked: None, ..row.clone() })
    });
    let became = rows.iter().map(|row| {
        let (status, blocked) = (Some(row.status), Some(row.blocked.clone()));
        member(row).changing(RowChange { status, blocked, ..RowChange::default() })
    });
    let outcomes = subject.commit(session, begun.chain(became));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
    (subject, rows)
}

/// All rows of a list, page by page.
fn paged(subject: &Subject, filter: &Filter, limit: usize) -> Vec<InstanceRow> {
    let mut rows: Vec<InstanceRow> = Vec::new();
    let mut after = None;
    loop {
        let page = subject.list(filter, after, limit);
        assert!(page.rows.len() <= limit);
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
        assert_eq!(after, rows.last().map(|row| row.key), "the next page begins behind this one's last row");
    }
}

/// Asserts that a list shows what the filter says, whatever the size of its pages.
fn assert_shown(subject: &Subject, rows: &[InstanceRow], filter: &Filter) -> usize {
    let expected: Vec<InstanceRow> = rows.iter().filter(|row| filter.matches(row)).cloned().collect();
    for limit in [1, 2, 7, 1_000] {
        assert_eq!(paged(subject, filter, limit), expected, "{filter:?} in pages of {limit}");
    }
    expected.len()
}

pub fn s7_a_list_comes_oldest_first_in_pages(make: Make<'_>) {
    let empty = Subject::new(make);
    assert_eq!(empty.list(&Filter::default(), None, 10), Default::default());
    let (subject, rows) = filled(make);
    assert_eq!(assert_shown(&subject, &rows, &Filter::default()), 60);
    let page = subject.list(&Filter::default(), None, 10);
    assert_eq!((page.rows.len(), page.next), (10, Some(rows[9].key)));
    let last = subject.list(&Filter::default(), Some(rows[49].key), 10);
    assert_eq!((last.rows.len(), last.next), (10, None), "a full page may be the last");
    let behind = subject.list(&Filter::default(), Some(rows[59].key), 10);
    assert_eq!((behind.rows.len(), behind.next), (0, None));
}

pub fn s7_a_list_is_filtered_by_status(make: Make<'_>) {
    let (subject, rows) = filled(make);
    for status in Status::ALL {
        let filter = Filter { statuses: vec![status], ..Filter::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), 10, "{status:?}");
    }
    let sets = [
        vec![Status::Terminated, Status::Pending],
        vec![Status::Failed, Status::Completed],
        vec![Status::Running, Status::Running],
        Status::ALL.to_vec(),
    ];
    for statuses in sets {
        assert_shown(&subject, &rows, &Filter { statuses, ..Filter::default() });
    }
}

pub fn s7_a_list_is_filtered_by_name(make: Make<'_>) {
    let (subject, rows) = filled(make);
    for (name, count) in [("checkout", 20), ("archive", 20), ("check", 0), ("Checkout", 0), ("", 0)] {
        let filter = Filter { name: Some(name.to_owned()), ..Filter::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{name:?}");
    }
}

pub fn s7_a_list_is_filtered_by_the_beginning_of_the_id(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let prefixes = [
        ("order", 24),
        ("order-", 12),
        ("order-1", 2),
        ("orders-1", 3),
        ("Order", 12),
        ("ö", 12),
        ("", 60),
        ("%", 0),
        ("o_der", 0),
        ("order-10-and-more", 0),
        ("\u{10ffff}", 0),
        ("invoice-57", 1),
    ];
    for (prefix, count) in prefixes {
        let filter = Filter { id_prefix: Some(prefix.to_owned()), ..Filter::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{prefix:?}");
    }
}

pub fn s7_a_list_is_filtered_by_being_blocked(make: Make<'_>) {
    let (subject, rows) = filled(make);
    for (blocked, count) in [(true, 9), (false, 51)] {
        let filter = Filter { blocked: Some(blocked), ..Filter::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{blocked}");
    }
}

pub fn s7_filters_of_a_list_hold_together_in_every_page(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let statuses = [vec![], vec![Status::Running, Status::Failed], vec![Status::Completed]];
    let mut shown = 0;
    for statuses in &statuses {
        for name in [None, Some("refund")] {
            for prefix in [None, Some("order"), Some("i")] {
                for blocked in [None, Some(true), Some(false)] {
                    let filter = Filter {
                        statuses: statuses.clone(),
                        name: name.map(str::to_owned),
                        id_prefix: prefix.map(str::to_owned),
                        blocked,
                        ..Filter::default()
                    };
                    shown += assert_shown(&subject, &rows, &filter);
                }
            }
        }
    }
    assert!(shown > 100, "most of these filters show something: {shown}");
}

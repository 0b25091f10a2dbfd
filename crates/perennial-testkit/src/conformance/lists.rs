//! S7: lists of instances.

use perennial_core::store::{
    Blocked, CommitOutcome, Count, Criteria, EndPlace, InstanceRow, RowChange, Status,
};
use perennial_core::{EventId, ParentLink};

use super::instances::{Build, attributes, blocked, key, member, row};
use super::subject::{Make, Subject};
use crate::Rng;

/// The start time of the first row.
const BEGUN_MS: u64 = 1_700_000_000_000;

/// Similar values by position; rows at other positions have none.
const CUSTOMERS: [Option<&str>; 10] = [
    Some("\"x\""),
    Some("\"X\""),
    Some("1"),
    Some("1.0"),
    Some("\"1\""),
    None,
    Some("null"),
    Some("{\"a\": [1, 2]}"),
    Some("{\"a\":[1,2]}"),
    Some("\"it's \\\"100%\\\"\""),
];

/// Attribute names that a careless query would misinterpret.
const ODD_NAMES: [&str; 4] = ["a.b", "it's", "$[0]", "a\"b"];

/// Rows of all kinds: six statuses, three names, versions and parents, ten customers, some blocked.
fn mixed_rows() -> Vec<InstanceRow> {
    (0..60).map(mixed_row).collect()
}

fn mixed_row(number: usize) -> InstanceRow {
    let id = format!("{}-{number}", ["order", "orders", "invoice", "Order", "ördér"][number % 5]);
    let status = Status::ALL[number / 2 % 6];
    // Not in key order, and not all different.
    let created_ms = BEGUN_MS + u64::try_from(number * 7 % 60 / 2).unwrap() * 100;
    let mut values: Vec<(&str, &str)> =
        CUSTOMERS[number % 10].map(|customer| ("customer", customer)).into_iter().collect();
    if number.is_multiple_of(4) {
        values.push((ODD_NAMES[number / 4 % 4], "true"));
    }
    let parent = |parent: u64| ParentLink {
        instance: format!("parent-{parent}"),
        key: key(parent).to_string(),
        execution: 1,
        event_id: EventId(2),
    };
    InstanceRow {
        name: ["checkout", "refund", "archive"][number % 3].to_owned(),
        version: ["1.0.0", "1.0.0-rc.1", "2.0.0"][number / 3 % 3].to_owned(),
        status,
        blocked: number
            .is_multiple_of(7)
            .then(|| Blocked { pause: blocked().pause.filter(|_| number.is_multiple_of(14)), ..blocked() }),
        attributes: attributes(&values),
        parent: [None, Some(1_000), Some(1_001), Some(30)][number / 5 % 4].map(parent),
        created_ms,
        ended_ms: status.is_final().then(|| created_ms + 50),
        ..row(u64::try_from(number).unwrap(), &id)
    }
}

fn filled(make: Make<'_>) -> (Subject, Vec<InstanceRow>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let rows = mixed_rows();
    // Inserted out of key order, and brought to their final state only later.
    let begun = rows.iter().rev().map(|row| {
        let version = "0.9.0".to_owned();
        let attributes = attributes(&[("customer", "\"x\""), ("old", "1")]);
        let status = Status::Running;
        let row = InstanceRow { status, blocked: None, version, attributes, ended_ms: None, ..row.clone() };
        member(&row.clone()).inserting(row)
    });
    let became = rows.iter().map(|row| {
        member(row).changing(RowChange {
            status: Some(row.status),
            version: Some(row.version.clone()),
            blocked: Some(row.blocked.clone()),
            attributes: Some(row.attributes.clone()),
            ended_ms: row.ended_ms.map(Some),
            ..RowChange::default()
        })
    });
    let outcomes = subject.commit(session, begun.chain(became));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
    (subject, rows)
}

/// All rows of a list, read page by page.
fn paged(subject: &Subject, filter: &Criteria, limit: usize) -> Vec<InstanceRow> {
    let mut rows: Vec<InstanceRow> = Vec::new();
    let mut after = None;
    loop {
        let page = subject.list(filter, after, limit);
        assert!(page.rows.len() <= limit);
        rows.extend(page.rows);
        assert!(page.next.is_none() || page.next != after, "every page makes progress");
        after = page.next;
        if after.is_none() {
            return rows;
        }
        assert_eq!(
            after,
            rows.last().map(|row| row.key),
            "the next page starts after the last row of this one"
        );
    }
}

/// Asserts that a list returns the rows that match the filter, in both orders and for several page sizes, and
/// that counts agree.
fn assert_shown(subject: &Subject, rows: &[InstanceRow], filter: &Criteria) -> usize {
    let expected: Vec<InstanceRow> = rows.iter().filter(|row| filter.matches(row)).cloned().collect();
    let newest_first = Criteria { newest_first: true, ..filter.clone() };
    let reversed: Vec<InstanceRow> = expected.iter().rev().cloned().collect();
    for limit in [1, 2, 7, 1_000] {
        assert_eq!(paged(subject, filter, limit), expected, "{filter:?} in pages of {limit}");
        assert_eq!(paged(subject, &newest_first, limit), reversed, "{newest_first:?} in pages of {limit}");
    }
    let count = Count { rows: u64::try_from(expected.len()).unwrap(), more: false };
    assert_eq!(subject.count(filter, 10_000), count, "{filter:?}");
    assert_eq!(subject.count(&newest_first, 10_000), count, "{newest_first:?}");
    expected.len()
}

pub fn s7_a_list_is_returned_oldest_first_in_pages(make: Make<'_>) {
    let empty = Subject::new(make);
    assert_eq!(empty.list(&Criteria::default(), None, 10), Default::default());
    let (subject, rows) = filled(make);
    assert_eq!(assert_shown(&subject, &rows, &Criteria::default()), 60);
    let page = subject.list(&Criteria::default(), None, 10);
    assert_eq!((page.rows.len(), page.next), (10, Some(rows[9].key)));
    let last = subject.list(&Criteria::default(), Some(rows[49].key), 10);
    assert_eq!((last.rows.len(), last.next), (10, None), "a full page may be the last");
    let behind = subject.list(&Criteria::default(), Some(rows[59].key), 10);
    assert_eq!((behind.rows.len(), behind.next), (0, None));
    let smallest = subject.list(&Criteria::default(), None, 0);
    assert_eq!((smallest.rows.len(), smallest.next), (1, Some(rows[0].key)), "no row is skipped");
}

pub fn s7_a_list_is_filtered_by_status(make: Make<'_>) {
    let (subject, rows) = filled(make);
    for status in Status::ALL {
        let filter = Criteria { statuses: vec![status], ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), 10, "{status:?}");
    }
    let sets = [
        vec![Status::Terminated, Status::Pending],
        vec![Status::Failed, Status::Completed],
        vec![Status::Running, Status::Running],
        Status::ALL.to_vec(),
    ];
    for statuses in sets {
        assert_shown(&subject, &rows, &Criteria { statuses, ..Criteria::default() });
    }
}

pub fn s7_a_list_is_filtered_by_name(make: Make<'_>) {
    let (subject, rows) = filled(make);
    for (name, count) in [("checkout", 20), ("archive", 20), ("check", 0), ("Checkout", 0), ("", 0)] {
        let filter = Criteria { name: Some(name.to_owned()), ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{name:?}");
    }
}

pub fn s7_a_list_is_filtered_by_a_prefix_of_the_id(make: Make<'_>) {
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
        let filter = Criteria { id_prefix: Some(prefix.to_owned()), ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{prefix:?}");
    }
}

pub fn s7_a_list_is_filtered_by_being_blocked(make: Make<'_>) {
    let (subject, rows) = filled(make);
    for (blocked, count) in [(true, 9), (false, 51)] {
        let filter = Criteria { blocked: Some(blocked), ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{blocked}");
    }
    for (paused, count) in [(true, 5), (false, 55)] {
        let filter = Criteria { paused: Some(paused), ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{paused}");
    }
}

pub fn n14_an_instance_that_waits_for_code_is_not_listed_as_blocked(make: Make<'_>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let waits = Blocked { waits_until_ms: Some(BEGUN_MS), pause: None, ..blocked() };
    let rows = [
        InstanceRow { blocked: Some(waits), ..row(1, "waits") },
        InstanceRow { blocked: Some(Blocked { pause: None, ..blocked() }), ..row(2, "blocked") },
        row(3, "runs"),
    ];
    for row in &rows {
        subject.write(session, member(row).inserting(row.clone()));
    }
    for (blocked, count) in [(Some(true), 1), (Some(false), 2), (None, 3)] {
        let filter = Criteria { blocked, ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{blocked:?}");
    }
}

pub fn s7_a_list_is_returned_newest_first_on_request(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let newest_first = Criteria { newest_first: true, ..Criteria::default() };
    let page = subject.list(&newest_first, None, 10);
    assert_eq!((&page.rows[0], page.rows.len(), page.next), (&rows[59], 10, Some(rows[50].key)));
    let last = subject.list(&newest_first, Some(rows[10].key), 10);
    assert_eq!(
        (&last.rows[0], last.rows.len(), last.next),
        (&rows[9], 10, None),
        "a full page may be the last"
    );
    let behind = subject.list(&newest_first, Some(rows[0].key), 10);
    assert_eq!((behind.rows.len(), behind.next), (0, None));
    // A position need not belong to a row.
    let from_nowhere = subject.list(&newest_first, Some(key(10_000)), 1);
    assert_eq!(from_nowhere.rows, rows[59..]);
    assert_eq!(subject.list(&Criteria::default(), Some(key(10_000)), 1).rows, []);
}

pub fn s7_a_list_is_filtered_by_version(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let versions = [("1.0.0", 21), ("1.0.0-rc.1", 21), ("2.0.0", 18), ("1.0", 0), ("0.9.0", 0), ("", 0)];
    for (version, count) in versions {
        let filter = Criteria { version: Some(version.to_owned()), ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{version:?}");
    }
}

pub fn s7_a_list_is_filtered_by_parent(make: Make<'_>) {
    let (subject, rows) = filled(make);
    // 30 is in the list, 5 has no children, and 2,000 does not exist.
    for (parent, count) in [(1_000, 15), (1_001, 15), (30, 15), (5, 0), (2_000, 0)] {
        let filter = Criteria { parent: Some(key(parent)), ..Criteria::default() };
        assert_eq!(assert_shown(&subject, &rows, &filter), count, "{parent}");
    }
}

pub fn s7_a_list_is_filtered_by_attributes_as_json_text(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let shown = |pairs: &[(&str, &str)]| {
        let filter = Criteria { attributes: attributes(pairs), ..Criteria::default() };
        assert_shown(&subject, &rows, &filter)
    };
    for customer in CUSTOMERS.into_iter().flatten() {
        assert_eq!(shown(&[("customer", customer)]), 6, "{customer}");
    }
    // Equal JSON values with different text are different here.
    for other in ["\"\\u0078\"", "1.00", "true", "{\"a\" : [1, 2]}", "\"it's \"", "\"%\"", "[]"] {
        assert_eq!(shown(&[("customer", other)]), 0, "{other}");
    }
    for name in ["Customer", "custome", "customer ", "", "a", "old"] {
        assert_eq!(shown(&[(name, "1")]), 0, "{name:?}");
    }
    for (name, count) in ODD_NAMES.into_iter().zip([4, 4, 4, 3]) {
        assert_eq!(shown(&[(name, "true")]), count, "{name}");
        assert_eq!(shown(&[(name, "false")]), 0, "{name}");
    }
    // All conditions must hold.
    assert_eq!(shown(&[("customer", "\"x\""), ("a.b", "true")]), 1);
    assert_eq!(shown(&[("customer", "\"x\""), ("a.b", "false")]), 0);
    assert_eq!(shown(&[("customer", "\"x\""), ("none", "true")]), 0);
    assert_eq!(shown(&[]), 60);
}

pub fn s7_a_list_is_filtered_by_times(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let times = [0, BEGUN_MS, BEGUN_MS + 50, BEGUN_MS + 51, BEGUN_MS + 1_000, BEGUN_MS + 2_900, u64::MAX];
    let mut shown = 0;
    for at_ms in times {
        let filters = [
            Criteria { created_from_ms: Some(at_ms), ..Criteria::default() },
            Criteria { created_before_ms: Some(at_ms), ..Criteria::default() },
            Criteria { ended_before_ms: Some(at_ms), ..Criteria::default() },
            Criteria { ended_from_ms: Some(at_ms), ..Criteria::default() },
        ];
        shown += filters.map(|filter| assert_shown(&subject, &rows, &filter)).into_iter().sum::<usize>();
        let between = Criteria {
            created_from_ms: Some(BEGUN_MS + 400),
            created_before_ms: Some(at_ms),
            ..Criteria::default()
        };
        shown += assert_shown(&subject, &rows, &between);
    }
    assert!(shown > 500, "most of these filters match rows: {shown}");
    // Ranges include their start and exclude their end.
    let at = |from: u64, before: u64| Criteria {
        created_from_ms: Some(BEGUN_MS + from),
        created_before_ms: Some(BEGUN_MS + before),
        ..Criteria::default()
    };
    assert_eq!(assert_shown(&subject, &rows, &at(700, 701)), 2);
    assert_eq!(assert_shown(&subject, &rows, &at(700, 700)), 0);
    let ended = |before_ms| Criteria { ended_before_ms: Some(before_ms), ..Criteria::default() };
    assert_eq!(assert_shown(&subject, &rows, &ended(u64::MAX)), 40, "only ended instances");
}

pub fn s7_random_filters_return_the_matching_rows(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let mut rng = Rng::new(7);
    let mut shown = 0;
    for _ in 0..150 {
        // Derived from an existing row, so that most filters match something.
        let like = rng.pick(&rows).clone();
        let mut filter = Criteria::default();
        if rng.percent(30) {
            filter.statuses = vec![like.status, *rng.pick(&Status::ALL)];
        }
        filter.name = rng.percent(25).then(|| like.name.clone());
        filter.version = rng.percent(25).then(|| like.version.clone());
        filter.id_prefix = rng.percent(25).then(|| like.id.chars().take(rng.below(7)).collect());
        filter.blocked = rng.percent(25).then_some(like.blocked.is_some());
        filter.parent = rng.percent(20).then(|| key(*rng.pick(&[1_000, 1_001, 30])));
        if rng.percent(25) {
            filter.attributes = like.attributes.clone();
        }
        filter.created_from_ms = rng.percent(20).then(|| like.created_ms - rng.between(0, 500));
        filter.created_before_ms = rng.percent(20).then(|| like.created_ms + rng.between(0, 500));
        filter.ended_before_ms = rng.percent(15).then(|| BEGUN_MS + rng.between(0, 3_000));
        filter.ended_from_ms = rng.percent(15).then(|| BEGUN_MS + rng.between(0, 3_000));
        shown += assert_shown(&subject, &rows, &filter);
    }
    assert!(shown > 300, "many of these filters match rows: {shown}");
}

pub fn s7_filters_of_a_list_apply_to_every_page(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let statuses = [vec![], vec![Status::Running, Status::Failed], vec![Status::Completed]];
    let mut shown = 0;
    for statuses in &statuses {
        for name in [None, Some("refund")] {
            for prefix in [None, Some("order"), Some("i")] {
                for blocked in [None, Some(true), Some(false)] {
                    let filter = Criteria {
                        statuses: statuses.clone(),
                        name: name.map(str::to_owned),
                        id_prefix: prefix.map(str::to_owned),
                        blocked,
                        ..Criteria::default()
                    };
                    shown += assert_shown(&subject, &rows, &filter);
                }
            }
        }
    }
    assert!(shown > 100, "most of these filters match rows: {shown}");
}

/// All rows of a list in the order of the end, read page by page.
fn paged_by_end(subject: &Subject, filter: &Criteria, limit: usize) -> Vec<InstanceRow> {
    let (mut rows, mut place): (Vec<InstanceRow>, _) = (Vec::new(), EndPlace::first());
    loop {
        let page = subject.list(&Criteria { by_end: Some(place), ..filter.clone() }, None, limit);
        assert!(page.rows.len() <= limit);
        rows.extend(page.rows);
        let Some(next) = page.next else { return rows };
        place = rows.last().and_then(EndPlace::of).unwrap();
        assert_eq!(next, place.key, "the next page starts after the last row of this one");
    }
}

pub fn h26_a_list_is_returned_in_the_order_of_the_end(make: Make<'_>) {
    let (subject, rows) = filled(make);
    let ended = Criteria { ended_from_ms: Some(0), ..Criteria::default() };
    let filters = [
        ended.clone(),
        Criteria { statuses: vec![Status::Failed], ..ended.clone() },
        Criteria { statuses: vec![Status::Completed, Status::Terminated], ..ended.clone() },
        Criteria { statuses: vec![Status::Running], ..ended.clone() },
        Criteria { name: Some("refund".to_owned()), ..ended.clone() },
        Criteria { version: Some("2.0.0".to_owned()), ..ended.clone() },
        Criteria { id_prefix: Some("order".to_owned()), newest_first: true, ..ended.clone() },
        Criteria { blocked: Some(true), ..ended.clone() },
        Criteria { parent: Some(key(1_000)), ..ended.clone() },
        Criteria { attributes: attributes(&[("customer", "\"x\"")]), ..ended.clone() },
        Criteria { created_from_ms: Some(BEGUN_MS + 500), ..ended.clone() },
        Criteria { ended_from_ms: Some(BEGUN_MS + 1_050), ..ended.clone() },
        Criteria { ended_before_ms: Some(BEGUN_MS + 1_050), ..ended },
    ];
    let mut shown = 0;
    for filter in filters {
        let mut expected: Vec<InstanceRow> = rows.iter().filter(|row| filter.matches(row)).cloned().collect();
        expected.sort_by_key(|row| std::cmp::Reverse((row.ended_ms, row.key)));
        for limit in [1, 2, 7, 1_000] {
            assert_eq!(paged_by_end(&subject, &filter, limit), expected, "{filter:?} in pages of {limit}");
        }
        let count = Count { rows: u64::try_from(expected.len()).unwrap(), more: false };
        let by_end = Criteria { by_end: Some(EndPlace::first()), ..filter };
        assert_eq!(subject.count(&by_end, 10_000), count, "{by_end:?}");
        shown += expected.len();
    }
    assert!(shown > 100, "{shown}");
}

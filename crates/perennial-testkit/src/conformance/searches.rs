//! S15, S16, S17: lists by conditions on attributes.
//!
//! The expected rows of each condition are written out here, independently of `Criteria`, so that mistakes in
//! it are found.

use perennial_core::store::{
    CommitOutcome, Condition, Count, Criteria, InstanceRow, RowChange, Status, attribute,
};

use super::instances::{Build, attributes, key, member, row};
use super::subject::{Make, Subject};

/// Values of all types, one per instance, in no order.
const VALUES: [&str; 30] = [
    "10",
    "\"Oslo\"",
    "true",
    "-1",
    "\"osaka\"",
    "9.5",
    "\"Os\"",
    "-1.5",
    "[1]",
    "0",
    "\"10\"",
    "18446744073709551616",
    "\"Øs\"",
    "false",
    "1e2",
    "\"\"",
    "9007199254740993",
    "\"😀 smile\"",
    "10.0",
    "{\"a\":1}",
    "\"Osl\\u00f8\"",
    "9007199254740992",
    "-1e-3",
    "\"\\uffff\"",
    "0.1",
    "\"it's 100%_\"",
    "-18446744073709551616",
    "\"O\"",
    "\"Os\\u0000\"",
    "-0.0",
];

/// One instance per value, and some without the attribute.
fn searchable(make: Make<'_>) -> (Subject, Vec<InstanceRow>) {
    let subject = Subject::new(make);
    let session = subject.own_all();
    let mut rows: Vec<InstanceRow> = (0..).zip(VALUES).map(|(number, value)| valued(number, value)).collect();
    rows.push(InstanceRow { attributes: attributes(&[("other", "10")]), ..row(100, "other") });
    rows.push(row(101, "nothing"));
    // Inserted with one value, and given another later.
    let begun = rows.iter().map(|row| {
        let first = InstanceRow { attributes: attributes(&[("v", "10"), ("old", "1")]), ..row.clone() };
        member(row).inserting(first)
    });
    let became = rows.iter().map(|row| {
        let change = RowChange { attributes: Some(row.attributes.clone()), ..RowChange::default() };
        member(row).changing(change)
    });
    let outcomes = subject.commit(session, begun.chain(became));
    assert!(outcomes.iter().all(|outcome| matches!(outcome, CommitOutcome::Durable { .. })));
    (subject, rows)
}

fn valued(number: u64, value: &str) -> InstanceRow {
    InstanceRow { attributes: attributes(&[("v", value)]), ..row(number, &format!("i-{number}")) }
}

fn searching(conditions: Vec<Condition>) -> Criteria {
    Criteria { conditions, ..Criteria::default() }
}

/// The values of all rows of a list, with every page size and in both orders.
fn values(subject: &Subject, filter: &Criteria) -> Vec<String> {
    let value =
        |row: &InstanceRow| row.attributes.get("v").map_or("none", |value| value.as_json()).to_owned();
    let all = paged(subject, filter, 1_000, || ());
    for limit in [1, 3] {
        assert_eq!(paged(subject, filter, limit, || ()), all, "{filter:?} in pages of {limit}");
    }
    let mut newest = paged(subject, &Criteria { newest_first: true, ..filter.clone() }, 2, || ());
    newest.reverse();
    assert_eq!(newest, all, "{filter:?} newest first");
    let count = Count { rows: u64::try_from(all.len()).unwrap(), more: false };
    assert_eq!(subject.count(filter, 1_000), count, "{filter:?}");
    all.iter().map(value).collect()
}

/// All rows of a list, with a callback after each page.
fn paged(subject: &Subject, filter: &Criteria, limit: usize, mut between: impl FnMut()) -> Vec<InstanceRow> {
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let page = subject.list(filter, after, limit);
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
        between();
    }
}

/// Asserts that a set of conditions matches exactly these values, in any order.
#[track_caller]
fn assert_values(subject: &Subject, conditions: Vec<Condition>, expected: &[&str]) {
    let filter = searching(conditions);
    let mut shown = values(subject, &filter);
    shown.sort();
    let mut expected: Vec<&str> = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(shown, expected, "{:?}", filter.conditions);
}

pub fn s15_numbers_are_compared_by_value_and_exactly(make: Make<'_>) {
    let (subject, _) = searchable(make);
    let below_zero = ["-1", "-1.5", "-1e-3", "-18446744073709551616"];
    let v = || attribute("v");
    assert_values(&subject, vec![v().less_than(0)], &below_zero);
    assert_values(&subject, vec![v().at_most(0)], &[&below_zero[..], &["0", "-0.0"]].concat());
    assert_values(&subject, vec![v().less_than(-1)], &["-1.5", "-18446744073709551616"]);
    assert_values(&subject, vec![v().equal_to(10)], &["10", "10.0"]);
    assert_values(&subject, vec![v().equal_to(100)], &["1e2"]);
    assert_values(&subject, vec![v().greater_than(0), v().less_than(10)], &["9.5", "0.1"]);
    assert_values(&subject, vec![v().greater_than(9.5), v().at_most(100.0)], &["10", "10.0", "1e2"]);
    // Neighbouring integers that are the same as floats.
    let large = 9_007_199_254_740_992_u64;
    assert_values(&subject, vec![v().greater_than(large)], &["9007199254740993", "18446744073709551616"]);
    assert_values(&subject, vec![v().equal_to(large)], &["9007199254740992"]);
    // Larger than any machine integer.
    let huge: Condition = "v>=18446744073709551616".parse().unwrap();
    assert_values(&subject, vec![huge], &["18446744073709551616"]);
    assert_values(&subject, vec![v().greater_than(0), v().less_than(0)], &[]);
}

pub fn s15_text_is_compared_by_code_points(make: Make<'_>) {
    let (subject, _) = searchable(make);
    let v = || attribute("v");
    let first = ["\"\"", "\"10\""];
    assert_values(&subject, vec![v().less_than("O")], &first);
    assert_values(&subject, vec![v().at_most("O")], &[&first[..], &["\"O\""]].concat());
    assert_values(
        &subject,
        vec![v().at_least("Os"), v().less_than("Ot")],
        &["\"Os\"", "\"Os\\u0000\"", "\"Oslo\"", "\"Osl\\u00f8\""],
    );
    assert_values(
        &subject,
        vec![v().greater_than("Os"), v().at_most("Oslo")],
        &["\"Os\\u0000\"", "\"Oslo\""],
    );
    assert_values(
        &subject,
        vec![v().greater_than("o")],
        &["\"osaka\"", "\"Øs\"", "\"\\uffff\"", "\"😀 smile\""],
    );
    // By code points an emoji sorts after U+FFFF; in UTF-16 it does not.
    assert_values(&subject, vec![v().greater_than("\u{ffff}")], &["\"😀 smile\""]);
    assert_values(&subject, vec![v().equal_to("Oslø")], &["\"Osl\\u00f8\""]);
    assert_values(&subject, vec![v().equal_to("10")], &["\"10\""]);
}

pub fn s15_text_is_found_by_its_prefix(make: Make<'_>) {
    let (subject, _) = searchable(make);
    let starting = |prefix: &str| vec![attribute("v").starts_with(prefix)];
    assert_values(&subject, starting("Os"), &["\"Os\"", "\"Os\\u0000\"", "\"Oslo\"", "\"Osl\\u00f8\""]);
    assert_values(&subject, starting("Osl"), &["\"Oslo\"", "\"Osl\\u00f8\""]);
    assert_values(&subject, starting("Osl\u{f8}"), &["\"Osl\\u00f8\""]);
    assert_values(&subject, starting("Ø"), &["\"Øs\""]);
    assert_values(&subject, starting("😀"), &["\"😀 smile\""]);
    assert_values(&subject, starting("\u{ffff}"), &["\"\\uffff\""]);
    assert_values(&subject, starting("it's 100%"), &["\"it's 100%_\""]);
    assert_values(&subject, starting("1"), &["\"10\""]);
    let texts: Vec<&str> = VALUES.into_iter().filter(|value| value.starts_with('"')).collect();
    assert_values(&subject, starting(""), &texts);
    for nothing in ["%", "_", "O_", "oslo", "Oslo ", "\u{10ffff}", "[", "t"] {
        assert_values(&subject, starting(nothing), &[]);
    }
}

pub fn s15_values_of_different_types_never_match(make: Make<'_>) {
    let (subject, _) = searchable(make);
    let v = || attribute("v");
    let is_number = |value: &&str| value.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let numbers: Vec<&str> = VALUES.into_iter().filter(is_number).collect();
    let texts: Vec<&str> = VALUES.into_iter().filter(|value| value.starts_with('"')).collect();
    let lowest: Condition = "v>=-1e999".parse().unwrap();
    let highest: Condition = "v<=1e999".parse().unwrap();
    assert_values(&subject, vec![lowest], &numbers);
    assert_values(&subject, vec![highest], &numbers);
    assert_values(&subject, vec![v().at_least("")], &texts);
    assert_values(&subject, vec![v().at_most("\u{10ffff}\u{10ffff}")], &texts);
    assert_values(&subject, vec![v().at_least(false)], &["false", "true"]);
    assert_values(&subject, vec![v().greater_than(false)], &["true"]);
    assert_values(&subject, vec![v().less_than(true)], &["false"]);
    assert_values(&subject, vec![v().less_than(false)], &[]);
    // Lists and objects support only equality.
    for (bound, value) in [("[1]", "[1]"), ("{\"a\":1}", "{\"a\":1}")] {
        assert_values(&subject, vec![format!("v={bound}").parse().unwrap()], &[value]);
        for operator in ["<", "<=", ">", ">="] {
            assert_values(&subject, vec![format!("v{operator}{bound}").parse().unwrap()], &[]);
        }
    }
    assert_values(&subject, vec!["v>=null".parse().unwrap()], &[]);
    assert_values(&subject, vec![v().at_least(0), v().starts_with("1")], &[]);
}

pub fn s16_conditions_combine_with_all_other_filters(make: Make<'_>) {
    let (subject, rows) = searchable(make);
    let both = vec![attribute("v").equal_to(10), attribute("other").equal_to(10)];
    assert_values(&subject, both, &[]);
    assert_values(&subject, vec![attribute("other").at_least(0)], &["none"]);
    for unknown in ["V", "v ", "", "old"] {
        assert_values(&subject, vec![attribute(unknown).at_least(0)], &[]);
    }
    // `attributes` compares text; a condition compares values.
    let text = attributes(&[("v", "10")]);
    let ten =
        Criteria { attributes: text, conditions: vec![attribute("v").at_least(10)], ..Criteria::default() };
    assert_eq!(values(&subject, &ten), ["10"]);
    let named =
        Criteria { id_prefix: Some("i-1".to_owned()), ..searching(vec![attribute("v").less_than(0)]) };
    let shown: Vec<&InstanceRow> = rows.iter().filter(|row| named.matches(row)).collect();
    assert_eq!(values(&subject, &named).len(), shown.len());
    let ended = Criteria { statuses: vec![Status::Failed], ..searching(vec![attribute("v").less_than(0)]) };
    assert_eq!(values(&subject, &ended).len(), 0);
}

pub fn s17_pages_stay_consistent_while_attributes_change(make: Make<'_>) {
    for newest_first in [false, true] {
        let subject = Subject::new(make);
        let session = subject.own_all();
        let rows: Vec<InstanceRow> = (0..40)
            // The order of the values is not that of the keys.
            .map(|number| valued(number, &(number * 7 % 40).to_string()))
            .collect();
        subject.commit(session, rows.iter().map(|row| member(row).inserting(row.clone())));
        let filter = Criteria { newest_first, ..searching(vec![attribute("v").at_least(10)]) };
        let (mut round, mut next_new) = (0, 1_000);
        let shown = paged(&subject, &filter, 5, || {
            round += 1;
            let change = |number: u64, value: &str| {
                let row = &rows[usize::try_from(number).unwrap()];
                let attributes = Some(attributes(&[("v", value)]));
                member(row).changing(RowChange { attributes, ..RowChange::default() })
            };
            // Of the first ten matching rows, values move all over the range, before and after the current
            // page, and still match; two more rows stop matching, and a new one is inserted.
            let mut changes: Vec<_> = (0..10)
                .filter(|number| number * 7 % 40 >= 10)
                .map(|number| change(number, &format!("{}.5", 10 + (number + round) % 30)))
                .collect();
            changes.push(change(20 + round % 2, "-5"));
            subject.commit(session, changes);
            let new = valued(next_new, "30");
            subject.write(session, member(&new).inserting(new.clone()));
            next_new += 1;
        });
        let keys: Vec<_> = shown.iter().map(|row| row.key).collect();
        assert!(
            keys.is_sorted_by(|a, b| if newest_first { a > b } else { a < b }),
            "each exactly once, in order"
        );
        for number in (0..40).filter(|number| number * 7 % 40 >= 10 && ![20, 21].contains(number)) {
            assert!(keys.contains(&key(number)), "{number} matched all the time");
        }
        for number in (0..40).filter(|number| number * 7 % 40 < 10) {
            assert!(!keys.contains(&key(number)), "{number} never matched");
        }
        assert!(round > 3, "there were several pages");
    }
}

//! Rows that were changed from outside trouble nobody else, and are named.

use std::sync::Arc;

use crate::support::Place;
use perennial_core::store::{NewRequest, RequestOutcome, SendRequest, Store};
use perennial_sqlite::{SqliteOptions, SqliteStore};
use perennial_testkit::conformance::instances::{Build, member, message, row, start};
use perennial_testkit::conformance::wait_for;

/// A row whose number became the next one to be given must not stand in the way of all further messages.
#[test]
fn i16_a_message_whose_number_was_changed_does_not_stop_the_next() {
    let place = Place::new();
    let owner = place.owner();
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    owner.write(session, start(&row(2, "b")));
    let first = owner.sent(message("a", None, "1"));
    let changed = place.connection().execute("UPDATE inbox SET number = number + 1", []).unwrap();
    assert_eq!(changed, 1);
    let second = owner.sent(message("b", None, "2"));
    assert_eq!(second, first + 2);
    assert_eq!(owner.sent(message("b", None, "3")), first + 3);
}

#[test]
fn i16_a_request_with_the_greatest_number_does_not_stop_the_next() {
    let place = Place::new();
    let store = SqliteStore::open(place.path(), SqliteOptions::default()).unwrap();
    let request = || NewRequest {
        instance: "a".to_owned(),
        key: None,
        patience_ms: 60_000,
        after: None,
        body: Arc::from(*b"question"),
    };
    wait_for(|reply| {
        store.send(vec![SendRequest::Start { row: Box::new(row(1, "a")), body: Arc::from(*b"start") }], reply)
    })
    .unwrap();
    let put = || wait_for(|reply| store.put_request(request(), reply)).unwrap();
    assert!(matches!(put(), RequestOutcome::Written(1)));
    place.connection().execute("UPDATE requests SET number = 9223372036854775807", []).unwrap();
    assert!(matches!(put(), RequestOutcome::Written(2)));
    assert!(matches!(put(), RequestOutcome::Written(3)));
}

/// No load of the instance shows it, because turns are read from the first on.
#[test]
fn i16_a_turn_with_a_number_that_no_turn_has_is_named() {
    let place = Place::new();
    let a = row(1, "a");
    {
        let owner = place.owner();
        let session = owner.own_all();
        owner.write(session, start(&a));
        owner.write(session, member(&a).turn(2, "second"));
    }
    place.connection().execute("UPDATE turns SET number = -76 WHERE number = 2", []).unwrap();
    let store = SqliteStore::open(place.path(), SqliteOptions::default()).unwrap();
    let (mut after, mut damage) = (None, Vec::new());
    loop {
        let checked = wait_for(|reply| store.check_rows(after, 100, reply)).unwrap();
        damage.extend(checked.damage);
        after = checked.next;
        if after.is_none() {
            break;
        }
    }
    let named: Vec<_> = damage.iter().map(|row| (row.id.as_deref(), row.problem.as_str())).collect();
    assert_eq!(named, [(Some("a"), "no turn has number -76")]);
}

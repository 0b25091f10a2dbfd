//! Text from callers is never interpreted as SQL.

use perennial_core::store::{Criteria, InstanceRow, SendOutcome, SendRequest, Served, attribute};
use perennial_testkit::conformance::instances::{
    Build, attributes, bytes, member, message, row, start, task,
};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, durable, schema_of, subject};

const TEXTS: [&str; 8] = [
    "'; DROP TABLE instances; --",
    "\"; DROP TABLE instances; --",
    "$1",
    "\\'; SELECT 1; --",
    "%_\\",
    "@.instances",
    "{a,b}\",NULL",
    "$$; DROP SCHEMA public CASCADE; $$",
];

#[test]
fn s9_ids_names_keys_and_attributes_come_back_as_they_were() {
    let store = subject(&TestServer::shared().new_schema());
    let session = store.own_all();
    for (number, text) in (1..).zip(TEXTS) {
        let mut a =
            InstanceRow { name: text.to_owned(), version: text.to_owned(), ..row(number, text) }.sealed();
        let json = serde_json::to_string(text).unwrap();
        a.attributes = attributes(&[(text, &json)]);
        let mut of_it = task(&a, 2);
        (of_it.name, of_it.tag) = (text.to_owned(), Some(text.to_owned()));
        assert_eq!(store.commit(session, [start(&a).putting([of_it.clone()])]), [durable()], "{text}");
        assert_eq!(store.find(text), Some(a.clone()));
        let number = store.sent(message(text, Some(text), text));
        assert_eq!(store.send(message(text, Some(text), text)), SendOutcome::Duplicate(number));
        assert_eq!(store.load(&a, 0).unwrap().inbox[0].body, bytes(text));
        for filter in [
            Criteria { name: Some(text.to_owned()), ..Criteria::default() },
            Criteria { version: Some(text.to_owned()), ..Criteria::default() },
            Criteria { id_prefix: Some(text.to_owned()), ..Criteria::default() },
            Criteria { conditions: vec![attribute(text).equal_to(text)], ..Criteria::default() },
            Criteria { conditions: vec![attribute(text).starts_with(text)], ..Criteria::default() },
        ] {
            assert_eq!(store.list(&filter, None, 10).rows, [a.clone()], "{filter:?}");
            assert_eq!(store.count(&filter, 10).rows, 1, "{filter:?}");
        }
        let served = Served {
            names: [text.to_owned()].into(),
            tags: [text.to_owned()].into(),
            prefixes: [text.to_owned()].into(),
        };
        let taken = store.take(session, &served, 10, 60_000);
        assert_eq!(taken.iter().map(|task| task.id).collect::<Vec<_>>(), [of_it.id]);
        store.write_setting(text, Some(text));
        assert_eq!(store.setting(text), Some(bytes(text)));
    }
    assert_eq!(store.list(&Criteria::default(), None, 100).rows.len(), TEXTS.len());
}

#[test]
fn s9_a_schema_may_have_any_name() {
    let server = TestServer::shared();
    let plain = server.new_schema();
    for (number, odd) in ["a\"; DROP TABLE x; --", "Sch ema", "select", "ü'$1"].into_iter().enumerate() {
        let schema = format!("{odd}{number}{}", &schema_of(&plain)[schema_of(&plain).len() - 8..]);
        let encoded: String = schema.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let url = server.with_schema(&encoded);
        let store = subject(&url);
        let session = store.own_all();
        assert_eq!(store.commit(session, [start(&row(1, "a"))]), [durable()]);
        let found = Sql::connect(&plain).query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema]);
        assert_eq!(found.len(), 1, "{schema}");
    }
}

#[test]
fn s2_text_that_cannot_be_stored_is_refused_and_sinks_nobody() {
    let store = subject(&TestServer::shared().new_schema());
    let session = store.own_all();
    let (good, odd) = (row(1, "a"), row(2, "a\0b"));
    let outcomes = store.commit(session, [start(&odd), start(&good)]);
    assert!(
        matches!(&outcomes[..], [perennial_core::store::CommitOutcome::Rejected(reason), second]
            if reason.contains("NUL") && *second == durable()),
        "{outcomes:?}"
    );
    assert_eq!((store.find("a\0b"), store.find("a")), (None, Some(good.clone())));
    assert_eq!(store.send(message("a\0b", None, "x")), SendOutcome::NoInstance);
    let started = store.try_send(vec![SendRequest::Start { row: Box::new(odd), body: bytes("x") }]);
    assert!(started.unwrap_err().to_string().contains("NUL"));
    let filter = Criteria { name: Some("\0".to_owned()), ..Criteria::default() };
    assert_eq!(store.list(&filter, None, 10).rows, []);
    store.write(session, member(&good).turn(2, "goes on"));
}

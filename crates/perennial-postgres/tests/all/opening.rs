//! Opening a store: what is created, what is refused, and what happens if many processes open it at once.

use std::sync::Barrier;
use std::thread;

use perennial_core::store::{Criteria, StoreError};
use perennial_postgres::{PostgresOptions, open};
use perennial_testkit::conformance::instances::{message, row, start};
use perennial_testkit::postgres::TestServer;

use crate::support::{Sql, durable, options, schema_of, subject, without_schema};

fn refusal(url: &str) -> String {
    match open(url, options()) {
        Err(StoreError::CannotOpen(reason)) => reason,
        Err(other) => panic!("it cannot be opened: {other:?}"),
        Ok(_) => panic!("it should not open"),
    }
}

/// The URL with another login.
fn as_role(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    format!("{scheme}://{role}:secret@{}", rest.rsplit_once('@').unwrap().1)
}

#[test]
fn n15_fifty_nodes_at_once_make_one_schema() {
    let url = TestServer::shared().new_schema();
    let together = Barrier::new(50);
    thread::scope(|scope| {
        let opening: Vec<_> = (0..50)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    subject(&format!("{url}&connections=1&hints=off")).find("a")
                })
            })
            .collect();
        for opened in opening {
            assert_eq!(opened.join().unwrap(), None);
        }
    });
    let sql = Sql::in_schema(&url);
    assert_eq!((sql.count("meta"), sql.count("shards")), (1, 256));
}

#[test]
fn n15_an_older_node_is_refused_by_a_newer_schema_and_leaves_it_as_it_is() {
    let url = TestServer::shared().new_schema();
    drop(subject(&url));
    let sql = Sql::in_schema(&url);
    sql.run("UPDATE meta SET version = 99, oldest = 99");
    let reason = refusal(&url);
    assert!(
        reason.ends_with(
            "its schema has version 99, and this program knows versions up to 1: a newer Perennial made it; use that one or \
             newer"
        ),
        "{reason}"
    );
    // A newer schema that declares this version compatible is used, and keeps its version.
    sql.run("UPDATE meta SET oldest = 1");
    assert_eq!(subject(&url).find("a"), None);
    assert_eq!(sql.query("SELECT version FROM meta", &[])[0].get::<_, i32>(0), 99);
}

#[test]
fn n15_a_running_node_keeps_working_when_a_newer_one_migrates_the_schema() {
    let url = TestServer::shared().new_schema();
    let running = subject(&format!("{url}&connections=1"));
    let session = running.own_all();
    assert_eq!(running.commit(session, [start(&row(1, "a"))]), [durable()]);
    let sql = Sql::in_schema(&url);
    sql.run("UPDATE meta SET version = 99, oldest = 99");
    assert_eq!(running.commit(session, [start(&row(2, "b"))]), [durable()]);
    // Its next connection as well.
    let backends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE $1 AND pid <> pg_backend_pid()";
    assert!(!sql.query(backends, &[&format!("%{}%", schema_of(&url))]).is_empty());
    assert_eq!(running.find("b"), Some(row(2, "b")));
    running.renew(session).unwrap();
    assert!(refusal(&url).contains("its schema has version 99"));
}

#[test]
fn s9_the_schema_of_another_program_is_refused_and_left_as_it_is() {
    let url = TestServer::shared().new_schema();
    let sql = Sql::connect(&url);
    let schema = schema_of(&url);
    sql.run(&format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.meta (name text)"));
    let reason = refusal(&url);
    assert!(
        reason.ends_with("this is the schema of another program; choose another with ?schema="),
        "{reason}"
    );
    assert_eq!(sql.count(&format!("{schema}.meta")), 0);
}

#[test]
fn s9_two_applications_in_one_database_never_see_each_other() {
    let server = TestServer::shared();
    let (one, other) = (subject(&server.new_schema()), subject(&server.new_schema()));
    let sessions = [one.own_all(), other.own_all()];
    assert_eq!(one.commit(sessions[0], [start(&row(1, "a"))]), [durable()]);
    assert_eq!(one.sent(message("a", None, "hello")), 1);
    assert_eq!(other.find("a"), None);
    assert_eq!(other.list(&Criteria::default(), None, 10).rows, []);
    assert_eq!(other.directory().sessions.len(), 1);
    // The same id and the same key are free in the other schema.
    assert_eq!(other.commit(sessions[1], [start(&row(1, "a"))]), [durable()]);
    assert_eq!(other.load(&row(1, "a"), 0).unwrap().inbox, []);
    assert_eq!(one.load(&row(1, "a"), 0).unwrap().inbox.len(), 1);
}

#[test]
fn s9_a_role_without_rights_is_told_what_it_needs() {
    let server = TestServer::shared();
    let url = server.new_schema();
    let role = schema_of(&url).replace("test", "role");
    let sql = Sql::connect(&url);
    sql.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"));
    let stranger = as_role(&url, &role);
    let reason = refusal(&stranger);
    assert!(reason.contains(&format!("{role} may not use or create the schema")), "{reason}");
    assert!(reason.contains("permission denied for database"), "{reason}");
    drop(subject(&url));
    let reason = refusal(&stranger);
    assert!(
        reason.contains("permission denied for schema") && reason.contains("GRANT USAGE ON SCHEMA"),
        "{reason}"
    );
    assert!(!reason.contains("secret"), "{reason}");
    let schema = schema_of(&url);
    sql.run(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}; \
         GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    ));
    let guest = subject(&stranger);
    let session = guest.own_all();
    assert_eq!(guest.commit(session, [start(&row(1, "a"))]), [durable()]);
}

#[test]
fn s9_a_store_is_not_made_unless_that_is_wanted() {
    let url = TestServer::shared().new_schema();
    let Err(error) = open(&url, PostgresOptions::default().create(false)) else { panic!("there is none") };
    assert!(error.to_string().contains("there is no store in it yet"), "{error}");
    let found =
        Sql::connect(&url).query("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema_of(&url)]);
    assert!(found.is_empty());
    drop(subject(&url));
    assert!(open(&url, PostgresOptions::default().create(false)).is_ok());
}

#[test]
fn s9_a_store_that_is_only_read_refuses_changes() {
    let url = TestServer::shared().new_schema();
    let owner = subject(&url);
    let session = owner.own_all();
    owner.write(session, start(&row(1, "a")));
    let store = open(&url, options().create(false).read_only(true)).unwrap();
    let reader = perennial_testkit::conformance::Subject::over(store);
    assert_eq!(reader.find("a"), Some(row(1, "a")));
    assert!(matches!(reader.try_send(vec![message("a", None, "x")]), Err(StoreError::InUse(_))));
    assert_eq!(owner.load(&row(1, "a"), 0).unwrap().inbox, []);
}

#[test]
fn s9_logins_and_databases_that_do_not_exist_are_refused_with_the_reason() {
    let url = TestServer::shared().new_schema();
    let reason = refusal(&as_role(&url, "nobody_at_all"));
    assert!(reason.contains("nobody_at_all") && !reason.contains("secret"), "{reason}");
    let reason = refusal(&url.replace("/postgres?", "/no_such_database?"));
    assert!(reason.contains("database \"no_such_database\" does not exist"), "{reason}");
    let Err(error) = open("postgres://me@127.0.0.1:1/shop", options()) else {
        panic!("no server listens there")
    };
    assert!(matches!(error, StoreError::Unavailable(_)), "a server that is down may come up: {error}");
}

#[test]
fn s9_a_database_in_another_encoding_is_refused() {
    let url = TestServer::shared().new_schema();
    let database = schema_of(&url).replace("test", "latin");
    Sql::connect(&url)
        .run(&format!("CREATE DATABASE {database} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"));
    let reason = refusal(&without_schema(&url).replace("/postgres", &format!("/{database}")));
    assert!(reason.ends_with("the database is encoded in LATIN1; one in UTF8 is needed"), "{reason}");
}

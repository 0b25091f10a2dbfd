//! TLS connections: what each `sslmode` requires of the server.

use perennial_core::store::StoreError;
use perennial_postgres::open;
use perennial_testkit::postgres::{ServerOptions, TestServer};

use crate::support::{Sql, options, subject};

/// The server's certificate is valid for 127.0.0.1 and signed by `authority.pem`.
fn encrypting_server() -> TestServer {
    let options = ServerOptions::default()
        .unsynced()
        .set("ssl", "on")
        .file("server.crt", include_bytes!("certificates/server.pem"))
        .file("server.key", include_bytes!("certificates/server.key"));
    TestServer::start(&options)
}

fn certificate(name: &str) -> String {
    format!("{}/tests/all/certificates/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn refusal(url: &str) -> String {
    match open(url, options()) {
        Err(StoreError::CannotOpen(reason) | StoreError::Unavailable(reason)) => reason,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{url} should not open"),
    }
}

#[test]
fn s9_each_ssl_mode_checks_what_it_says() {
    let server = encrypting_server();
    let (authority, other) = (certificate("authority.pem"), certificate("other_authority.pem"));
    let url = server.with_schema("perennial");
    // A host name that is not in the certificate.
    let localhost = url.replace("127.0.0.1", "localhost");
    let encrypted = "SELECT count(*) FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a ON a.pid = s.pid \
         WHERE s.ssl AND a.application_name = 'perennial'";
    let sql = Sql::connect(&url);
    for parameters in [
        "&sslmode=require".to_owned(),
        "&sslmode=prefer".to_owned(),
        format!("&sslmode=verify-ca&sslrootcert={authority}"),
        format!("&sslmode=verify-full&sslrootcert={authority}"),
    ] {
        let store = subject(&format!("{url}{parameters}&hints=off"));
        assert_eq!(store.find("a"), None);
        assert!(sql.query(encrypted, &[])[0].get::<_, i64>(0) > 0, "{parameters} encrypts");
    }
    assert_eq!(subject(&format!("{localhost}&sslmode=verify-ca&sslrootcert={authority}")).find("a"), None);
    let reason = refusal(&format!("{localhost}&sslmode=verify-full&sslrootcert={authority}"));
    assert!(reason.contains("not valid for name"), "{reason}");
    for mode in ["verify-ca", "verify-full"] {
        let reason = refusal(&format!("{url}&sslmode={mode}&sslrootcert={other}"));
        assert!(reason.contains("UnknownIssuer") || reason.contains("invalid peer certificate"), "{reason}");
    }
    let reason = refusal(&format!("{url}&sslmode=verify-full&sslrootcert=/nowhere.pem"));
    assert!(reason.contains("sslrootcert /nowhere.pem"), "{reason}");
}

#[test]
fn s9_a_server_without_tls_is_refused_where_tls_is_required() {
    let url = TestServer::shared().new_schema();
    let reason = refusal(&format!("{url}&sslmode=require"));
    assert!(reason.contains("server does not support TLS"), "{reason}");
    assert_eq!(subject(&format!("{url}&sslmode=disable")).find("a"), None);
}

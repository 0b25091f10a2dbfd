//! P8: what a user reads after a mistake, and the exit code that goes with it.

use crate::support::{Said, Shop, run};

fn told(said: &Said) -> String {
    format!("exit {}\n{}{}", said.code, said.stdout, said.stderr)
}

#[test]
fn p8_a_store_that_is_not_there_is_said_to_be_so() {
    insta::assert_snapshot!(told(&run(&["list"], &[])), @r"
        exit 2
        error: which store? Say --store sqlite:PATH, or set PERENNIAL_STORE
        ");
    insta::assert_snapshot!(told(&run(&["list", "--store", "sqlite:no-such.db"], &[])), @r"
        exit 5
        error: PER-0627 no store: there is none at no-such.db; a runtime makes it when it is first started
        ");
    insta::assert_snapshot!(told(&run(&["list", "--store", "shop.db"], &[])), @r#"
        exit 2
        error: PER-0602 unknown store "shop.db": use sqlite:PATH, sqlite::memory: or memory:
        "#);
    insta::assert_snapshot!(told(&run(&["list", "--store", "mysql://localhost"], &[])), @r#"
        exit 2
        error: PER-0602 unknown store "mysql://localhost": use sqlite:PATH, sqlite::memory: or memory:
        "#);
    insta::assert_snapshot!(told(&run(&["list", "--store", "memory:"], &[])), @r"
        exit 5
        error: PER-0506 cannot open the store: a memory store belongs to its process; use the client of that runtime
        ");
    assert!(!std::path::Path::new("no-such.db").exists(), "looking makes no store");
}

#[test]
fn p8_a_file_that_is_no_store_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "these are not the rows that you are looking for").unwrap();
    let said = run(&["list", "--store", &format!("sqlite:{}", file.path().display())], &[]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.stderr.contains("PER-0506"), "{said:?}");
}

#[tokio::test]
async fn p8_unknown_instances_and_bad_filters_are_named() {
    let shop = Shop::stocked().await;
    insta::assert_snapshot!(told(&shop.run(&["show", "order-9"]).await), @r#"
        exit 3
        error: PER-0605 not found: there is no instance "order-9"; check the id and the store, it may have been deleted
        "#);
    insta::assert_snapshot!(told(&shop.run(&["history", "order-1", "--execution", "4"]).await), @r#"
        exit 3
        error: instance "order-1" has no execution 4; the latest is 1
        "#);
    insta::assert_snapshot!(told(&shop.run(&["list", "--parent", "nobody"]).await), @r#"
        exit 3
        error: PER-0605 not found: there is no instance "nobody"; check the id and the store, it may have been deleted
        "#);
    insta::assert_snapshot!(told(&shop.run(&["list", "--status", "done"]).await), @r"
        exit 2
        error: invalid value 'done' for '--status <STATUS>': it is one of pending, running, completed, failed, cancelled, terminated

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(told(&shop.run(&["list", "--attribute", "customer"]).await), @r"
        exit 2
        error: invalid value 'customer' for '--attribute <NAME=VALUE>': write it as NAME=VALUE

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(told(&shop.run(&["list", "--where", "customer"]).await), @r"
        exit 2
        error: invalid value 'customer' for '--where <CONDITION>': PER-0640 bad filter: write it as NAME=VALUE, NAME^=PREFIX, or with <, <=, > or >=

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(told(&shop.run(&["list", "--after", "order-1"]).await), @r#"
        exit 2
        error: PER-0601 invalid name: "order-1" is not an instance key
        "#);
    insta::assert_snapshot!(told(&shop.run(&["prune", "--older-than", "7"]).await), @r"
        exit 2
        error: invalid value '7' for '--older-than <OLDER_THAN>': write it as a number with a unit: 500ms, 90s, 15m, 2h, 7d

        For more information, try '--help'.
        ");
}

#[tokio::test]
async fn p8_bad_inputs_and_requests_without_a_runtime_are_explained() {
    let shop = Shop::stocked().await;
    insta::assert_snapshot!(told(&shop.run(&["start", "checkout", "o", "{\"cents\": 5"]).await), @r"
        exit 2
        error: the input: this is not JSON: EOF while parsing an object at line 1 column 11
        ");
    insta::assert_snapshot!(told(&shop.run(&["start", "checkout", "a::b", "5"]).await), @r#"
        exit 2
        error: PER-0601 invalid name: instance id "a::b": `::` is reserved for the ids of sub-orchestrations
        "#);
    insta::assert_snapshot!(told(&shop.run(&["raise", "order-1", "approved", "true"]).await), @r#"
        exit 4
        error: PER-0607 ended: instance "order-1" has ended; the request had no effect. For more work, start another instance
        "#);
    insta::assert_snapshot!(told(&shop.run(&["query", "counter-1", "count", "--patience", "50ms"]).await), @r#"
        exit 5
        error: PER-0624 not answered: no runtime took the request to instance "counter-1" within 50ms; is one running on this store?
        "#);
    // An update that nobody took was not done, either.
    insta::assert_snapshot!(told(&shop.run(&["update", "counter-1", "add", "1", "--patience", "50ms"]).await), @r#"
        exit 5
        error: PER-0624 not answered: no runtime took the request to instance "counter-1" within 50ms; is one running on this store?
        "#);
}

#[tokio::test]
async fn p8_programs_get_errors_as_json() {
    let shop = Shop::stocked().await;
    insta::assert_snapshot!(told(&shop.run(&["show", "order-9", "--json"]).await), @r#"
        exit 3
        {"error":{"code":"PER-0605","exit":3,"message":"PER-0605 not found: there is no instance \"order-9\"; check the id and the store, it may have been deleted"}}
        "#);
    let usage = shop.run(&["list", "--status", "done", "--json"]).await;
    let error: serde_json::Value = serde_json::from_str(&usage.stderr).unwrap();
    assert_eq!((usage.code, &error["error"]["exit"]), (2, &serde_json::json!(2)));
}

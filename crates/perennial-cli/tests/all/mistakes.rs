//! P8: errors and exit codes after mistakes of users.

use perennial::Payload;

use super::support::{CommandResult, Shop, run};

fn described(result: &CommandResult) -> String {
    format!("exit {}\n{}{}", result.code, result.stdout, result.stderr)
}

#[test]
fn p8_a_missing_store_is_reported() {
    insta::assert_snapshot!(described(&run(&["list"], &[])), @r"
        exit 2
        error: no store is given; pass --store sqlite:PATH or postgres://HOST/DATABASE, or set PERENNIAL_STORE
        ");
    insta::assert_snapshot!(described(&run(&["list", "--store", "sqlite:no-such.db"], &[])), @r"
        exit 5
        error: PER-0627 no store: no-such.db does not exist; a runtime creates it at its first start
        ");
    insta::assert_snapshot!(described(&run(&["list", "--store", "shop.db"], &[])), @r#"
        exit 2
        error: PER-0602 unknown store "shop.db": use sqlite:PATH, postgres://HOST/DATABASE, sqlite::memory: or memory:
        "#);
    insta::assert_snapshot!(described(&run(&["list", "--store", "mysql://localhost"], &[])), @r#"
        exit 2
        error: PER-0602 unknown store "mysql://localhost": use sqlite:PATH, postgres://HOST/DATABASE, sqlite::memory: or memory:
        "#);
    insta::assert_snapshot!(described(&run(&["list", "--store", "memory:"], &[])), @r"
        exit 5
        error: PER-0506 cannot open the store: a memory store belongs to its process; use the client of that runtime
        ");
    assert!(!std::path::Path::new("no-such.db").exists(), "reading creates no store");
}

#[test]
fn p8_a_file_that_is_not_a_store_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "these are not the rows that you are looking for").unwrap();
    let result = run(&["list", "--store", &format!("sqlite:{}", file.path().display())], &[]);
    assert_eq!(result.code, 5, "{result:?}");
    assert!(result.stderr.contains("PER-0506"), "{result:?}");
}

#[tokio::test]
async fn p8_unknown_instances_and_bad_filters_are_named() {
    let shop = Shop::stocked().await;
    insta::assert_snapshot!(described(&shop.run(&["show", "order-9"]).await), @r#"
        exit 3
        error: PER-0605 not found: there is no instance "order-9"; check the id and the store, it may have been deleted
        "#);
    insta::assert_snapshot!(described(&shop.run(&["history", "order-1", "--execution", "4"]).await), @r#"
        exit 3
        error: instance "order-1" has no execution 4; the latest is 1
        "#);
    insta::assert_snapshot!(described(&shop.run(&["list", "--parent", "nobody"]).await), @r#"
        exit 3
        error: PER-0605 not found: there is no instance "nobody"; check the id and the store, it may have been deleted
        "#);
    insta::assert_snapshot!(described(&shop.run(&["list", "--status", "done"]).await), @r"
        exit 2
        error: invalid value 'done' for '--status <STATUS>': expected one of pending, running, completed, failed, cancelled, terminated

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(described(&shop.run(&["list", "--status", "blocked"]).await), @r"
        exit 2
        error: invalid value 'blocked' for '--status <STATUS>': a blocked instance is pending or running; use --blocked

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(described(&shop.run(&["list", "--attribute", "customer"]).await), @r"
        exit 2
        error: invalid value 'customer' for '--attribute <NAME=VALUE>': expected NAME=VALUE

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(described(&shop.run(&["list", "--where", "customer"]).await), @r"
        exit 2
        error: invalid value 'customer' for '--where <CONDITION>': PER-0640 bad filter: write it as NAME=VALUE, NAME^=PREFIX, or with <, <=, > or >=

        For more information, try '--help'.
        ");
    insta::assert_snapshot!(described(&shop.run(&["list", "--after", "order-1"]).await), @r#"
        exit 2
        error: PER-0601 invalid name: "order-1" is not an instance key
        "#);
    insta::assert_snapshot!(described(&shop.run(&["prune", "--older-than", "7"]).await), @r"
        exit 2
        error: invalid value '7' for '--older-than <OLDER_THAN>': expected a number with a unit: 500ms, 90s, 15m, 2h, 7d

        For more information, try '--help'.
        ");
}

#[tokio::test]
async fn p8_bad_inputs_and_requests_without_a_runtime_are_explained() {
    let shop = Shop::stocked().await;
    insta::assert_snapshot!(described(&shop.run(&["start", "checkout", "o", "{\"cents\": 5"]).await), @r"
        exit 2
        error: the input: invalid JSON: EOF while parsing an object at line 1 column 11
        ");
    insta::assert_snapshot!(described(&shop.run(&["start", "checkout", "a::b", "5"]).await), @r#"
        exit 2
        error: PER-0601 invalid name: instance id "a::b": `::` is reserved for the ids of sub-orchestrations
        "#);
    insta::assert_snapshot!(described(&shop.run(&["raise", "order-1", "approved", "true"]).await), @r#"
        exit 4
        error: PER-0607 ended: instance "order-1" has ended; the request had no effect. For more work, start another instance
        "#);
    insta::assert_snapshot!(described(&shop.run(&["query", "counter-1", "count", "--patience", "50ms"]).await), @r#"
        exit 5
        error: PER-0624 not answered: no runtime took the request to instance "counter-1" within 50ms; is one running on this store?
        "#);
    // An update that no runtime took had no effect.
    insta::assert_snapshot!(described(&shop.run(&["update", "counter-1", "add", "1", "--patience", "50ms"]).await), @r#"
        exit 5
        error: PER-0624 not answered: no runtime took the request to instance "counter-1" within 50ms; is one running on this store?
        "#);
}

#[tokio::test]
async fn p8_programs_get_errors_as_json() {
    let shop = Shop::stocked().await;
    insta::assert_snapshot!(described(&shop.run(&["show", "order-9", "--json"]).await), @r#"
        exit 3
        {"error":{"code":"PER-0605","exit":3,"message":"PER-0605 not found: there is no instance \"order-9\"; check the id and the store, it may have been deleted"}}
        "#);
    let usage = shop.run(&["list", "--status", "done", "--json"]).await;
    let error: serde_json::Value = serde_json::from_str(&usage.stderr).unwrap();
    assert_eq!((usage.code, &error["error"]["exit"]), (2, &serde_json::json!(2)));
}

#[tokio::test]
async fn p8_a_query_that_nobody_answers_says_why_before_it_gives_up() {
    let shop = Shop::stocked().await;
    let asked = [
        &["query", "counter-1", "count"][..],
        &["update", "counter-1", "add", "1"],
        // It has ended, so it waits for nothing; a runtime would still answer.
        &["query", "order-1", "count"],
    ];
    for arguments in asked {
        let result = shop.run(&[arguments, &["--patience", "1500ms"]].concat()).await;
        assert_eq!(result.code, 5, "{result:?}");
        let lines: Vec<&str> = result.stderr.lines().collect();
        assert!(
            lines[0].starts_with(&format!("{} has not answered: no runtime", arguments[1])),
            "{result:?}"
        );
        assert!(lines[1].starts_with("  remedy: start the program"), "{result:?}");
        assert!(lines[2].starts_with("error: PER-0624 not answered"), "{result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_a_misspelled_orchestration_is_recognized() {
    let shop = Shop::open().await;
    let error = shop
        .client()
        .start("chekout", "o", Payload::from_json("5").unwrap())
        .await
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no orchestration \"chekout\" here (did you mean \"checkout\"?)"),
        "{error}"
    );
    assert_eq!(shop.run(&["start", "chekout", "o", "5"]).await.code, 0);
    let explained = shop.run(&["show", "o"]).await;
    // The first before its owner has tried to run it, the second afterwards.
    let expected = [
        "no live node has orchestration `chekout` registered; did you mean `checkout`?",
        "its node does not have `chekout` (did you mean `checkout`?), no live node has it",
    ];
    assert!(expected.iter().any(|expected| explained.stdout.contains(expected)), "{explained:?}");
}

#[tokio::test]
async fn p8_a_pause_is_called_a_pause_in_a_tree() {
    let mut shop = Shop::open().await;
    shop.client().start("counter", "counter-1", Payload::from_json("7").unwrap()).await.unwrap();
    assert_eq!(shop.run(&["pause", "counter-1", "--reason", "an audit"]).await.code, 0);
    let paused = async |shop: &Shop| shop.client().status("counter-1").await.unwrap().blocked.is_some();
    while !paused(&shop).await {
        tokio::task::yield_now().await;
    }
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let tree = shop.run(&["tree", "counter-1"]).await;
    assert!(tree.stdout.starts_with("counter-1  counter 1.0.0  running, paused"), "{tree:?}");
}

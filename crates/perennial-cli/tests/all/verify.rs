//! `perennial verify` reports exactly the damage of a store (E3).

use crate::support::Shop;
use rusqlite::Connection;
use serde_json::{Value, json};

async fn verified(shop: &Shop) -> (u8, Value) {
    let result = shop.run(&["verify", "--json"]).await;
    let report = serde_json::from_str(&result.stdout).unwrap_or_else(|error| panic!("{error}: {result:?}"));
    (u8::try_from(result.code).unwrap(), report)
}

#[tokio::test]
async fn e3_verify_finds_no_damage_in_a_sound_store_and_does_not_change_it() {
    let shop = Shop::stocked().await;
    let before = std::fs::read(shop.path()).unwrap();
    let (code, report) = verified(&shop).await;
    assert_eq!((code, &report["damaged"]), (0, &json!(0)), "{report}");
    assert!(report["instances"].as_u64() > Some(2) && report["turns"].as_u64() > Some(2), "{report}");
    assert!(std::fs::read(shop.path()).unwrap() == before);
    let result = shop.run(&["verify"]).await;
    assert!(result.stdout.trim_end().ends_with(": sound"), "{result:?}");
}

#[tokio::test]
async fn e3_verify_names_each_damaged_row_with_its_instance_and_no_other() {
    let turn = "UPDATE turns SET body = cast(replace(cast(body AS TEXT), '\"number\":1', '\"number\": 1') AS BLOB) \
                WHERE number = 1 AND key = (SELECT key FROM instances WHERE id = ?1)";
    let damages = [
        ("execution 1", turn),
        ("row", "UPDATE instances SET created_ms = created_ms + 1 WHERE id = ?1"),
        ("row", "UPDATE instances SET name = 'other' WHERE id = ?1"),
        ("row", "UPDATE instances SET parent = '{' WHERE id = ?1"),
        (
            "execution 1",
            "DELETE FROM turns WHERE number = 1 AND key = (SELECT key FROM instances WHERE id = ?1)",
        ),
    ];
    for (what, damage) in damages {
        let shop = Shop::stocked().await;
        let connection = Connection::open(shop.path()).unwrap();
        let find = "SELECT id FROM instances WHERE key IN (SELECT key FROM turns WHERE number = 2) \
                    ORDER BY id LIMIT 1";
        let id: String = connection.query_row(find, [], |row| row.get(0)).unwrap();
        assert_eq!(connection.execute(damage, [&id]).unwrap(), 1, "{damage}");
        drop(connection);
        let (code, report) = verified(&shop).await;
        let found: Vec<_> =
            report["damage"].as_array().unwrap().iter().map(|one| (&one["instance"], &one["what"])).collect();
        assert_eq!((code, found), (1, vec![(&json!(id), &json!(what))]), "{damage}: {report}");
    }
}

#[tokio::test]
async fn h42_show_names_the_damage_of_a_history_and_a_remedy() {
    let shop = Shop::stocked().await;
    let connection = Connection::open(shop.path()).unwrap();
    let damage = "UPDATE turns SET body = x'00' WHERE key = (SELECT key FROM instances WHERE id = 'order-1')";
    assert!(connection.execute(damage, []).unwrap() > 0);
    drop(connection);
    let result = shop.run(&["show", "order-1"]).await;
    let lines: Vec<&str> = result.stdout.lines().collect();
    let place = lines.iter().position(|line| line.starts_with("damage")).expect("the damage is shown");
    assert!(lines[place].contains("PER-0101 corrupt history: turn 1"), "{result:?}");
    assert!(lines[place + 1].starts_with("remedy") && lines[place + 1].contains(" verify`"), "{result:?}");
}

#[tokio::test]
async fn e3_verify_names_a_message_in_which_one_byte_was_changed() {
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    for id in ["a", "b"] {
        shop.masked(&["start", "counter", id, "1"]).await;
    }
    assert_eq!(verified(&shop).await.0, 0);
    // Change a byte of a stored body in the file itself.
    let mut file = std::fs::read(shop.path()).unwrap();
    let log = shop.path().with_extension("db-wal");
    assert!(std::fs::metadata(&log).map_or(0, |log| log.len()) == 0, "the log is empty");
    let needle = br#""message":{"Start""#;
    let place = file.windows(needle.len()).position(|window| window == needle).unwrap();
    file[place + needle.len() - 2] ^= 1;
    std::fs::write(shop.path(), file).unwrap();
    let (code, report) = verified(&shop).await;
    let damage = report["damage"].as_array().unwrap();
    let what = damage[0]["what"].as_str().unwrap();
    assert!(code == 1 && damage[0]["instance"].is_string() && what.starts_with("message "), "{report}");
    // The damaged turn is the start.
    assert!(damage.iter().all(|one| one["instance"] == damage[0]["instance"]), "{report}");
}

#[tokio::test]
async fn e3_verify_names_a_delayed_start_that_nothing_wakes_in_time() {
    for damage in ["NULL", "wake_at_ms + 1"] {
        let mut shop = Shop::open().await;
        shop.runtime.take().unwrap().shutdown().await.unwrap();
        shop.masked(&["start", "counter", "later", "1", "--delay", "1h"]).await;
        let (code, report) = verified(&shop).await;
        assert_eq!((code, &report["damaged"]), (0, &json!(0)), "{report}");
        let connection = Connection::open(shop.path()).unwrap();
        connection.execute(&format!("UPDATE instances SET wake_at_ms = {damage}"), []).unwrap();
        drop(connection);
        let (code, report) = verified(&shop).await;
        assert_eq!((code, &report["damage"][0]["instance"]), (1, &json!("later")), "{damage}: {report}");
    }
}

#[tokio::test]
async fn e3_verify_reads_requests_and_replies_and_names_rows_without_an_instance() {
    let mut shop = Shop::open().await;
    shop.masked(&["start", "counter", "a", "1"]).await;
    shop.masked(&["query", "a", "count"]).await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let connection = Connection::open(shop.path()).unwrap();
    let insert = "INSERT INTO requests (key, shard, deadline_ms, body) SELECT key, shard, 9e15, x'7b7d' FROM instances";
    connection.execute(&insert.replace("9e15", "9000000000000000"), []).unwrap();
    connection
        .execute("INSERT INTO replies (number, deadline_ms, body) VALUES (99, 9000000000000000, x'00')", [])
        .unwrap();
    connection.execute("INSERT INTO inbox (key, shard, body) VALUES (x'0102', 1, x'7b7d')", []).unwrap();
    drop(connection);
    let (code, report) = verified(&shop).await;
    let named: Vec<&str> =
        report["damage"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert_eq!((code, named.len()), (1, 3), "{report}");
    assert!(
        ["message ", "request ", "reply 99"].iter().all(|what| named.iter().any(|one| one.starts_with(what))),
        "{report}"
    );
}

#[tokio::test]
async fn e3_verify_names_an_index_that_lacks_rows() {
    let shop = Shop::stocked().await;
    let connection = Connection::open(shop.path()).unwrap();
    // Replace the index of ids with an empty one: no instance is found by its id.
    connection
        .execute_batch(
            "CREATE TABLE spare (id TEXT);
             CREATE UNIQUE INDEX spare_by_id ON spare (id);
             PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'spare_by_id')
                 WHERE name = 'instances_by_id';
             DELETE FROM sqlite_schema WHERE name = 'spare_by_id';
             PRAGMA writable_schema = OFF;",
        )
        .unwrap();
    drop(connection);
    let (code, report) = verified(&shop).await;
    let damage = report["damage"].as_array().unwrap();
    let is_named =
        |one: &Value| one["what"] == "the file" && one["problem"].to_string().contains("instances_by_id");
    assert!(code == 1 && damage.iter().any(is_named), "{report}");
}

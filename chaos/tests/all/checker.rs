//! Tests of the checker: it reports rows that were damaged on purpose.

use crate::support::{Load, stage, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_rows_that_are_lost_changed_or_added_by_hand_are_noticed() {
    let stage = stage(1).await;
    let load = Load::begin(&stage, &["sequence", "account"]);
    until("load", async || load.callers.finished() > 4).await;
    load.end(&stage).await;
    let breaks = [
        (
            "DELETE FROM turns WHERE number = 2 AND key = (SELECT key FROM instances WHERE id = 'sequence-0-0')",
            "I4",
        ),
        ("DELETE FROM instances WHERE id = 'sequence-0-1'", "I2"),
        ("UPDATE instances SET status = 1 WHERE id = 'account-1-0'", "I14"),
        ("UPDATE instances SET id = 'sequence-9-9' WHERE id = 'sequence-0-0'", "no caller started"),
    ];
    let database = stage.database().await;
    database.batch_execute("SET search_path = perennial").await.unwrap();
    for (sql, expected) in breaks {
        assert_eq!(database.execute(sql, &[]).await.unwrap(), 1, "{sql}");
        let (problems, _) = stage.problems().await;
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{sql}: {problems:?}");
    }
}

//! O4: after known work the counts are exact.

use std::collections::BTreeMap;

use perennial::prelude::*;

use crate::recorder::{Counts, Kept, alone};
use crate::shop::{GO, Store, builder, goes_on, order, soon};

/// What was counted while something was done.
async fn grown(kept: &Kept, client: &Client, before: &Counts) -> BTreeMap<String, u64> {
    client.refresh_metrics().await.unwrap();
    kept.counts().since(before)
}

/// Only the counts of some metrics.
fn only(grown: &BTreeMap<String, u64>, metrics: &[&str]) -> Vec<(String, u64)> {
    let is_wanted = |series: &str| metrics.contains(&series.split('{').next().unwrap());
    grown.iter().filter(|(series, _)| is_wanted(series)).map(|(key, count)| (key.clone(), *count)).collect()
}

fn counted(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(series, count)| ((*series).to_owned(), *count)).collect()
}

/// The attempts of one round of work.
fn check_attempts(grown: &BTreeMap<String, u64>) {
    let attempts = [
        "perennial_activity_attempts_total",
        "perennial_activity_duration_seconds",
        "perennial_activity_queue_seconds",
        "perennial_activity_retries_total",
    ];
    assert_eq!(
        only(grown, &attempts),
        counted(&[
            ("perennial_activity_attempts_total{activity=charge,outcome=completed}", 5),
            ("perennial_activity_attempts_total{activity=dawdle,outcome=timeout}", 1),
            ("perennial_activity_attempts_total{activity=explode,outcome=panicked}", 1),
            ("perennial_activity_attempts_total{activity=flaky,outcome=completed}", 1),
            ("perennial_activity_attempts_total{activity=flaky,outcome=failed}", 2),
            ("perennial_activity_duration_seconds{activity=charge,outcome=completed}", 5),
            ("perennial_activity_duration_seconds{activity=dawdle,outcome=timeout}", 1),
            ("perennial_activity_duration_seconds{activity=explode,outcome=panicked}", 1),
            ("perennial_activity_duration_seconds{activity=flaky,outcome=completed}", 1),
            ("perennial_activity_duration_seconds{activity=flaky,outcome=failed}", 2),
            ("perennial_activity_queue_seconds{activity=charge}", 5),
            ("perennial_activity_queue_seconds{activity=dawdle}", 1),
            ("perennial_activity_queue_seconds{activity=explode}", 1),
            ("perennial_activity_queue_seconds{activity=flaky}", 3),
            ("perennial_activity_retries_total{activity=flaky}", 2),
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_instances_turns_and_attempts_are_counted_exactly() {
    let (kept, _one) = alone().await;
    for store in Store::each() {
        let before = kept.counts();
        let runtime = builder(&store.url).start().await.unwrap();
        let client = runtime.client();
        for number in 0..5_u32 {
            client.start(order, &format!("order-{number}"), number).await.unwrap();
        }
        for name in ["refuses", "patient", "careless", "nap"] {
            client.start(name, name, ()).await.unwrap();
        }
        for number in 0..5 {
            soon(client.wait(&format!("order-{number}"))).await.unwrap();
        }
        for name in ["refuses", "patient", "careless", "nap"] {
            soon(client.wait(name)).await.unwrap();
        }
        let grown = grown(&kept, &client, &before).await;
        runtime.shutdown().await.unwrap();
        let instances = [
            "perennial_instances_started_total",
            "perennial_instances_ended_total",
            "perennial_instance_duration_seconds",
        ];
        assert_eq!(
            only(&grown, &instances),
            counted(&[
                ("perennial_instance_duration_seconds{orchestration=careless,outcome=completed}", 1),
                ("perennial_instance_duration_seconds{orchestration=nap,outcome=completed}", 1),
                ("perennial_instance_duration_seconds{orchestration=order,outcome=completed}", 5),
                ("perennial_instance_duration_seconds{orchestration=patient,outcome=completed}", 1),
                ("perennial_instance_duration_seconds{orchestration=refuses,outcome=failed}", 1),
                ("perennial_instances_ended_total{orchestration=careless,outcome=completed}", 1),
                ("perennial_instances_ended_total{orchestration=nap,outcome=completed}", 1),
                ("perennial_instances_ended_total{orchestration=order,outcome=completed}", 5),
                ("perennial_instances_ended_total{orchestration=patient,outcome=completed}", 1),
                ("perennial_instances_ended_total{orchestration=refuses,outcome=failed}", 1),
                ("perennial_instances_started_total{orchestration=careless}", 1),
                ("perennial_instances_started_total{orchestration=nap}", 1),
                ("perennial_instances_started_total{orchestration=order}", 5),
                ("perennial_instances_started_total{orchestration=patient}", 1),
                ("perennial_instances_started_total{orchestration=refuses}", 1),
            ]),
            "{}",
            store.url
        );
        assert_eq!(
            only(&grown, &["perennial_turns_total"]),
            counted(&[
                ("perennial_turns_total{orchestration=careless,outcome=committed}", 3),
                ("perennial_turns_total{orchestration=nap,outcome=committed}", 2),
                ("perennial_turns_total{orchestration=order,outcome=committed}", 10),
                ("perennial_turns_total{orchestration=patient,outcome=committed}", 2),
                ("perennial_turns_total{orchestration=refuses,outcome=committed}", 1),
            ])
        );
        let durations = only(&grown, &["perennial_turn_duration_seconds"]);
        assert_eq!(durations.iter().map(|(_, count)| count).sum::<u64>(), 18, "one for each turn");
        check_attempts(&grown);
        assert_eq!(grown["perennial_timer_lateness_seconds"], 1);
        assert!(grown["perennial_commit_duration_seconds"] >= 1);
        assert_eq!(grown["perennial_commit_duration_seconds"], grown["perennial_commit_turns"]);
        assert_eq!(kept.gauge("perennial_activities_running{activity=dawdle}"), Some(0.0));
    }
    let took = kept.samples("perennial_activity_duration_seconds{activity=dawdle,outcome=timeout}");
    assert!(took.iter().all(|seconds| *seconds >= 0.02), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_events_and_messages_are_counted_by_what_became_of_them() {
    let (kept, _one) = alone().await;
    for store in Store::each() {
        let before = kept.counts();
        let runtime = builder(&store.url).start().await.unwrap();
        let client = runtime.client();
        client.start("waits", "w", ()).await.unwrap();
        client.raise_event("w", GO, 1).once("first").await.unwrap();
        client.raise_event("w", GO, 1).once("first").await.unwrap();
        client.raise_event("w", GO, 2).once("second").await.unwrap();
        soon(client.wait("w")).await.unwrap();
        assert!(client.raise_event("w", GO, 3).await.is_err(), "it has ended");
        // Its event is recorded by both executions, and counted once.
        client.start(goes_on, "g", 0).await.unwrap();
        client.raise_event("g", GO, 1).await.unwrap();
        client.raise_event("g", GO, 2).await.unwrap();
        soon(client.wait("g")).await.unwrap();
        client.start("sends", "s", ()).await.unwrap();
        soon(client.wait("s")).await.unwrap();
        let grown = grown(&kept, &client, &before).await;
        runtime.shutdown().await.unwrap();
        assert_eq!(
            only(&grown, &["perennial_events_total", "perennial_undelivered_total"]),
            counted(&[
                ("perennial_events_total{outcome=applied}", 4),
                ("perennial_events_total{outcome=duplicate}", 1),
                ("perennial_events_total{outcome=refused}", 1),
                ("perennial_undelivered_total", 1),
            ]),
            "{}",
            store.url
        );
        assert_eq!(
            only(&grown, &["perennial_instances_started_total"]),
            counted(&[
                ("perennial_instances_started_total{orchestration=goes_on}", 1),
                ("perennial_instances_started_total{orchestration=order}", 1),
                ("perennial_instances_started_total{orchestration=sends}", 1),
                ("perennial_instances_started_total{orchestration=waits}", 1),
            ]),
            "a continued execution is no start"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o4_a_blocked_instance_is_counted_by_code_until_it_ends() {
    let (kept, _one) = alone().await;
    for store in Store::each() {
        let before = kept.counts();
        let runtime = builder(&store.url).start().await.unwrap();
        let client = runtime.client();
        client.start("broken", "b", ()).await.unwrap();
        let blocked = soon(client.result_unless_blocked("b")).await;
        assert!(matches!(blocked, Err(Error::Client(ClientError::Blocked { .. }))));
        let code = client.status("b").await.unwrap().blocked.unwrap().code;
        let at_first = grown(&kept, &client, &before).await;
        let blocked = format!("perennial_blocked_total{{code={code}}}");
        assert_eq!(
            (at_first.get(&blocked), at_first.contains_key("perennial_unblocked_total")),
            (Some(&1), false)
        );
        assert_eq!(
            only(&at_first, &["perennial_turns_total"]),
            counted(&[("perennial_turns_total{orchestration=broken,outcome=failed}", 1)])
        );
        assert!(only(&at_first, &["perennial_instances_started_total"]).is_empty(), "it has taken no turn");
        client.terminate("b", "a bug").await.unwrap();
        soon(client.wait("b")).await.unwrap();
        let grown = grown(&kept, &client, &before).await;
        runtime.shutdown().await.unwrap();
        assert_eq!(grown.get(&blocked), Some(&1));
        assert_eq!(grown.get(&format!("perennial_unblocked_total{{code={code}}}")), Some(&1));
        let ended = "perennial_instances_ended_total{orchestration=broken,outcome=terminated}";
        assert_eq!(grown.get(ended), Some(&1));
    }
}

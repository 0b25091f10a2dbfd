//! Turns that do not end keep their own threads, and do not starve other instances (G29).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use perennial::{Client, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder, RuntimeOptions};

use super::support::{Place, relaxed, soon};

type Outcome = Result<Payload, Payload>;

/// How many threads a runtime may lose before it stops.
const MAX_LOST: usize = 16;

async fn neighbour(_: OrchestrationContext, _: Payload) -> Outcome {
    Ok("fine".into())
}

/// Turns that do not end until they are let go.
#[derive(Clone, Default)]
struct Deaf {
    let_go: Arc<AtomicBool>,
    entered: Arc<AtomicUsize>,
}

impl Deaf {
    fn runtime(&self, place: &Place, options: RuntimeOptions) -> RuntimeBuilder {
        let deaf = self.clone();
        let code = move |_: OrchestrationContext, _: Payload| {
            let deaf = deaf.clone();
            async move {
                deaf.entered.fetch_add(1, Ordering::SeqCst);
                while !deaf.let_go.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                Outcome::Ok("heard".into())
            }
        };
        Runtime::open(place.url()).options(options).orchestration("deaf", "1.0.0", code).orchestration(
            "neighbour",
            "1.0.0",
            neighbour,
        )
    }
}

/// Lets the threads go at the end of a test, also if it fails.
struct LetGo(Arc<AtomicBool>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn deaf() -> (Deaf, LetGo) {
    let deaf = Deaf::default();
    let let_go = LetGo(Arc::clone(&deaf.let_go));
    (deaf, let_go)
}

async fn start_deaf(place: &Place, numbers: std::ops::Range<usize>) {
    let guest = place.guest();
    for number in numbers {
        guest.start("deaf", &format!("deaf-{number}"), Payload::null()).await.unwrap();
    }
}

async fn neighbours_are_fine(client: &Client, name: &str) {
    for number in 0..20 {
        let id = format!("{name}-{number}");
        client.start("neighbour", &id, Payload::null()).await.unwrap();
        assert_eq!(soon(client.result(&id)).await.unwrap().as_json(), r#""fine""#);
    }
}

/// How many of the deaf ones are blocked.
async fn blocked(client: &Client) -> usize {
    let rows = client.list(Filter::new(), None, 1_000).await.unwrap().rows;
    rows.iter().filter(|row| row.id.starts_with("deaf") && row.blocked.is_some()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_neighbours_do_not_wait_for_the_deadline_of_turns_that_do_not_end() {
    let (place, (deaf, _let_go)) = (Place::new(), deaf());
    start_deaf(&place, 0..10).await;
    // Longer than any test waits.
    let deadline = Duration::from_secs(600);
    let options = RuntimeOptions { turn_deadline: deadline, turn_threads: 2, ..relaxed() };
    let runtime = deaf.runtime(&place, options).start().await.unwrap();
    let client = runtime.client();
    neighbours_are_fine(&client, "n").await;
    assert_eq!(deaf.entered.load(Ordering::SeqCst), 10, "they came first, and are still at it");
    deaf.let_go.store(true, Ordering::SeqCst);
    for number in 0..10 {
        let heard = soon(client.result(&format!("deaf-{number}"))).await.unwrap();
        assert_eq!(heard.as_json(), r#""heard""#, "a slow turn is a turn like others");
    }
    neighbours_are_fine(&client, "later").await;
    soon(runtime.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_turns_that_do_not_end_stop_a_node_once_and_not_the_next() {
    let (place, (deaf, _let_go)) = (Place::new(), deaf());
    start_deaf(&place, 0..MAX_LOST).await;
    let options = || RuntimeOptions {
        turn_deadline: Duration::from_millis(10),
        turn_threads: 2,
        max_lost_threads: MAX_LOST,
        // Each lane tries instances of its own.
        lanes: 1,
        ..relaxed()
    };
    let first = deaf.runtime(&place, options()).start().await.unwrap();
    let client = first.client();
    let all_known = async {
        while blocked(&client).await < MAX_LOST {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(all_known).await;
    start_deaf(&place, MAX_LOST..MAX_LOST + 1).await;
    soon(first.failed()).await;
    drop((client, first));
    // The last one's loss may not have been written by then, and it is lost in the next process; all others are known.
    let before = deaf.entered.swap(0, Ordering::SeqCst);
    assert_eq!(before, MAX_LOST + 1);

    let second = deaf.runtime(&place, options()).start().await.unwrap();
    let client = second.client();
    neighbours_are_fine(&client, "n").await;
    let all_blocked = async {
        while blocked(&client).await < MAX_LOST + 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(all_blocked).await;
    neighbours_are_fine(&client, "later").await;
    assert_eq!(second.failure(), None, "it goes on without them");
    let tried = deaf.entered.load(Ordering::SeqCst);
    assert!(tried <= 4, "{tried} were tried, and kept their threads");
    drop(second);

    // Fixed code finishes them without a retry request.
    deaf.let_go.store(true, Ordering::SeqCst);
    let third = deaf.runtime(&place, options()).start().await.unwrap();
    for number in 0..=MAX_LOST {
        let heard = soon(third.client().result(&format!("deaf-{number}"))).await.unwrap();
        assert_eq!(heard.as_json(), r#""heard""#);
    }
    soon(third.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g29_an_instance_whose_turns_are_lost_again_and_again_is_left_alone_until_it_is_retried() {
    let (place, (deaf, _let_go)) = (Place::new(), deaf());
    start_deaf(&place, 0..1).await;
    let options =
        || RuntimeOptions { turn_deadline: Duration::from_millis(10), turn_threads: 2, ..relaxed() };
    for process in 1..=5 {
        let runtime = deaf.runtime(&place, options()).start().await.unwrap();
        let client = runtime.client();
        let lost = async {
            while client.status("deaf-0").await.unwrap().blocked.is_none_or(|it| it.attempts < process.min(3))
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(lost).await;
        neighbours_are_fine(&client, &format!("n-{process}")).await;
        assert_eq!(deaf.entered.load(Ordering::SeqCst), process.min(3) as usize, "process {process}");
        drop(runtime);
    }
    deaf.let_go.store(true, Ordering::SeqCst);
    let runtime = deaf.runtime(&place, options()).start().await.unwrap();
    neighbours_are_fine(&runtime.client(), "n").await;
    assert!(runtime.client().status("deaf-0").await.unwrap().blocked.is_some(), "nobody asked");
    runtime.client().retry("deaf-0").await.unwrap();
    assert_eq!(soon(runtime.client().result("deaf-0")).await.unwrap().as_json(), r#""heard""#);
    soon(runtime.shutdown()).await.unwrap();
}

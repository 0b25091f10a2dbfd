//! I19: memory stays within its limits. What is counted is the orchestrations' own futures, from the moment their code
//! begins until they are dropped, so that the engine's books are not asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perennial::typed::{OrchestrationCode, by};
use perennial::{OrchestrationContext, Payload, Runtime};
use perennial_core::Handlers;
use perennial_core::shard::ShardOptions;
use perennial_testkit::invariants::ClientLog;
use perennial_testkit::{ManualNode, Rng};

use super::support::{Place, relaxed, soon};

type Outcome = Result<Payload, Payload>;

/// How many executions are alive, and how many there were at most.
#[derive(Clone, Default)]
struct Census {
    alive: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// Counts as long as it lives.
struct Soul(Census);

impl Drop for Soul {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Census {
    fn alive(&self) -> usize {
        self.alive.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    fn enter(&self) -> Soul {
        let alive = self.alive.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(alive, Ordering::SeqCst);
        Soul(self.clone())
    }

    /// Reads events until one says `end`.
    fn reader(&self) -> impl OrchestrationCode<(by::Function1, Payload)> + Clone + use<> {
        let census = self.clone();
        move |ctx: OrchestrationContext, _: Payload| {
            let soul = census.enter();
            async move {
                let _soul = soul;
                while ctx.schedule_wait("page").await != "end" {}
                Outcome::Ok(Payload::null())
            }
        }
    }
}

fn handlers(census: &Census) -> Handlers {
    Runtime::open("memory:").orchestration("reader", "1.0.0", census.reader()).handlers()
}

/// Executions are counted between steps and beside threads, so none is replayed in the shadow.
fn options(max_resident: usize) -> ShardOptions {
    let mut options = ShardOptions { max_resident, ..ShardOptions::default() };
    options.execution.shadow_replay = false;
    options
}

/// One node by hand, and a walk through everything that can happen to it.
struct Walk {
    desk: ManualNode,
    rng: Rng,
    ids: Vec<String>,
    started: usize,
}

impl Walk {
    fn step(&mut self) {
        match self.rng.weighted(&[(4, 0), (8, 1), (12, 2), (6, 3), (6, 4), (6, 5), (1, 6), (1, 7)]) {
            0 if self.started < self.ids.len() => {
                let id = self.ids[self.started].clone();
                self.started += 1;
                self.desk.start("reader", &id, Payload::null());
            }
            1 if self.started > 0 => {
                let id = self.ids[self.rng.below(self.started)].clone();
                let page = if self.rng.percent(5) { "end" } else { "page" };
                self.desk.raise(&id, "page", page);
            }
            2 => {
                let turns = self.desk.turns_to_take();
                if !turns.is_empty() {
                    let id = self.rng.pick(&turns).clone();
                    self.desk.take_turn(&id);
                }
            }
            3 => {
                self.desk.commit();
            }
            4 => {
                self.desk.look_up();
            }
            5 => {
                self.desk.load();
            }
            6 => {
                let later_ms = self.desk.now_ms() + self.rng.between(1, 400_000);
                self.desk.at(later_ms);
            }
            7 if self.started > 0 => {
                let id = self.ids[self.rng.below(self.started)].clone();
                self.desk.terminate(&id, "enough");
            }
            _ => {}
        }
    }
}

#[test]
fn i19_at_every_step_no_more_executions_live_than_the_limit_and_those_under_way() {
    for (seed, max_resident) in (0..).zip([0, 1, 3, 10].repeat(8)) {
        let census = Census::default();
        let handlers = handlers(&census);
        let mut walk = Walk {
            desk: ManualNode::with_options(handlers, options(max_resident)),
            rng: Rng::new(seed),
            ids: ManualNode::ids_of_one_shard(60),
            started: 0,
        };
        let mut was_at_limit = false;
        for step in 0..1_500 {
            walk.step();
            let (alive, allowed) = (census.alive(), max_resident + walk.desk.under_way());
            was_at_limit |= alive == allowed;
            assert!(alive <= allowed, "seed {seed}, step {step}: {alive} are alive, {allowed} may be");
        }
        walk.desk.settle();
        assert_eq!(walk.started, 60, "seed {seed}: it was a short walk");
        assert!(census.alive() <= max_resident, "seed {seed}: {} are alive at rest", census.alive());
        assert!(walk.desk.in_memory(&walk.ids[0]) <= max_resident, "seed {seed}");
        assert!(was_at_limit, "seed {seed}: the limit was never put to the test");
        let counters = walk.desk.counters(&walk.ids[0]);
        assert!(counters.evictions > 60 - 10 && counters.hydrations > 0, "seed {seed}: {counters:?}");
    }
}

#[test]
fn i19_an_execution_that_has_ended_leaves_no_memory_behind() {
    let census = Census::default();
    let handlers = handlers(&census);
    let mut desk = ManualNode::with_options(handlers, options(1_000));
    let ids = ManualNode::ids_of_one_shard(50);
    for id in &ids {
        desk.start("reader", id, Payload::null());
    }
    desk.settle();
    assert_eq!((census.alive(), desk.in_memory(&ids[0])), (50, 50));
    for id in &ids {
        desk.raise(id, "page", "end");
    }
    desk.settle();
    assert_eq!((census.alive(), desk.in_memory(&ids[0])), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i19_a_node_with_more_instances_than_it_may_keep_keeps_no_more() {
    const MAX_RESIDENT: usize = 3;
    let (place, census) = (Place::new(), Census::default());
    let mut options_of_node = relaxed();
    options_of_node.shard = options(MAX_RESIDENT);
    let runtime = Runtime::open(place.url())
        .options(options_of_node)
        .orchestration("reader", "1.0.0", census.reader())
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    let ids = ManualNode::ids_of_one_shard(100);
    let mut log = ClientLog::default();
    let at_rest = || {
        soon(async {
            while census.alive() > MAX_RESIDENT {
                tokio::task::yield_now().await;
            }
        })
    };
    for id in &ids {
        client.start("reader", id, Payload::null()).await.unwrap();
        log.started(id);
        at_rest().await;
    }
    for id in &ids {
        client.raise_event(id, "page", id.as_str()).await.unwrap();
        log.raised("me", id, "page", id.as_str());
        at_rest().await;
    }
    // One caller at a time has one turn under way at a time.
    assert_eq!(census.most(), MAX_RESIDENT + 1);
    for id in &ids {
        client.raise_event(id, "page", "end").await.unwrap();
        soon(client.result(id)).await.unwrap();
    }
    assert!(runtime.counters().evictions >= 197, "{:?}", runtime.counters());
    runtime.shutdown().await.unwrap();
    assert_eq!(census.alive(), 0);
    place.check(&log, &handlers(&census));
}

#[test]
fn i19_blocked_instances_take_no_more_room_than_others() {
    async fn broken(_: OrchestrationContext, _: Payload) -> Outcome {
        panic!("out of cheese")
    }
    let mut desk = ManualNode::with_options(
        Runtime::open("memory:").orchestration("broken", ManualNode::VERSION, broken).handlers(),
        options(3),
    );
    let ids = ManualNode::ids_of_one_shard(50);
    for id in &ids {
        desk.start("broken", id, Payload::null());
        desk.settle();
    }
    assert_eq!(desk.status(&ids[0]), "pending, blocked: PER-0201");
    assert!(desk.in_memory(&ids[0]) <= 3, "{} are in memory", desk.in_memory(&ids[0]));
}

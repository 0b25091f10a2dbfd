//! Whole nodes, each with one lane, over one store: how soon the shards of one that died are taken over (N11), and how soon
//! one that joins or leaves gets or gives its share (N7).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use perennial_core::lane::{Lane, LaneOptions, LaneOutput, Moment};
use perennial_core::node::{Node, NodeOptions, NodeOutput, StopPatience};
use perennial_core::store::{Changes, MemoryStore, Store};

const LEASE_MS: u64 = 10_000;

struct Process {
    node: Node,
    lane: Option<Lane>,
    /// When it took shards over, in milliseconds.
    gained_ms: Vec<u64>,
}

/// Processes whose calls are answered at once.
struct World {
    now_ms: u64,
    store_ms: Arc<AtomicU64>,
    store: Arc<MemoryStore>,
    processes: Vec<Process>,
    directories: usize,
    /// What the store has told and nobody has heard yet.
    hints: Arc<Mutex<Vec<Changes>>>,
}

impl World {
    fn new() -> World {
        let store_ms = Arc::new(AtomicU64::new(1_000_000));
        let clock = Arc::clone(&store_ms);
        let store = Arc::new(MemoryStore::new(move || clock.load(Ordering::Relaxed)));
        World { now_ms: 0, store_ms, store, processes: Vec::new(), directories: 0, hints: Arc::default() }
    }

    /// From now on everybody hears what the store tells.
    fn hear_hints(&mut self) {
        let hints = Arc::clone(&self.hints);
        self.store.watch(Arc::new(move |changes| hints.lock().unwrap().push(*changes)));
    }

    fn pass_hints_on(&mut self) {
        let now = self.now();
        for changes in std::mem::take(&mut *self.hints.lock().unwrap()) {
            for process in &mut self.processes {
                process.lane.iter_mut().for_each(|lane| lane.handle_changes(now, &changes));
                process.node.handle_changes(now, &changes, 0);
            }
        }
    }

    /// Stops a process in order. Nothing runs there.
    fn stop(&mut self, process: usize) {
        let now = self.now();
        let seconds = Duration::from_secs(10);
        let patience = StopPatience { grace: seconds, last_words: seconds, store: seconds };
        self.processes[process].node.handle_stop(now, patience);
        self.processes[process].node.handle_idle(now);
        self.settle();
    }

    fn now(&self) -> Moment {
        Duration::from_millis(self.now_ms)
    }

    fn boot_node(&mut self) {
        let seed = self.processes.len() as u64 + 1;
        let node = Node::new(NodeOptions::default(), seed, self.now());
        self.processes.push(Process { node, lane: None, gained_ms: Vec::new() });
        self.settle();
    }

    fn boot_lane(&mut self, process: usize) {
        let options =
            LaneOptions { node: self.processes[process].node.id(), lease_ms: LEASE_MS, ..<_>::default() };
        let mut lane = Lane::new(options, process as u64 + 101, self.now());
        // A target that was told before there was a lane.
        lane.handle_target(self.now(), if process == 0 { 256 } else { 128 });
        self.processes[process].lane = Some(lane);
        self.settle();
    }

    /// Does what everybody wants done, until nobody wants anything.
    fn settle(&mut self) {
        let now = self.now();
        loop {
            let mut is_quiet = true;
            for number in 0..self.processes.len() {
                let process = &mut self.processes[number];
                for output in process.node.take_outputs() {
                    is_quiet = false;
                    match output {
                        NodeOutput::Call(id, call) => {
                            self.directories += usize::from(call.name() == "directory");
                            let answer = made(&self.store, call);
                            process.node.handle_response(now, id, answer, 0);
                        }
                        NodeOutput::Target { shards, .. } => {
                            process.lane.iter_mut().for_each(|lane| lane.handle_target(now, shards));
                        }
                        NodeOutput::StopTaking => {
                            process.lane.iter_mut().for_each(|lane| lane.handle_stopping(now));
                        }
                        NodeOutput::CloseLanes => {
                            process.lane.iter_mut().for_each(|lane| {
                                lane.handle_closing(now);
                                lane.handle_time(now);
                            });
                        }
                        _ => {}
                    }
                }
                let Some(lane) = &mut process.lane else { continue };
                for output in lane.take_outputs(now) {
                    is_quiet = false;
                    match output {
                        LaneOutput::Call(id, call) => lane.handle_response(now, id, made(&self.store, call)),
                        LaneOutput::Gained(_) => process.gained_ms.push(self.now_ms),
                        LaneOutput::Ended => process.node.handle_lane_ended(now, 0),
                        _ => {}
                    }
                }
            }
            is_quiet &= self.hints.lock().unwrap().is_empty();
            self.pass_hints_on();
            if is_quiet {
                return;
            }
        }
    }

    fn run_until(&mut self, until_ms: u64) {
        loop {
            let now = self.now();
            let wakes = self.processes.iter().flat_map(|process| {
                let lane = process.lane.as_ref().and_then(|lane| lane.next_wake(now));
                [process.node.next_wake(), lane]
            });
            let next = wakes.flatten().min().map_or(until_ms, |at| at.as_micros().div_ceil(1_000) as u64);
            self.pass_to(next.clamp(self.now_ms, until_ms));
            if next > until_ms {
                return;
            }
            let now = self.now();
            for process in &mut self.processes {
                process.node.handle_time(now, 0);
                process.lane.iter_mut().for_each(|lane| lane.handle_time(now));
            }
            self.settle();
        }
    }

    fn pass_to(&mut self, at_ms: u64) {
        self.store_ms.fetch_add(at_ms - self.now_ms, Ordering::Relaxed);
        self.now_ms = at_ms;
    }

    fn shards(&self, process: usize) -> usize {
        self.processes[process].lane.as_ref().map_or(0, |lane| lane.shards().len())
    }
}

fn made(
    store: &Arc<MemoryStore>,
    call: perennial_core::lane::StoreCall,
) -> perennial_core::lane::StoreResult {
    let (sender, receiver) = mpsc::channel();
    call.make(&**store, move |answer| sender.send(answer).expect("somebody waits"));
    receiver.recv().expect("the store in memory answers at once")
}

/// Two processes that have divided the shards. The first one's node, its lane, the second one's node and its lane renew
/// at different times.
fn divided(phases_ms: [u64; 3]) -> World {
    let mut world = World::new();
    world.boot_node();
    world.run_until(phases_ms[0]);
    world.boot_lane(0);
    world.run_until(3_000 + phases_ms[1]);
    world.boot_node();
    world.run_until(6_000 + phases_ms[2]);
    world.boot_lane(1);
    world.run_until(45_000);
    assert_eq!((world.shards(0), world.shards(1)), (128, 128));
    world
}

#[test]
fn n11_a_dead_nodes_shards_are_taken_over_within_its_lease_and_a_second() {
    let mut latest_ms = 0;
    for phase in 0..64 {
        let phases_ms = [phase % 4 * 800, phase / 4 % 4 * 800, phase / 16 * 800];
        for dies_ms in [45_000, 46_100, 47_500] {
            let mut world = divided(phases_ms);
            world.run_until(dies_ms);
            world.processes.remove(0);
            world.processes[0].gained_ms.clear();
            world.run_until(dies_ms + 20_000);
            assert_eq!(world.shards(0), 256);
            latest_ms = latest_ms.max(world.processes[0].gained_ms[0] - dies_ms);
        }
    }
    assert!(latest_ms <= LEASE_MS + 1_000, "the last one was taken over after {latest_ms} ms");
}

#[test]
fn n11_a_node_that_renews_is_not_looked_at_more_often() {
    let mut world = divided([0, 400, 800]);
    world.directories = 0;
    world.run_until(105_000);
    // Once with each renewal of each node.
    assert!(world.directories <= 2 * 19, "{} looks in a minute", world.directories);
}

/// One process that owns everything, and one that joins it a while later.
fn joined(with_hints: bool) -> World {
    let mut world = World::new();
    if with_hints {
        world.hear_hints();
    }
    world.boot_node();
    world.boot_lane(0);
    world.run_until(30_500);
    assert_eq!(world.shards(0), 256);
    world.boot_node();
    world.boot_lane(1);
    world
}

#[test]
fn n7_a_node_that_joins_gets_its_first_shards_at_once_and_its_share_with_the_next_renewals() {
    let mut world = joined(true);
    world.run_until(30_600);
    assert_eq!((world.shards(0), world.shards(1)), (224, 32), "a few at a time");
    world.run_until(30_600 + LEASE_MS / 4);
    assert_eq!((world.shards(0), world.shards(1)), (224, 32));
    world.run_until(30_500 + 4 * LEASE_MS / 3);
    assert_eq!((world.shards(0), world.shards(1)), (128, 128));
}

#[test]
fn n12_a_node_that_joins_without_hints_gets_its_share_by_renewals_alone() {
    let mut world = joined(false);
    world.run_until(30_500 + 3 * LEASE_MS);
    assert_eq!((world.shards(0), world.shards(1)), (128, 128));
}

#[test]
fn n7_the_shards_of_a_node_that_leaves_are_claimed_at_once() {
    let mut world = joined(true);
    world.run_until(60_000);
    world.stop(0);
    world.run_until(60_100);
    assert_eq!(world.shards(1), 256);
}

#[test]
fn n7_shards_that_are_released_during_a_claim_are_claimed_by_the_next() {
    let mut world = joined(true);
    // Two more targets while a portion is on its way: none waits for a renewal that it need not wait for.
    world.run_until(60_000);
    world.boot_node();
    world.boot_lane(2);
    world.run_until(60_100);
    assert_eq!((world.shards(0) + world.shards(1), world.shards(2)), (192, 64));
}

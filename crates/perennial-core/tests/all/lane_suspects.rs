//! An instance whose turn takes the process down, time and again, is found among its neighbours and blocked; they finish,
//! and nobody is blamed for a process that was killed from outside (G29).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, number};
use perennial_core::lane::LaneOptions;
use perennial_core::shard::ShardOptions;
use perennial_core::{OrchestrationContext, Payload, ShardId};
use perennial_testkit::ManualNode;

const LEASE_MS: u64 = 10_000;
/// A process may die this often before the culprit is found.
const MAX_DEATHS: usize = 30;

/// An activity, a timer, an activity.
async fn neighbour(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _ = ctx.schedule_activity("echo", ()).await;
    ctx.schedule_timer(Duration::from_millis(5)).await;
    let _ = ctx.schedule_activity("echo", ()).await;
    Ok("fine".into())
}

/// An activity, and an event.
async fn culprit(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _ = ctx.schedule_activity("echo", ()).await;
    Ok(ctx.schedule_wait("go").await)
}

/// When a turn of a culprit takes the process down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deadly {
    FirstTurn,
    AfterResult,
    Replay,
}

/// A node under which the process dies when it comes to certain turns.
struct Scene {
    node: ManualNode,
    culprits: Vec<(&'static str, Deadly)>,
    deaths: usize,
}

impl Scene {
    fn new(culprits: &[(&'static str, Deadly)]) -> Scene {
        let handlers = handlers().with("neighbour", ManualNode::VERSION, neighbour).with(
            "culprit",
            ManualNode::VERSION,
            culprit,
        );
        // Interruptions of activities are another story.
        let shard =
            ShardOptions { max_interruptions: 1_000, quarantine_after: 1_000, ..ShardOptions::default() };
        let options = LaneOptions { lease_ms: LEASE_MS, shard, ..ManualNode::lane_options() };
        let node = ManualNode::with_lane_options(handlers, options);
        Scene { node, culprits: culprits.to_vec(), deaths: 0 }
    }

    fn start_neighbours(&mut self, name: &str, count: usize) {
        for number in 0..count {
            self.node.send_start("neighbour", &format!("{name}-{number}"), ());
        }
    }

    /// The process dies; the next one takes over when the session has expired.
    fn die(&mut self) {
        self.deaths += 1;
        self.node.set_clock(self.node.now_ms() + LEASE_MS + 1);
        self.node.die().take_over();
    }

    /// Whether the process dies with one of the turns that are to be taken.
    fn is_deadly(&self) -> bool {
        self.culprits.iter().any(|(id, deadly)| {
            let is_replay = self.node.is_replayed(id);
            let jobs = self.node.jobs_to_take(id);
            self.node.turns_to_take().iter().any(|turn| turn == id)
                && match deadly {
                    Deadly::FirstTurn => {
                        self.node.try_row(id).is_none_or(|row| row.status.name() == "pending")
                    }
                    Deadly::AfterResult => jobs.iter().any(|job| job.starts_with("ActivityCompleted")),
                    Deadly::Replay => is_replay,
                }
        })
    }

    /// Does everything that can be done. Returns whether the process is still there.
    fn survives(&mut self) -> bool {
        loop {
            while self.node.look_up() || self.node.load() || self.node.commit() > 0 || self.node.follow_hint()
            {
            }
            if self.is_deadly() {
                return false;
            }
            if self.node.take_turns() {
                continue;
            }
            let running = self.node.take_running();
            if running.is_empty() {
                return true;
            }
            running.iter().for_each(|task| self.node.bring_result(task, Ok(Payload::null())));
        }
    }

    fn is_settled(&self) -> bool {
        let rows: Vec<_> = self.node.tables().instances.values().cloned().collect();
        rows.iter().all(|row| match self.culprits.iter().any(|(id, _)| *id == row.id) {
            true => row.blocked.is_some(),
            false => row.status.name() == "completed",
        })
    }

    /// Starts the process again each time it dies, until it lives and everybody is where they should be.
    fn run_until_settled(&mut self) {
        while !self.is_settled() {
            if self.survives() {
                self.node.at(self.node.now_ms() + 100);
            } else {
                assert!(self.deaths < MAX_DEATHS * self.culprits.len(), "{} deaths", self.deaths);
                self.die();
            }
        }
    }

    /// The culprit is found; the next processes leave it alone; once it is retried it is tried.
    fn find_and_cure(mut self, id: &'static str) {
        self.run_until_settled();
        assert_eq!(self.node.row(id).blocked.map(|blocked| blocked.code), Some("PER-0302".to_owned()));
        let deaths = self.deaths;
        for name in ["again", "and-again"] {
            self.node.crash().take_over();
            self.start_neighbours(name, 3);
            self.node.pass_inbox();
            self.run_until_settled();
        }
        assert_eq!(self.deaths, deaths, "nobody asked for it to be tried");
        self.culprits.clear();
        self.node.retry(id);
        self.node.raise(id, "go", "gone");
        self.run_until_settled();
        assert!(self.node.last_lines(id, 1)[0].ends_with(r#"OrchestrationCompleted "gone""#));
    }
}

#[test]
fn g29_a_first_turn_that_takes_the_process_down_is_found_among_its_neighbours() {
    let mut scene = Scene::new(&[("culprit", Deadly::FirstTurn)]);
    scene.start_neighbours("before", 20);
    scene.node.send_start("culprit", "culprit", ());
    scene.start_neighbours("after", 20);
    scene.node.pass_inbox();
    scene.find_and_cure("culprit");
}

#[test]
fn g29_a_turn_after_a_result_that_takes_the_process_down_is_found() {
    let mut scene = Scene::new(&[("culprit", Deadly::AfterResult)]);
    scene.start_neighbours("before", 20);
    scene.node.send_start("culprit", "culprit", ());
    scene.start_neighbours("after", 20);
    scene.node.pass_inbox();
    scene.find_and_cure("culprit");
}

#[test]
fn g29_a_replay_that_takes_the_process_down_is_found() {
    let mut scene = Scene::new(&[("culprit", Deadly::Replay)]);
    scene.node.send_start("culprit", "culprit", ());
    scene.node.pass_inbox();
    assert!(scene.survives());
    scene.start_neighbours("before", 20);
    scene.node.send_event("culprit", "noise", "");
    scene.start_neighbours("after", 20);
    scene.die();
    scene.find_and_cure("culprit");
}

#[test]
fn g29_two_that_take_the_process_down_are_both_found() {
    let mut scene = Scene::new(&[("one", Deadly::FirstTurn), ("two", Deadly::AfterResult)]);
    scene.node.send_start("culprit", "one", ());
    scene.start_neighbours("n", 10);
    scene.node.send_start("culprit", "two", ());
    scene.node.pass_inbox();
    scene.run_until_settled();
    let codes = ["one", "two"].map(|id| scene.node.row(id).blocked.map(|blocked| blocked.code));
    assert_eq!(codes, [Some("PER-0302".to_owned()), Some("PER-0302".to_owned())]);
}

/// A node that is careful: three processes before it did not stop in good order.
fn careful(ids: &[&str]) -> Scene {
    let mut scene = Scene::new(&[]);
    for id in ids {
        scene.node.start("collect", id, ());
    }
    scene.node.settle();
    (0..3).for_each(|_| scene.die());
    scene.node.settle();
    scene
}

#[test]
fn g29_a_careful_lane_notes_what_it_tries_before_it_takes_the_turn() {
    let mut scene = careful(&["a"]);
    let node = &mut scene.node;
    node.slow_down("write_shard_notes");
    node.raise("a", "n", "1");
    while node.look_up() || node.load() {}
    assert!(node.turns_to_take().is_empty());
    assert_eq!(node.make_slow(), 1);
    assert_eq!(node.turns_to_take(), ["a"]);
    let note = node.tables().ownership.shards[&ShardId::of("a")].note.clone().expect("it is noted");
    let note = String::from_utf8(note.to_vec()).expect("text");
    assert!(note.contains(&node.row("a").key.to_string()), "{note}");
}

#[test]
fn g29_what_was_tried_together_is_suspect_and_is_halved_after_each_death() {
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut scene = careful(&ids);
    ids.iter().for_each(|id| {
        scene.node.send_event(id, "n", "1");
    });
    let mut sizes = Vec::new();
    for process in 0..4 {
        // While this one's turn is taken, all others gather.
        let first = format!("first of {process}");
        scene.node.start("collect", &first, ());
        scene.node.pass_inbox();
        while scene.node.look_up() || scene.node.load() {}
        assert_eq!(scene.node.turns_to_take(), [first.as_str()]);
        scene.node.take_turn(&first);
        sizes.push(scene.node.turns_to_take().len());
        scene.die();
    }
    assert_eq!(sizes, [8, 4, 2, 1]);
}

#[test]
fn g29_an_owner_that_has_lived_for_a_while_stops_being_careful() {
    let mut scene = careful(&["a", "b"]);
    let node = &mut scene.node;
    let unclean =
        |node: &ManualNode| node.tables().ownership.shards.values().map(|entry| entry.unclean_ends).max();
    assert_eq!(unclean(node), Some(3));
    let raised = node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.told(raised), "accepted", "it goes on with care");
    for seconds in 1..=61 {
        node.at(node.now_ms() + 1_000).settle();
        assert!(seconds > 60 || unclean(node) == Some(3), "after {seconds} seconds");
    }
    assert_eq!(unclean(node), Some(0));
    assert!(node.tables().ownership.shards.values().all(|entry| entry.note.is_none()));
    node.slow_down("write_shard_notes");
    node.raise("b", "n", "1");
    node.settle();
    assert_eq!((node.make_slow(), node.lines("b").len()), (0, 4));
}

#[test]
fn g29_an_instance_whose_processes_are_killed_from_outside_is_never_blamed() {
    let mut scene = Scene::new(&[]);
    scene.node.start("collect", "a", ());
    scene.node.settle();
    for round in 0..6 {
        // Each process takes a turn of it alone, and is killed when it has nothing to do.
        let raised = scene.node.raise("a", "n", number(round));
        scene.node.settle();
        scene.node.at(scene.node.now_ms() + 1_000).settle();
        assert_eq!((scene.node.told(raised), scene.node.row("a").blocked), ("accepted".into(), None));
        // And some are killed before they do anything.
        (0..3).for_each(|_| scene.die());
    }
    scene.node.raise("a", "n", "end");
    scene.node.settle();
    assert!(scene.node.last_lines("a", 1)[0].ends_with("[0,1,2,3,4,5]"));
}

#[test]
fn g29_only_deaths_during_its_own_turn_count_and_survival_wipes_them_out() {
    let mut scene = careful(&["a"]);
    for survived in 1..=3 {
        scene.node.send_event("a", "n", "more");
        // Three times in a row a process is killed just when a turn of this instance, alone, is under way.
        for _ in 0..3 {
            scene.node.pass_inbox();
            while scene.node.look_up() || scene.node.load() {}
            scene.node.at(scene.node.now_ms() + 1_000);
            assert_eq!(scene.node.turns_to_take(), ["a"]);
            scene.die();
        }
        scene.node.pass_inbox().settle();
        scene.node.at(scene.node.now_ms() + 1_000).settle();
        assert_eq!((scene.node.row("a").blocked, scene.node.jobs("a").len()), (None, survived));
    }
}

#[test]
fn g29_a_process_that_stopped_in_good_order_makes_nobody_suspect() {
    let mut scene = careful(&["a"]);
    scene.node.crash().take_over();
    scene.node.slow_down("write_shard_notes");
    scene.node.raise("a", "n", "1");
    scene.node.settle();
    assert_eq!((scene.node.make_slow(), scene.node.lines("a").len()), (0, 4), "it is not careful");
}

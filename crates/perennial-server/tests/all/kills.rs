//! A stream that is cut again and again, while the processes that serve it and that make its turns are killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use perennial::prelude::*;
use perennial_server::{Access, Options, Role};
use perennial_testkit::postgres::TestServer;
use serde_json::json;

use crate::wire::{Place, Stream};
use crate::world::{Setup, World, builder};

/// How often the stream is cut.
const CUTS: usize = 1_000;
/// Names the store to the programs that are killed.
const STORE: &str = "PERENNIAL_KILLS_STORE";

/// A process that was started, and is killed with this value.
struct Program(Child);

impl Program {
    /// Runs an ignored test of this file as a program, and returns it with the first line that it says.
    fn run(name: &str, url: &str) -> (Program, String) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("kills::{name}"), "--ignored", "--nocapture"])
            .env(STORE, url)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("says: ")?.1.to_owned()));
        (Program(child), said.unwrap_or_else(|| panic!("{name} ended without a word")))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SIGKILL: nothing is cleaned up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "a program that h28_… runs and kills"]
fn program_owner() {
    let Ok(url) = std::env::var(STORE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let options = RuntimeOptions {
            keep_executions: None,
            lease: Duration::from_secs(2),
            ..RuntimeOptions::default()
        };
        let _owner = builder(&url).options(options).start().await.unwrap();
        println!("says: owner");
        std::future::pending::<()>().await;
    });
}

#[test]
#[ignore = "a program that h28_… runs and kills"]
fn program_server() {
    let Ok(url) = std::env::var(STORE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options::default().access(Access::everybody(Role::Operator));
        let place = crate::world::serve(Client::open(&url).unwrap(), options).await;
        println!("says: {}", place.address);
        std::future::pending::<()>().await;
    });
}

/// The turns that a reader has seen, and where it goes on.
#[derive(Default)]
struct Reader {
    seen: Vec<(u64, u64)>,
    cursor: Option<String>,
    is_over: bool,
}

impl Reader {
    /// Connects, takes some messages, and leaves without a word. Returns whether it was connected.
    async fn read(&mut self, place: &Place, messages: u64) -> bool {
        let mut asked = place.get("stream?instance=r");
        if let Some(cursor) = &self.cursor {
            asked = asked.header("last-event-id", cursor);
        }
        let Some(mut stream) = asked.try_open().await else { return false };
        for _ in 0..messages {
            if !self.take(&mut stream).await || self.is_over {
                break;
            }
        }
        true
    }

    async fn take(&mut self, stream: &mut Stream) -> bool {
        // While nobody owns the store nothing comes; a cut is then as good as a message.
        let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(5), stream.next_if_open()).await
        else {
            return false;
        };
        match message.kind.as_str() {
            "turn" => {
                let number = |value: &serde_json::Value| value.as_u64().unwrap();
                let place = (number(&message.data["execution"]), number(&message.data["turn"]["number"]));
                self.seen.push(place);
                self.cursor = Some(message.id);
            }
            "instance" => {
                self.is_over = !message.data["ended_ms"].is_null();
                self.cursor = Some(message.id);
            }
            kind => assert!(["gone", "end"].contains(&kind), "{message:?}"),
        }
        true
    }
}

/// A generator whose numbers depend on its seed alone.
fn draw(rng: &mut u64, below: u64) -> u64 {
    *rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*rng >> 33) % below
}

async fn recorded(client: &Client) -> Vec<(u64, u64)> {
    let mut turns = Vec::new();
    for execution in client.executions("r").await.unwrap() {
        let history = client.history_of("r", execution).await.unwrap();
        turns.extend(history.turns.iter().map(|turn| (execution, turn.number)));
    }
    turns
}

async fn cut_while_processes_are_killed(url: &str) {
    let (mut owner, _) = Program::run("program_owner", url);
    let (mut server, mut address) = Program::run("program_server", url);
    let client = Client::open(url).unwrap();
    client.start("rounds", "r", Payload::encode(&600).unwrap()).await.unwrap();
    let (mut reader, mut rng, mut cuts, mut kills) = (Reader::default(), 7_u64, 0, (0, 0));
    while !reader.is_over || cuts < CUTS {
        if reader.is_over {
            // Those who come back to what has ended get nothing twice, either.
            reader.is_over = false;
        }
        let place = Place { address: address.parse().unwrap(), prefix: "" };
        let messages = draw(&mut rng, 3);
        if reader.read(&place, messages).await {
            cuts += 1;
        }
        match cuts {
            // Killed while turns are made and while the reader is away or not.
            cut if cut > 0 && cut % 90 == 0 => {
                drop(server);
                (server, address) = Program::run("program_server", url);
                (kills.0, cuts) = (kills.0 + 1, cuts + 1);
            }
            cut if cut > 0 && cut % 250 == 0 => {
                drop(owner);
                (owner, _) = Program::run("program_owner", url);
                (kills.1, cuts) = (kills.1 + 1, cuts + 1);
            }
            _ => {}
        }
        assert!(cuts < 20 * CUTS, "the instance does not end");
    }
    drop((owner, server));
    assert!(kills.0 >= 5 && kills.1 >= 2, "{kills:?}");
    assert_eq!(reader.seen, recorded(&client).await, "{cuts} cuts");
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_stream_cut_1000_times_beside_kills_saw_every_turn_once_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("store.db").display());
    // The owner makes the store.
    builder(&url).start().await.unwrap().shutdown().await.unwrap();
    cut_while_processes_are_killed(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_stream_cut_1000_times_beside_kills_saw_every_turn_once_on_postgres() {
    let server = TestServer::shared();
    let url = server.new_schema();
    builder(&url).start().await.unwrap().shutdown().await.unwrap();
    cut_while_processes_are_killed(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_stream_cut_1000_times_saw_every_turn_once_in_memory() {
    let world = World::new(Setup::MemoryMounted).await;
    world.start("rounds", "r", json!(600)).await;
    let (mut reader, mut rng, mut cuts) = (Reader::default(), 7_u64, 0);
    while !reader.is_over || cuts < CUTS {
        reader.is_over = false;
        assert!(reader.read(&world.place, draw(&mut rng, 3)).await);
        cuts += 1;
    }
    assert_eq!(reader.seen, recorded(&world.client).await, "{cuts} cuts");
    world.end().await;
}

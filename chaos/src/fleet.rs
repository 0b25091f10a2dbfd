//! The node processes: starting, signalling and stopping them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::node::NodeOptions;

/// How often a wait for a process looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// One node process. It is killed when it is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    /// How it was started.
    pub options: NodeOptions,
    /// When it was started.
    pub started: Instant,
    child: Child,
    is_ready: watch::Receiver<bool>,
    is_paused: bool,
}

impl NodeProcess {
    /// Starts a process. Its standard error is appended to `NAME.log` in the directory of the logs.
    pub fn spawn(program: &PathBuf, options: NodeOptions) -> std::io::Result<NodeProcess> {
        let journal = options.directory.join(format!("{}.log", options.name));
        let journal = File::options().create(true).append(true).open(journal)?;
        let mut command = Command::new(program);
        command.args(options.arguments()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(journal);
        let mut child = command.kill_on_drop(true).spawn()?;
        let (ready, is_ready) = watch::channel(false);
        let stdout = child.stdout.take().expect("it is piped");
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line == "ready" {
                    ready.send_replace(true);
                }
            }
        });
        Ok(NodeProcess { options, started: Instant::now(), child, is_ready, is_paused: false })
    }

    /// The id of the process, unless it has ended.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Whether it has said that it works.
    pub fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Whether it is stopped by a signal.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Waits until it works. Returns `false` if it ends before.
    pub async fn ready(&mut self) -> bool {
        self.is_ready.wait_for(|is_ready| *is_ready).await.is_ok()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // It may have ended a moment ago; `ended` says how.
            let _ = kill_process(id, signal);
        }
    }

    /// Stops it where it is.
    pub fn pause(&mut self) {
        self.is_paused = true;
        self.signal(Signal::STOP);
    }

    /// Lets it continue.
    pub fn resume(&mut self) {
        self.is_paused = false;
        self.signal(Signal::CONT);
    }

    /// Asks it to stop gracefully.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it at once.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// Waits for its end.
    pub async fn end_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }
}

/// The nodes of a run by name.
#[derive(Debug)]
pub struct Fleet {
    program: PathBuf,
    template: NodeOptions,
    nodes: BTreeMap<u64, NodeProcess>,
    next: u64,
}

impl Fleet {
    /// Nodes of this program, with these options except for the name.
    pub fn new(program: PathBuf, template: NodeOptions) -> Fleet {
        Fleet { program, template, nodes: BTreeMap::new(), next: 1 }
    }

    /// Starts a node.
    pub fn add(&mut self) -> u64 {
        let template = self.template.clone();
        self.add_with(template)
    }

    /// Starts a node with other options.
    ///
    /// # Panics
    ///
    /// If the program cannot be run.
    pub fn add_with(&mut self, options: NodeOptions) -> u64 {
        let number = self.next;
        self.next += 1;
        let options = NodeOptions { name: format!("node-{number}"), ..options };
        let node = NodeProcess::spawn(&self.program, options).expect("the node program can be run");
        self.nodes.insert(number, node);
        number
    }

    /// The options that nodes are started with.
    pub fn template(&self) -> &NodeOptions {
        &self.template
    }

    /// The numbers of all nodes.
    pub fn numbers(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// The numbers of nodes that work and are not paused.
    pub fn at_work(&self) -> Vec<u64> {
        let works =
            |(number, node): (&u64, &NodeProcess)| (node.is_ready() && !node.is_paused()).then_some(*number);
        self.nodes.iter().filter_map(works).collect()
    }

    /// A node.
    ///
    /// # Panics
    ///
    /// If there is none with this number.
    pub fn node(&mut self, number: u64) -> &mut NodeProcess {
        self.nodes.get_mut(&number).expect("a node of the fleet")
    }

    /// Takes a node out of the fleet.
    pub fn remove(&mut self, number: u64) -> Option<NodeProcess> {
        self.nodes.remove(&number)
    }

    /// Takes out the nodes that have ended, with how they ended and whether they had worked.
    pub fn take_ended(&mut self) -> Vec<(u64, ExitStatus, bool)> {
        let mut ended = Vec::new();
        for (number, node) in &mut self.nodes {
            if let Some(status) = node.ended() {
                ended.push((*number, status, node.is_ready()));
            }
        }
        for (number, ..) in &ended {
            self.nodes.remove(number);
        }
        ended
    }
}

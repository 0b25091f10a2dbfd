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

/// How often a wait for a process checks again.
const PAUSE: Duration = Duration::from_millis(20);

/// A node process. It is killed when it is dropped.
#[derive(Debug)]
pub struct NodeProcess {
    /// The options it was started with.
    pub options: NodeOptions,
    /// When it was started.
    pub started: Instant,
    child: Child,
    is_ready: watch::Receiver<bool>,
    is_paused: bool,
}

impl NodeProcess {
    /// Starts a process. Its standard error is appended to `NAME.log` in the log directory.
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

    /// The process id; `None` if the process has ended.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns whether the node has reported that it is ready.
    pub fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Returns whether the process is stopped by a signal.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Waits until the node is ready. Returns `false` if the process ends before.
    pub async fn ready(&mut self) -> bool {
        self.is_ready.wait_for(|is_ready| *is_ready).await.is_ok()
    }

    /// The exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            // The process may have ended in the meantime; `ended` returns its status.
            let _ = kill_process(id, signal);
        }
    }

    /// Pauses the process (SIGSTOP).
    pub fn pause(&mut self) {
        self.is_paused = true;
        self.signal(Signal::STOP);
    }

    /// Resumes the process (SIGCONT).
    pub fn resume(&mut self) {
        self.is_paused = false;
        self.signal(Signal::CONT);
    }

    /// Asks the process to stop gracefully (SIGTERM).
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills the process (SIGKILL).
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// Waits until the process has ended. Returns `None` after `patience`.
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

/// The nodes of a run, by number.
#[derive(Debug)]
pub struct Fleet {
    program: PathBuf,
    template: NodeOptions,
    nodes: BTreeMap<u64, NodeProcess>,
    next: u64,
}

impl Fleet {
    /// Creates a fleet whose nodes run this program with these options. Each node gets a name of its own.
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

    /// The numbers of nodes that are ready and not paused.
    pub fn at_work(&self) -> Vec<u64> {
        let works =
            |(number, node): (&u64, &NodeProcess)| (node.is_ready() && !node.is_paused()).then_some(*number);
        self.nodes.iter().filter_map(works).collect()
    }

    /// A node of the fleet.
    ///
    /// # Panics
    ///
    /// If there is no node with this number.
    pub fn node(&mut self, number: u64) -> &mut NodeProcess {
        self.nodes.get_mut(&number).expect("a node of the fleet")
    }

    /// Removes a node from the fleet.
    pub fn remove(&mut self, number: u64) -> Option<NodeProcess> {
        self.nodes.remove(&number)
    }

    /// Removes the nodes that have ended. Returns their exit status and whether they were ready before.
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

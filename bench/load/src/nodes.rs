//! Several nodes over one store, each in a process of its own with an equal share of the load.
//!
//! The first node is this process. It starts the others with the option `--join`: such a process opens a runtime, writes a
//! line when every node has its shards, runs its share for each line that it reads (the round's name and whose instances
//! it starts), and writes a line when it is done.
//!
//! There are two rounds. In the first, each node starts instances that it owns itself: the cost of sharing a machine. In the
//! second, ids are arbitrary, as those of callers are: all but one in `nodes` belong to other nodes, and their starts and
//! results go through the store.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use perennial::store::{SHARDS, ShardId};
use perennial::{Client, Payload};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::figures::Report;
use crate::fleet::{Outcome, Place, Site, runtime};
use crate::workloads::{fresh, run_ids};

const IN_FLIGHT: usize = 128;
/// The names of the rounds, and whether nodes start only instances that they own.
const ROUNDS: [(&str, bool); 3] = [("warm", true), ("own", true), ("any", false)];
/// Arbitrary ids are this many times fewer: they take longer.
const FEWER: u64 = 10;

/// One of several nodes.
struct Share {
    /// Its number, from 0.
    number: usize,
    nodes: usize,
    client: Client,
    /// The shards that it owns, once every node has its share.
    owned: HashSet<u8>,
}

impl Share {
    /// Waits until every node has its share of the shards.
    async fn wait_for_shards(&mut self) -> Outcome<()> {
        let fair = SHARDS / self.nodes;
        loop {
            let nodes = self.client.nodes().await?;
            if nodes.len() == self.nodes && nodes.iter().all(|node| node.shards >= fair) {
                let own = nodes.iter().find(|node| node.process == std::process::id());
                let own = own.ok_or("this node is not listed")?.id.clone();
                let shards = self.client.shards().await?.into_iter();
                self.owned =
                    shards.filter(|shard| shard.node.as_ref() == Some(&own)).map(|it| it.shard).collect();
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts this node's share of `count` instances and waits for each.
    async fn run(&self, round: &str, count: u64, only_own: bool) -> Outcome<()> {
        let ids = (0..).map(|index| format!("{round}-{}-{index}", self.number));
        let ids = ids.filter(|id| !only_own || self.owned.contains(&ShardId::of(id).0));
        let share = usize::try_from(count)? / self.nodes;
        run_ids(&self.client, "hello", ids.take(share), IN_FLIGHT / self.nodes, &Payload::null()).await
    }
}

/// Another node of this run.
struct Member {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Member {
    fn start(site: &Site, number: usize, nodes: usize) -> Outcome<Member> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--store", &site.url, "--nodes", &nodes.to_string()]);
        command.args(["--lanes", &site.lanes.to_string(), "--join", &number.to_string()]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let input = process.stdin.take().ok_or("no standard input")?;
        let output = BufReader::new(process.stdout.take().ok_or("no standard output")?).lines();
        Ok(Member { process, input, output })
    }

    async fn wait_for_line(&mut self) -> Outcome<()> {
        self.output.next_line().await?.map(drop).ok_or_else(|| "a node ended early".into())
    }

    async fn stop(mut self) -> Outcome<()> {
        drop(self.input);
        self.process.wait().await?;
        Ok(())
    }
}

/// Measures `hello` with several nodes.
pub(crate) async fn hello(place: &Place, runs: usize, count: u64, nodes: usize) -> Outcome<Vec<Report>> {
    let mut rates = ROUNDS.map(|_| Vec::new());
    for run in 0..runs {
        let site = fresh(place, &format!("nodes-{run}")).await?;
        let runtime = runtime(&site).await?;
        let mut share = Share { number: 0, nodes, client: runtime.client(), owned: HashSet::new() };
        let members = (1..nodes).map(|number| Member::start(&site, number, nodes));
        let mut members = members.collect::<Outcome<Vec<Member>>>()?;
        share.wait_for_shards().await?;
        for member in &mut members {
            member.wait_for_line().await?;
        }
        for ((round, only_own), rates) in ROUNDS.into_iter().zip(&mut rates) {
            let count = if only_own { count } else { count / FEWER };
            let begun = Instant::now();
            for member in &mut members {
                member.input.write_all(format!("{round} {count} {only_own}\n").as_bytes()).await?;
            }
            share.run(round, count, only_own).await?;
            for member in &mut members {
                member.wait_for_line().await?;
            }
            rates.push(count as f64 / begun.elapsed().as_secs_f64());
        }
        for member in members {
            member.stop().await?;
        }
        runtime.shutdown().await?;
        site.clear().await?;
    }
    let measured = ROUNDS.into_iter().zip(rates).skip(1);
    Ok(measured
        .map(|((round, _), rates)| {
            let report = Report::new("hello", place.name(), "instances/s", rates);
            report.with("in_flight", IN_FLIGHT).with("nodes", nodes).with("ids", round)
        })
        .collect())
}

/// Joins the nodes of another process.
pub(crate) async fn join(place: &Place, number: usize, nodes: usize) -> Outcome<()> {
    let runtime = runtime(&place.existing()).await?;
    let mut share = Share { number, nodes, client: runtime.client(), owned: HashSet::new() };
    share.wait_for_shards().await?;
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = input.next_line().await? {
        let [round, count, only_own] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("unknown round {line:?}").into());
        };
        share.run(round, count.parse()?, only_own.parse()?).await?;
        println!("done");
    }
    runtime.shutdown().await?;
    Ok(())
}

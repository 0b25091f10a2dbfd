//! The process that starts orders, kills workers, and checks the orders.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use perennial::client::Count;
use perennial::history::History;
use perennial::{Client, ClientError, Filter, Status};
use serde::Serialize;

use super::ledger::Ledger;
use super::orders::{APPROVAL, Order, Outcome, order};
use super::place::Place;
use super::serving::Serving;
use super::worker::Worker;
use crate::exit::{ExitKind, Failure};
use crate::output::{self, line, now_ms};
use crate::timeline::{self, Marks};

/// The time without a finished order after which the remaining orders count as lost.
const STALL: Duration = Duration::from_secs(20);
/// The minimum lifetime of a worker.
const LIFE_MS: u64 = 450;
/// The lifetime of a worker while somebody watches.
const SERVED_LIFE: Duration = Duration::from_secs(4);
/// Orders of a demo that somebody watches. Counts are exact up to 10,000.
const SERVED_ORDERS: usize = 5_000;
/// The interval at which finished orders are counted.
const LOOK: Duration = Duration::from_millis(100);

/// The arguments of the demo.
pub(crate) struct Demo {
    pub(crate) orders: usize,
    pub(crate) kills: usize,
    /// The URL of a PostgreSQL database, to use instead of a SQLite file.
    pub(crate) server: Option<String>,
    pub(crate) nodes: Option<usize>,
    pub(crate) keep: Option<PathBuf>,
    /// Where the dashboard is served while orders and kills go on until Ctrl-C.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) as_json: bool,
}

/// The result of the demo; `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    started: usize,
    completed: usize,
    shipped: usize,
    undone: usize,
    lost: usize,
    doubled: i64,
    kills: usize,
    repeated: i64,
    seconds: f64,
}

/// Runs the demo and deletes what it made.
pub(crate) async fn run(demo: Demo) -> Result<(), Failure> {
    let place = Place::new(&demo)?;
    let report = match demo.listen {
        // Ctrl-C ends the orders, not the count of them.
        Some(listen) => run_served(&place, &demo, listen).await,
        None => tokio::select! {
            report = run_in(&place, &demo) => report,
            _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted")),
        },
    };
    let cleared = place.clear(&demo).await;
    let report = report?;
    cleared?;
    if report.lost == 0 && report.doubled == 0 { Ok(()) } else { Err(Failure::Silent(ExitKind::Failed)) }
}

/// Runs the demo, and prints what came of it. The workers end with it.
async fn run_in(place: &Place, demo: &Demo) -> Result<Report, Failure> {
    let mut fleet = Fleet::begin(place, demo).await?;
    let report = fleet.direct(demo).await?;
    fleet.tell(report, demo).await
}

/// Runs the demo beside its dashboard until Ctrl-C, then lets the orders end and counts them.
async fn run_served(place: &Place, demo: &Demo, listen: SocketAddr) -> Result<Report, Failure> {
    let mut fleet = Fleet::begin(place, demo).await?;
    let serving = Serving::start(&place.store, listen, demo.as_json).await?;
    let report = fleet.direct_until_interrupted(demo).await?;
    let report = fleet.tell(report, demo).await;
    serving.end().await?;
    report
}

/// The orders, and the current workers.
struct Fleet<'p> {
    place: &'p Place,
    client: Client,
    ledger: Ledger,
    workers: Vec<Worker>,
    /// The orders whose start was acknowledged.
    started: Vec<(String, Order)>,
    /// The orders that wait for approval.
    undecided: Vec<(String, bool)>,
    killed_at_ms: Vec<u64>,
    begun: Instant,
    bar: ProgressBar,
    is_quiet: bool,
}

impl<'p> Fleet<'p> {
    async fn begin(place: &'p Place, demo: &Demo) -> Result<Fleet<'p>, Failure> {
        let begun = Instant::now();
        let mut workers = Vec::new();
        for number in 1..=place.nodes {
            workers.push(place.start_worker(number).await?);
        }
        let bar = output::progress(Some(demo.orders as u64), "orders completed");
        Ok(Fleet {
            client: Client::open(&place.store)?,
            ledger: Ledger::open(&place.ledger)?,
            place,
            workers,
            started: Vec::new(),
            undecided: Vec::new(),
            killed_at_ms: Vec::new(),
            begun,
            bar,
            is_quiet: demo.as_json,
        })
    }

    /// Starts one part of the orders for each worker process, and kills each process but the last.
    async fn direct(&mut self, demo: &Demo) -> Result<Report, Failure> {
        let lives = demo.kills + 1;
        let (orders, kills, nodes) = (demo.orders, demo.kills, self.place.nodes);
        self.print_line(match (&demo.server, nodes) {
            (None, _) => format!("{orders} orders on one SQLite file; the worker is killed {kills} times"),
            (Some(_), 1) => format!("{orders} orders on PostgreSQL; the worker is killed {kills} times"),
            (Some(_), _) => {
                format!("{orders} orders on PostgreSQL, {nodes} workers; one of them is killed {kills} times")
            }
        })?;
        for life in 0..lives {
            self.start_orders(demo.orders * life / lives + 1..=demo.orders * (life + 1) / lives).await?;
            if life == demo.kills {
                break;
            }
            // Vary the point in an order's life at which the kill happens.
            self.watch(Duration::from_millis(LIFE_MS + 170 * (life as u64 % 4))).await?;
            self.kill().await?;
            // Events do not need a running worker: they are on disk when they are acknowledged.
            self.decide(demo.orders / lives / 5).await?;
        }
        self.finish().await?;
        self.count(demo.kills).await
    }

    /// The same again and again, at a pace that can be watched, until Ctrl-C.
    async fn direct_until_interrupted(&mut self, demo: &Demo) -> Result<Report, Failure> {
        self.print_line("orders are started and their worker is killed until you press Ctrl-C".to_owned())?;
        let each = (demo.orders / (demo.kills + 1)).max(1);
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        loop {
            let begun = self.started.len();
            self.start_orders(begun + 1..=(begun + each).min(SERVED_ORDERS)).await?;
            let watched = self.watch(SERVED_LIFE);
            tokio::select! {
                _ = interrupted.as_mut() => break,
                watched = watched => watched?,
            }
            if demo.kills > 0 {
                self.kill().await?;
            }
            self.decide(each / 5).await?;
        }
        self.finish().await?;
        self.count(self.killed_at_ms.len()).await
    }

    /// Prints the report.
    async fn tell(&self, report: Report, demo: &Demo) -> Result<Report, Failure> {
        self.bar.finish_and_clear();
        if demo.as_json {
            output::object(&report)?;
        } else {
            self.print(&report).await?;
            if demo.keep.is_some() {
                line(format!("\nkept: perennial --store {} list", self.place.shown_store()))?;
            }
        }
        Ok(report)
    }

    async fn start_orders(&mut self, numbers: std::ops::RangeInclusive<usize>) -> Result<(), Failure> {
        for number in numbers {
            let (id, placed) = (format!("order-{number}"), Order::of_number(number));
            self.client.start(order, &id, placed.clone()).await?;
            if placed.needs_approval() {
                self.undecided.push((id.clone(), !number.is_multiple_of(50)));
            }
            self.started.push((id, placed));
        }
        Ok(())
    }

    /// Approves or declines the large orders, except this many of the newest: people take a while to decide.
    async fn decide(&mut self, but: usize) -> Result<(), Failure> {
        let decided = self.undecided.len().saturating_sub(but);
        for (id, approved) in self.undecided.drain(..decided).collect::<Vec<_>>() {
            match self.client.raise_event(&id, APPROVAL, approved).await {
                // A declined card compensates an order before its approval.
                Ok(()) | Err(ClientError::Ended { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn kill(&mut self) -> Result<(), Failure> {
        // Each in its turn.
        let place = self.killed_at_ms.len() % self.place.nodes;
        self.workers.remove(place).kill()?;
        self.killed_at_ms.push(now_ms());
        let done = self.completed().await?;
        let open = self.started.len() as u64 - done;
        let kills = self.killed_at_ms.len();
        self.print_line(format!("  kill -9 #{kills}: {done} orders completed, {open} in progress"))?;
        let number = self.place.nodes + kills;
        self.workers.insert(place, self.place.start_worker(number).await?);
        Ok(())
    }

    /// Updates the progress bar for a while.
    async fn watch(&self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.bar.set_position(self.completed().await?);
            tokio::time::sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
        Ok(())
    }

    /// Waits until every order has ended, or none has ended for [`STALL`].
    async fn finish(&mut self) -> Result<(), Failure> {
        self.decide(0).await?;
        let (mut seen, mut since) = (0, Instant::now());
        while since.elapsed() < STALL {
            let done = self.ended().await?;
            self.bar.set_position(done);
            if done >= self.started.len() as u64 {
                break;
            }
            if done > seen {
                (seen, since) = (done, Instant::now());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn completed(&self) -> Result<u64, Failure> {
        self.with_status(vec![Status::Completed]).await
    }

    async fn ended(&self) -> Result<u64, Failure> {
        self.with_status(Status::ALL.into_iter().filter(|status| status.is_final()).collect()).await
    }

    async fn with_status(&self, statuses: Vec<Status>) -> Result<u64, Failure> {
        let filter = Filter::new().statuses(statuses).orchestration("order");
        let Count { rows, .. } = self.client.count(filter).await?;
        Ok(rows)
    }

    /// Compares every order whose start was acknowledged with its effects in the ledger.
    async fn count(&self, kills: usize) -> Result<Report, Failure> {
        let mut report = Report {
            started: self.started.len(),
            completed: 0,
            shipped: 0,
            undone: 0,
            lost: 0,
            doubled: self.ledger.doubled()?,
            kills,
            repeated: self.ledger.repeated()?,
            seconds: 0.0,
        };
        for (id, _) in &self.started {
            let history = self.client.history(id).await?;
            let Some(outcome) = outcome(&history) else {
                report.lost += 1;
                continue;
            };
            report.completed += 1;
            let charged = self.ledger.done(id, "charge")? > 0;
            let refunded = self.ledger.done(id, "refund")? > 0;
            let is_true = match outcome {
                Outcome::Shipped { .. } => {
                    report.shipped += 1;
                    charged && !refunded && self.ledger.done(id, "release")? == 0
                }
                Outcome::Undone { .. } => {
                    report.undone += 1;
                    charged == refunded && self.ledger.done(id, "release")? > 0
                }
            };
            // An order whose effects are not in the ledger is lost as well.
            report.lost += usize::from(!is_true);
        }
        report.seconds = (self.begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        Ok(report)
    }

    /// Prints the timeline of the order that survived the most kills, and the counts.
    async fn print(&self, report: &Report) -> Result<(), Failure> {
        let is_eventful = |placed: &Order| placed.needs_approval() && placed.cents.is_multiple_of(3);
        let mut best: Option<((usize, bool), String, History)> = None;
        for (id, placed) in &self.started {
            let history = self.client.history(id).await?;
            let (Some(first), Some(last)) = (history.turns.first(), history.turns.last()) else {
                continue;
            };
            let lived = first.at_ms..=last.at_ms;
            let survived = self.killed_at_ms.iter().filter(|at_ms| lived.contains(*at_ms)).count();
            let rank = (survived, is_eventful(placed));
            let is_shipped = matches!(outcome(&history), Some(Outcome::Shipped { .. }));
            if is_shipped && best.as_ref().is_none_or(|(most, ..)| rank > *most) {
                best = Some((rank, id.clone(), history));
            }
        }
        if let Some((_, id, history)) = best {
            line("\none order as a timeline (✗: a worker was killed)\n")?;
            let marks = Marks { label: "kill -9", at_ms: &self.killed_at_ms };
            for drawn in timeline::draw(&id, &history, now_ms(), Some(marks)) {
                line(drawn.trim_end())?;
            }
        }
        let Report { started, completed, shipped, undone, lost, doubled, kills, repeated, seconds } = report;
        line(format!(
            "\nstarted {started}, completed {completed}, lost {lost}, doubled {doubled}, kills {kills}"
        ))?;
        line(format!(
            "({shipped} shipped, {undone} compensated; {repeated} requests were repeated after a kill and recognized by \
             their idempotency key; {seconds} s)"
        ))
    }

    fn print_line(&self, text: String) -> Result<(), Failure> {
        if self.is_quiet {
            return Ok(());
        }
        self.bar.suspend(|| line(text))
    }
}

fn outcome(history: &History) -> Option<Outcome> {
    match history.ending() {
        Some(perennial::history::Ending::OrchestrationCompleted { output }) => output.decode().ok(),
        _ => None,
    }
}

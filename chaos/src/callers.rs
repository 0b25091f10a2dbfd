//! Callers: tasks that start, signal, update, query and cancel instances, and log every request and its response.
//!
//! Callers outside the nodes survive all faults. They repeat a request whose outcome is unknown; the instance's id
//! makes a start idempotent, and a key makes an event or an update idempotent. A caller is done with an instance only
//! when the instance has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perennial::prelude::*;
use perennial::{StoreError, history::Ending};
use tokio::task::JoinSet;

use crate::kinds::{ADDITIONS, DEPOSITS, expected_output, letters, number};
use crate::log::Log;

/// Pause before a request is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns whether the error is temporary, so that the request can be repeated.
fn is_transient(error: &ClientError) -> bool {
    match error {
        ClientError::Store { source, .. } => {
            matches!(source, StoreError::Unavailable(_) | StoreError::Unknown(_))
        }
        ClientError::Unknown { .. } | ClientError::NotAnswered { .. } => true,
        _ => false,
    }
}

/// The callers of a run and the state they share.
#[derive(Clone, Debug)]
pub struct Callers {
    clients: Vec<Client>,
    log: Log,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The requests that were acknowledged before these callers began; they are not repeated.
    acknowledged: BTreeSet<Vec<String>>,
    /// Whether the callers continue the lives of others: an instance may have ended without an answer to its caller.
    is_resuming: bool,
    is_stopping: AtomicBool,
    finished: AtomicUsize,
    errors: AtomicUsize,
    problems: std::sync::Mutex<Vec<String>>,
}

/// The lives of callers. A life is one scenario with one instance; the caller repeats it until it is stopped.
const LIVES: [&str; 12] = [
    "sequence", "fanout", "timers", "mail", "mail", "account", "account", "family", "hops", "trip", "cancel",
    "retries",
];

impl Callers {
    /// Creates callers that share these clients.
    pub fn new(clients: Vec<Client>, log: Log) -> Callers {
        Callers { clients, log, state: Arc::default() }
    }

    /// Creates callers that continue what those of a log began: requests whose acknowledgement is logged are not repeated,
    /// and all others are.
    pub fn resuming(client: Client, log: Log) -> Callers {
        let entries = log.entries().into_iter();
        let acknowledged = entries.filter(|entry| entry.phase == "ok").map(|entry| entry.fields).collect();
        let state = State { acknowledged, is_resuming: true, ..State::default() };
        Callers { clients: vec![client], log, state: Arc::new(state) }
    }

    /// Continues every life that was begun according to the log, all at once.
    pub fn resume(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let entries = self.log.entries();
        let begun: BTreeMap<&String, &String> = entries
            .iter()
            .filter_map(|entry| Some((entry.of("send", "start")?.first()?, &entry.writer)))
            .collect();
        for (id, writer) in begun {
            let Some((life, place)) = id.split_once('-') else { continue };
            let (life, place) = (life.to_owned(), place.to_owned());
            let caller = Caller {
                client: self.clients[0].clone(),
                log: self.log.of_writer(writer),
                state: Arc::clone(&self.state),
            };
            tasks.spawn(async move { caller.live(&life, &place).await });
        }
        tasks
    }

    /// Starts one caller for each life, with a pause between instances.
    pub fn begin(&self, pause: Duration) -> JoinSet<()> {
        self.begin_lives(&LIVES, pause)
    }

    /// Like [`Callers::begin`], with instances that are numbered from a given number on.
    pub fn begin_from(&self, first: u64, pause: Duration) -> JoinSet<()> {
        self.begin_lives_from(&LIVES, first, pause)
    }

    /// Starts one caller for each of these lives.
    pub fn begin_lives(&self, lives: &[&'static str], pause: Duration) -> JoinSet<()> {
        self.begin_lives_from(lives, 0, pause)
    }

    fn begin_lives_from(&self, lives: &[&'static str], first: u64, pause: Duration) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for (place, life) in lives.iter().copied().enumerate() {
            let caller = Caller {
                client: self.clients[place % self.clients.len()].clone(),
                log: self.log.of_writer(&format!("caller-{place}")),
                state: Arc::clone(&self.state),
            };
            tasks.spawn(async move {
                for number in first.. {
                    if caller.state.is_stopping.load(Ordering::Relaxed) {
                        return;
                    }
                    caller.live(life, &format!("{place}-{number}")).await;
                    caller.state.finished.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(pause).await;
                }
            });
        }
        tasks
    }

    /// Makes callers stop once their current instance has ended.
    pub fn stop(&self) {
        self.state.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Number of lives that were completed.
    pub fn finished(&self) -> usize {
        self.state.finished.load(Ordering::Relaxed)
    }

    /// Number of requests that had to be repeated.
    pub fn errors(&self) -> usize {
        self.state.errors.load(Ordering::Relaxed)
    }

    /// Responses that no fault explains.
    ///
    /// # Panics
    ///
    /// If a caller panicked.
    pub fn problems(&self) -> Vec<String> {
        self.state.problems.lock().expect("no caller panics here").clone()
    }
}

/// Repeats a request until its outcome is known.
macro_rules! until_settled {
    ($caller:ident, $fields:expr, $send:expr, $is_fine:expr) => {{
        let (fields, send) = ($fields, $send);
        loop {
            if $caller.is_acknowledged(&fields) {
                break None;
            }
            $caller.log.note("send", &fields);
            let answer = send().await;
            if let ControlFlow::Break(answer) = $caller.settle(&fields, answer, $is_fine).await {
                break answer;
            }
        }
    }};
}

struct Caller {
    client: Client,
    log: Log,
    state: Arc<State>,
}

impl Caller {
    async fn live(&self, life: &str, place: &str) {
        let id = format!("{life}-{place}");
        match life {
            "mail" => self.mail(&id).await,
            "account" => self.account(&id).await,
            "cancel" => self.cancel(&id).await,
            "hops" => self.start(life, &id, number(3)).await,
            _ => self.start(life, &id, Payload::null()).await,
        }
        match life {
            "cancel" => {}
            "trip" => self.fails(&id).await,
            _ => self.completes(&id).await,
        }
    }

    fn problem(&self, id: &str, what: impl Display) {
        self.state.problems.lock().expect("no caller panics here").push(format!("{id}: {what}"));
    }

    /// Whether a request was acknowledged before this caller began. The end of an instance is asked for again.
    fn is_acknowledged(&self, fields: &[&str]) -> bool {
        let is_read = ["result", "query"].contains(&fields[0]);
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        !is_read && self.state.acknowledged.contains(&fields)
    }

    /// Whether a request came too late because an earlier caller's had its effect, of which that caller did not hear.
    fn ended_unheard(&self, error: &ClientError) -> bool {
        self.state.is_resuming && matches!(error, ClientError::Ended { .. })
    }

    /// Logs a response. Breaks if it is final, with `None` if the request was refused permanently. A refusal is a
    /// problem unless `is_fine` returns true for it.
    async fn settle<T>(
        &self,
        fields: &[&str],
        answer: Result<T, ClientError>,
        is_fine: fn(&ClientError) -> bool,
    ) -> ControlFlow<Option<T>> {
        let error = match answer {
            Ok(answer) => {
                self.log.note("ok", fields);
                return ControlFlow::Break(Some(answer));
            }
            Err(error) => error,
        };
        self.log.note("error", &[fields, &[&error.to_string()]].concat());
        if is_fine(&error) || self.ended_unheard(&error) {
            self.log.note("ok", fields);
            return ControlFlow::Break(None);
        }
        if !is_transient(&error) {
            self.problem(fields[1], format_args!("{}: {error}", fields[0]));
            return ControlFlow::Break(None);
        }
        self.state.errors.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
        ControlFlow::Continue(())
    }

    async fn start(&self, kind: &str, id: &str, input: Payload) {
        // A repeated start finds the instance that the first one created.
        let is_there = |error: &ClientError| matches!(error, ClientError::AlreadyExists { .. });
        let send = || self.client.start(kind, id, input.clone());
        until_settled!(self, ["start", id, kind], send, is_there);
    }

    async fn raise(&self, id: &str, event: &str, payload: &Payload) {
        let text = payload.to_text();
        let send = || self.client.raise_event(id, event, payload.clone()).once(format!("{event} {text}"));
        until_settled!(self, ["raise", id, event, &text], send, |_| false);
    }

    /// Sends letters, each until it is acknowledged.
    async fn mail(&self, id: &str) {
        self.start("mail", id, Payload::null()).await;
        for letter in letters() {
            self.raise(id, "letter", &Payload::from(letter)).await;
        }
    }

    /// Sends events and updates while the instance continues as new. A query must see everything that was acknowledged.
    async fn account(&self, id: &str) {
        self.start("account", id, number(0)).await;
        let mut additions = ADDITIONS.into_iter();
        let mut acknowledged = 0;
        for amount in DEPOSITS {
            self.raise(id, "deposit", &number(amount)).await;
            if let Some(amount) = additions.next() {
                acknowledged += self.add(id, amount).await;
                self.look(id, acknowledged).await;
            }
        }
        self.raise(id, "deposit", &number(0)).await;
    }

    /// Sends an update with a key until its outcome is known.
    async fn add(&self, id: &str, amount: u64) -> u64 {
        let key = format!("addition {amount}");
        let fields = ["update", id, &key];
        if self.is_acknowledged(&fields) {
            return amount;
        }
        loop {
            self.log.note("send", &fields);
            match self.client.update(id, "add", number(amount)).once(&key).await {
                Ok(_) => {
                    self.log.note("ok", &fields);
                    return amount;
                }
                Err(UpdateError::Client(error)) if self.ended_unheard(&error) => return 0,
                Err(UpdateError::Client(error)) if is_transient(&error) => {
                    self.log.note("error", &["update", id, &error.to_string()]);
                    self.state.errors.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    self.problem(id, format_args!("update: {error}"));
                    return 0;
                }
            }
        }
    }

    async fn look(&self, id: &str, acknowledged: u64) {
        let send = || self.client.query(id, "total", Payload::null());
        let total = until_settled!(self, ["query", id], send, |_| false);
        if let Some(total) = total.and_then(|total| total.decode::<u64>().ok())
            && total & acknowledged != acknowledged
        {
            self.problem(id, format_args!("a query saw {total}, which lacks parts of {acknowledged}"));
        }
    }

    /// Cancels the instance at different moments.
    async fn cancel(&self, id: &str) {
        self.start("patient", id, Payload::null()).await;
        let wait = id.bytes().map(u64::from).sum::<u64>() % 150;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let send = || self.client.cancel(id, "enough");
        // A repeated cancel may find that the first one took effect.
        let is_over = |error: &ClientError| matches!(error, ClientError::Ended { .. });
        until_settled!(self, ["cancel", id], send, is_over);
        if let Some(ending) = self.ending(id).await
            && !matches!(ending, Ending::OrchestrationCancelled { .. })
        {
            self.problem(id, format_args!("it was cancelled, and ended with {ending:?}"));
        }
    }

    async fn ending(&self, id: &str) -> Option<Ending> {
        until_settled!(self, ["result", id], || self.client.wait(id), |_| false)
    }

    async fn completes(&self, id: &str) {
        let Some(ending) = self.ending(id).await else { return };
        match ending {
            Ending::OrchestrationCompleted { output } => {
                if let Some(expected) = expected_output(id).filter(|expected| output.as_json() != expected) {
                    self.problem(id, format_args!("it returned {}, not {expected}", output.as_json()));
                }
            }
            other => self.problem(id, format_args!("it ended with {other:?}")),
        }
    }

    async fn fails(&self, id: &str) {
        let ending = self.ending(id).await;
        if !matches!(ending, None | Some(Ending::OrchestrationFailed { .. })) {
            self.problem(id, format_args!("it ended with {ending:?}"));
        }
    }
}

/// A caller inside a node, which dies with it. It repeats nothing, and stops when the file `quiet` exists.
#[derive(Debug)]
pub struct Inside {
    client: Client,
    log: Log,
    quiet: PathBuf,
}

impl Inside {
    /// Creates a caller with the client of its runtime.
    pub fn new(client: Client, log: Log, quiet: PathBuf) -> Inside {
        Inside { client, log, quiet }
    }

    /// Starts instances, one after the other.
    pub async fn run(self) {
        let one = number(1);
        for number in 0_u64.. {
            if self.quiet.exists() {
                return;
            }
            let id = format!("brief-{}-{number}", self.log.writer());
            let fields = ["start", id.as_str(), "brief"];
            self.log.note("send", &fields);
            let answer: Result<(), String> = match self.client.start("brief", &id, one.clone()).await {
                Ok(run) => {
                    self.log.note("ok", &fields);
                    run.result().await.map(drop).map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = answer {
                self.log.note("error", &["start", &id, &error]);
                tokio::time::sleep(PAUSE).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

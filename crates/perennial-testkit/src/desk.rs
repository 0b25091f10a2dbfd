//! A node without threads: everything that shards want done lies on the desk until a test takes it up.
//!
//! Shards, Committer and store are the real ones. The test decides when an id is looked up, an instance loaded, a turn
//! taken, a batch written (and what comes of it), an activity finished, and when the process dies. What must hold in any
//! order is checked at every output: one turn or commit under way per instance, no activity before its schedule is
//! durable, one answer per request.

mod activities;
mod batches;
mod callers;
mod lookout;
mod others;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use perennial_core::shard::{
    ActivityTask, Answer, Committer, Output, RequestId, Shard, ShardOptions, TurnTask, TurnTaskDone,
};
use perennial_core::store::{
    Commit, Filter, InboxRow, InstanceRow, LoadedInstance, MemoryStore, Reply, SessionId, Store, StoreError,
};
use perennial_core::{EventId, Handlers, InstanceKey, SHARDS, ShardId};

/// One node over a store in memory. Time starts at 1,000 ms and moves only when told.
pub struct Desk {
    store: Arc<MemoryStore>,
    clock: Arc<AtomicU64>,
    handlers: Handlers,
    options: ShardOptions,
    shards: Vec<Shard>,
    session: SessionId,
    committer: Committer,
    finds: VecDeque<(ShardId, RequestId, Arc<str>)>,
    loads: VecDeque<(ShardId, InstanceKey)>,
    /// Instances whose rows are to be read again, and activities that want to run alone, while these are held back.
    refreshes: VecDeque<(ShardId, InstanceKey)>,
    lone: VecDeque<(ShardId, InstanceKey, EventId)>,
    holds_back: bool,
    turns: VecDeque<(ShardId, TurnTask)>,
    running: Vec<ActivityTask>,
    /// Activities that nobody waits for any more.
    told_off: Vec<(InstanceKey, EventId)>,
    /// Instances that the store cannot read.
    unreadable: BTreeSet<InstanceKey>,
    /// Whether a durable commit has sent messages that were not read since.
    is_hinted: bool,
    seen: Seen,
    next_number: u64,
}

/// What has happened on the desk, across crashes.
#[derive(Default)]
struct Seen {
    names: BTreeMap<InstanceKey, Arc<str>>,
    answers: BTreeMap<RequestId, Answer>,
    turning: BTreeSet<InstanceKey>,
    committing: BTreeSet<InstanceKey>,
    /// Schedule events of activities that are on disk.
    schedules: BTreeSet<(InstanceKey, u64, EventId)>,
    activities: BTreeMap<(InstanceKey, EventId), String>,
    runs: Vec<String>,
    stops: Vec<String>,
    written: Vec<(InstanceKey, Commit)>,
}

/// A row that was read for a request, to be brought to its shard.
#[derive(Debug)]
pub struct Found {
    shard: ShardId,
    request: RequestId,
    row: Option<InstanceRow>,
}

/// An instance that was read, to be brought to its shard.
#[derive(Debug)]
pub struct Loaded {
    shard: ShardId,
    key: InstanceKey,
    answer: Result<Option<LoadedInstance>, StoreError>,
}

impl Desk {
    /// The version of everything that is started here.
    pub const VERSION: &'static str = "1.0.0";

    /// Ids that all belong to one shard, so that their instances share its limits.
    pub fn ids_of_one_shard(count: usize) -> Vec<String> {
        let ids = (0..).map(|number| format!("instance-{number}"));
        ids.filter(|id| ShardId::of(id) == ShardId(7)).take(count).collect()
    }

    /// A node that runs these orchestrations over an empty store.
    pub fn new(handlers: Handlers) -> Desk {
        Desk::with_options(handlers, ShardOptions::default())
    }

    /// A node whose shards behave like this.
    pub fn with_options(handlers: Handlers, options: ShardOptions) -> Desk {
        let clock = Arc::new(AtomicU64::new(1_000));
        let time = Arc::clone(&clock);
        let store = Arc::new(MemoryStore::new(move || time.load(Ordering::Relaxed)));
        let session = open_session(&store);
        Desk {
            store,
            clock,
            handlers,
            shards: shards(&options, 0),
            options,
            session,
            committer: Committer::new(1_024),
            finds: VecDeque::new(),
            loads: VecDeque::new(),
            refreshes: VecDeque::new(),
            lone: VecDeque::new(),
            holds_back: false,
            turns: VecDeque::new(),
            running: Vec::new(),
            told_off: Vec::new(),
            unreadable: BTreeSet::new(),
            is_hinted: false,
            seen: Seen::default(),
            next_number: 0,
        }
    }

    /// The store.
    pub fn store(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.store)
    }

    // ---- what lies on the desk ------------------------------------------------------------------------------------

    /// Reads the rows that requests wait for, and keeps them back.
    pub fn read_finds(&mut self) -> Vec<Found> {
        let find = |(shard, request, id): (ShardId, RequestId, Arc<str>)| {
            let row = ask_store(|reply| self.store.find(&id, reply)).expect("the store is open");
            Found { shard, request, row }
        };
        self.finds.drain(..).map(find).collect()
    }

    /// Brings a row to the request that waits for it.
    pub fn bring_found(&mut self, found: Found) {
        let Found { shard, request, row } = found;
        self.with_shard(shard, |shard, now_ms| shard.handle_found(now_ms, request, row));
    }

    /// Looks up every id that a request waits for. Returns whether there was one.
    pub fn look_up(&mut self) -> bool {
        let found = self.read_finds();
        let any = !found.is_empty();
        found.into_iter().for_each(|found| self.bring_found(found));
        any
    }

    /// Reads the instances that shards want, and keeps them back.
    pub fn read_loads(&mut self) -> Vec<Loaded> {
        let load = |(shard, key): (ShardId, InstanceKey)| {
            let answer = if self.unreadable.contains(&key) {
                Err(StoreError::CorruptRow("its bytes are no row".to_owned()))
            } else {
                ask_store(|reply| self.store.load(key, 0, reply))
            };
            Loaded { shard, key, answer }
        };
        self.loads.drain(..).map(load).collect()
    }

    /// Brings an instance to the shard that wants it.
    pub fn bring_loaded(&mut self, loaded: Loaded) {
        let Loaded { shard, key, answer } = loaded;
        self.with_shard(shard, |shard, now_ms| match answer {
            Ok(loaded) => shard.handle_loaded(now_ms, key, loaded),
            Err(error) => shard.handle_load_failed(now_ms, key, error.to_string()),
        });
    }

    /// Loads every instance that a shard wants. Returns whether there was one.
    pub fn load(&mut self) -> bool {
        let loaded = self.read_loads();
        let any = !loaded.is_empty();
        loaded.into_iter().for_each(|loaded| self.bring_loaded(loaded));
        any
    }

    /// From now on second looks at rows, and permissions to run alone, lie on the desk, too.
    pub fn hold_back(&mut self) -> &mut Desk {
        self.holds_back = true;
        self
    }

    /// Reads the rows that shards want to see again, and keeps them back.
    pub fn read_refreshes(&mut self) -> Vec<Loaded> {
        let read = |(shard, key): (ShardId, InstanceKey)| {
            let answer = ask_store(|reply| self.store.load(key, u64::MAX, reply));
            Loaded { shard, key, answer }
        };
        self.refreshes.drain(..).map(read).collect()
    }

    /// Brings rows to the shard that wants to see them again; the inbox is to be read then.
    pub fn bring_refreshed(&mut self, refreshed: Loaded) {
        let Loaded { shard, key, answer } = refreshed;
        let loaded = answer.expect("the store is open");
        self.with_shard(shard, |shard, now_ms| shard.handle_refreshed(now_ms, key, loaded));
        self.is_hinted = true;
    }

    /// Lets every activity run that wants to run alone.
    pub fn grant_lone(&mut self) -> &mut Desk {
        for (shard, key, event) in std::mem::take(&mut self.lone) {
            self.with_shard(shard, |shard, now_ms| shard.handle_lone_granted(now_ms, key, event));
        }
        self
    }

    /// Takes the turn task of an instance off the desk.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn pick_turn(&mut self, id: &str) -> TurnTask {
        let position = self.turns.iter().position(|(_, task)| &*task.instance == id);
        let position = position.unwrap_or_else(|| panic!("no turn of {id:?} is to be taken"));
        self.turns.remove(position).expect("it was just found").1
    }

    /// Runs a turn task with the code of today.
    pub fn run_turn(&self, task: TurnTask) -> TurnTaskDone {
        task.run(&self.handlers, |_| ())
    }

    /// Brings a turn that was run to its shard.
    pub fn bring_turn(&mut self, id: &str, done: TurnTaskDone) {
        self.seen.turning.remove(&done.key);
        self.with_shard(ShardId::of(id), |shard, now_ms| shard.handle_turn_done(now_ms, done));
    }

    /// Takes the turn of one instance.
    pub fn take_turn(&mut self, id: &str) {
        let task = self.pick_turn(id);
        let done = self.run_turn(task);
        self.bring_turn(id, done);
    }

    /// Gives up the thread that takes the turn of an instance.
    pub fn lose_turn(&mut self, id: &str) {
        let task = self.pick_turn(id);
        self.give_up_turn(id, task.key, task.number);
    }

    /// Gives up a turn that was picked before.
    pub fn give_up_turn(&mut self, id: &str, key: InstanceKey, number: u64) {
        self.seen.turning.remove(&key);
        self.with_shard(ShardId::of(id), |shard, now_ms| shard.handle_turn_lost(now_ms, key, number));
    }

    /// Takes every turn that is to be taken. Returns whether there was one.
    pub fn take_turns(&mut self) -> bool {
        let ids: Vec<Arc<str>> = self.turns.iter().map(|(_, task)| Arc::clone(&task.instance)).collect();
        ids.iter().for_each(|id| self.take_turn(id));
        !ids.is_empty()
    }

    /// Does everything that can be done, except finishing activities.
    pub fn settle(&mut self) -> &mut Desk {
        while self.look_up() || self.load() || self.take_turns() || self.commit() > 0 || self.follow_hint() {}
        self
    }

    // ---- time and messages ----------------------------------------------------------------------------------------

    /// The time.
    pub fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Lets time pass without telling anybody.
    pub fn set_clock(&mut self, now_ms: u64) {
        self.clock.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Reads what is due within the look-ahead, and brings the time to every shard.
    pub fn tick(&mut self) -> &mut Desk {
        self.read_due();
        for shard in ShardId::all() {
            self.with_shard(shard, Shard::handle_time);
        }
        self
    }

    /// Lets it be a time, and tells everybody.
    pub fn at(&mut self, now_ms: u64) -> &mut Desk {
        self.set_clock(now_ms);
        self.tick()
    }

    fn read_due(&mut self) {
        let before_ms = self.now_ms() + self.options.lookahead_ms;
        let read = |reply| self.store.read_due(self.session, before_ms, None, usize::MAX, reply);
        for due in ask_store(read).expect("the store is open") {
            self.with_shard(due.shard, |shard, _| shard.handle_due(due.key, due.wake_at_ms));
        }
    }

    /// Reads the inbox, and keeps it back.
    pub fn read_inbox(&mut self) -> Vec<InboxRow> {
        ask_store(|reply| self.store.read_inbox(self.session, 0, usize::MAX, reply))
            .expect("the store is open")
    }

    /// Brings messages to their shards.
    pub fn bring_inbox(&mut self, rows: Vec<InboxRow>) {
        for row in rows {
            self.with_shard(row.shard, |shard, now_ms| shard.handle_inbox(now_ms, vec![row]));
        }
    }

    /// Reads the inbox if a commit has sent something since. Returns whether it was read.
    pub fn follow_hint(&mut self) -> bool {
        let is_hinted = std::mem::take(&mut self.is_hinted);
        if is_hinted {
            self.pass_inbox();
        }
        is_hinted
    }

    /// Reads what other processes ask and brings it to the shards.
    pub fn pass_asks(&mut self) -> &mut Desk {
        let read = |reply| self.store.read_asks(self.session, 0, usize::MAX, reply);
        for row in ask_store(read).expect("the store is open") {
            self.with_shard(row.shard, |shard, now_ms| shard.handle_asks(now_ms, vec![row]));
        }
        self
    }

    /// Reads the inbox and brings it to the shards.
    pub fn pass_inbox(&mut self) -> &mut Desk {
        let rows = self.read_inbox();
        self.bring_inbox(rows);
        self
    }

    // ---- life and death -------------------------------------------------------------------------------------------

    /// The process dies and another begins: memory is gone, and a new session owns the shards.
    pub fn crash(&mut self) -> &mut Desk {
        let nonce = self.number();
        self.shards = shards(&self.options, nonce);
        self.committer.clear();
        self.finds.clear();
        self.loads.clear();
        self.refreshes.clear();
        self.lone.clear();
        self.turns.clear();
        self.running.clear();
        self.told_off.clear();
        self.seen.turning.clear();
        self.seen.committing.clear();
        self.renew_session();
        self
    }

    /// Looks at everything that a new owner has to look at: what is owed, blocked, in the inbox and due.
    pub fn take_over(&mut self) -> &mut Desk {
        let read = |reply| self.store.read_owed(self.session, None, usize::MAX, reply);
        for (key, shard) in ask_store(read).expect("the store is open") {
            self.with_shard(shard, |shard, now_ms| shard.handle_owed(now_ms, key));
        }
        let filter = Filter { blocked: Some(true), ..Filter::default() };
        let blocked = ask_store(|reply| self.store.list(filter, None, usize::MAX - 1, reply));
        for row in blocked.expect("the store is open").rows {
            if !row.status.is_final() {
                self.with_shard(row.shard, |shard, now_ms| shard.handle_owed(now_ms, row.key));
            }
        }
        self.pass_inbox().pass_asks().tick()
    }

    /// A shard is told to look at an instance as a new owner does.
    pub fn bring_owed(&mut self, id: &str, key: InstanceKey) {
        self.with_shard(ShardId::of(id), |shard, now_ms| shard.handle_owed(now_ms, key));
    }

    /// The process dies, and the next one goes on.
    pub fn restart(&mut self) -> &mut Desk {
        self.crash().take_over().settle()
    }

    /// How the shards of the next process behave.
    pub fn set_options(&mut self, options: ShardOptions) -> &mut Desk {
        self.options = options;
        self
    }

    /// Other code from now on, in the same process.
    pub fn replace_code(&mut self, handlers: Handlers) -> &mut Desk {
        self.handlers = handlers;
        self
    }

    /// The shards are told that they belong to another node; then they belong to this one again. Activities have
    /// stopped by then.
    pub fn lose_shards(&mut self) {
        for shard in ShardId::all() {
            self.with_shard(shard, |shard, _| shard.handle_lost());
        }
        self.running.clear();
        self.committer.clear();
        self.seen.turning.clear();
        self.seen.committing.clear();
        self.renew_session();
    }

    // ---- glue -----------------------------------------------------------------------------------------------------

    fn with_shard(&mut self, id: ShardId, input: impl FnOnce(&mut Shard, u64)) {
        let now_ms = self.now_ms();
        let shard = &mut self.shards[usize::from(id.0)];
        input(shard, now_ms);
        for output in shard.take_outputs() {
            self.lay_down(id, output);
        }
        self.committer.take_batch();
    }

    fn lay_down(&mut self, shard: ShardId, output: Output) {
        match output {
            Output::Find { request, id } => self.finds.push_back((shard, request, id)),
            Output::Load { key } => self.loads.push_back((shard, key)),
            Output::Refresh { key } => {
                self.refreshes.push_back((shard, key));
                if !self.holds_back {
                    self.read_refreshes().into_iter().for_each(|refreshed| self.bring_refreshed(refreshed));
                }
            }
            Output::TakeTurn(task) => {
                self.seen.names.insert(task.key, Arc::clone(&task.instance));
                assert!(self.seen.turning.insert(task.key), "two turns of {:?} at a time", task.instance);
                assert!(
                    !self.seen.committing.contains(&task.key),
                    "a turn of {:?} beside a commit",
                    task.instance
                );
                self.turns.push_back((shard, *task));
            }
            Output::Commit(commit) => {
                assert_eq!(commit.shard, shard, "a shard commits for itself");
                assert!(self.seen.committing.insert(commit.key), "two commits of {} at a time", commit.key);
                self.committer.add(*commit);
            }
            Output::RunActivity(task) => self.run_activity(*task),
            Output::WantLone { key, event } => {
                self.lone.push_back((shard, key, event));
                if !self.holds_back {
                    self.grant_lone();
                }
            }
            Output::CancelActivity { key, event, .. } => {
                let name =
                    self.seen.activities.get(&(key, event)).cloned().unwrap_or_else(|| event.to_string());
                let line = format!("{} {name}", self.name(key));
                self.seen.stops.push(line);
                self.told_off.push((key, event));
            }
            Output::Reply(request, answer) => {
                let earlier = self.seen.answers.insert(request, answer);
                assert!(earlier.is_none(), "{request:?} was answered before: {earlier:?}");
            }
            Output::Drop(execution) => drop(execution),
        }
    }

    fn run_activity(&mut self, task: ActivityTask) {
        let (key, event) = (task.key, task.event);
        assert!(
            self.seen.schedules.contains(&(key, task.execution, event)),
            "{:?} of {:?} runs before its schedule is durable",
            task.name,
            task.instance
        );
        let place = (key, task.execution, event);
        let beside = self.running.iter().find(|other| (other.key, other.execution, other.event) == place);
        assert!(beside.is_none(), "{:?} of {:?} runs twice at a time", task.name, task.instance);
        self.seen.runs.push(format!("{} {}", task.instance, task.name));
        self.seen.activities.insert((key, event), task.name.clone());
        self.running.push(task);
    }

    fn renew_session(&mut self) {
        ask_store(|reply| self.store.end_session(self.session, reply)).expect("the store is open");
        self.session = open_session(&self.store);
    }

    fn new_key(&mut self) -> InstanceKey {
        InstanceKey::new(self.now_ms(), u128::from(self.number()))
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

fn shards(options: &ShardOptions, nonce: u64) -> Vec<Shard> {
    ShardId::all().map(|id| Shard::new(id, options.clone(), u128::from(nonce))).collect()
}

/// A session that owns every shard.
fn open_session(store: &Arc<MemoryStore>) -> SessionId {
    let session =
        ask_store(|reply| store.open_session("desk", 1_000_000_000, reply)).expect("the store is open");
    let claimed =
        ask_store(|reply| store.claim_shards(session.id, SHARDS, reply)).expect("the session is new");
    assert_eq!(claimed.len(), SHARDS, "nobody else owns a shard");
    session.id
}

/// Asks a store that answers at once.
fn ask_store<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).expect("the asker waits")));
    receiver.recv().expect("the store in memory answers at once")
}

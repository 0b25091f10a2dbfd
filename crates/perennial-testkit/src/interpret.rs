//! Runs a program as an orchestration.
//!
//! A program depends only on its input and on the results it receives. Each unit has an [`Accumulator`]; a
//! block that runs in another unit starts from a fork of it and returns its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use perennial_core::{Either, NotOfType, OrchestrationContext, OrchestrationHandler, Payload, State};
use serde::Serialize;

use crate::Accumulator;
use crate::begin::{text, text_alone};
use crate::program::{
    Awaitable, Block, Cancellation, End, Fate, Handler, HandlerKind, PROGRAM, PROGRAM_VERSION, Program,
    ProgramInput, Recipient, SHARED_IDS, STATE_QUERY, Statement,
};

/// The source of side-effect values: a count that increases with each one, and that a replay must not change.
#[derive(Clone, Debug, Default)]
pub struct SideEffects(Arc<AtomicU64>);

impl SideEffects {
    /// The number of side effects so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets the count, so that a turn can be taken a second time.
    pub fn rewind(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The values that a program's code accepts. Handlers share it, and changing it simulates a deployment.
#[derive(Clone, Debug, Default)]
pub struct Expectations(Arc<Expected>);

#[derive(Debug, Default)]
struct Expected {
    refuses_inputs: AtomicBool,
    wants_text: AtomicBool,
}

impl Expectations {
    /// Sets whether inputs of [some lengths](Expectations::is_refused) cannot be decoded.
    pub fn refuse_inputs(&self, refuses: bool) {
        self.0.refuses_inputs.store(refuses, Ordering::Relaxed);
    }

    /// Sets whether events that a program waits for must be text.
    pub fn want_text(&self, wants: bool) {
        self.0.wants_text.store(wants, Ordering::Relaxed);
    }

    /// Whether an input is one that some code cannot decode: every second one, by its length.
    pub fn is_refused(input: &Payload) -> bool {
        input.size().is_multiple_of(2)
    }
}

/// The orchestration that runs the program in its input.
#[derive(Clone, Debug, Default)]
pub struct ProgramHandler {
    side_effects: SideEffects,
    gates_deleted: bool,
    expectations: Expectations,
}

impl ProgramHandler {
    /// Creates a handler that takes the values of side effects from here.
    pub fn new(side_effects: SideEffects) -> ProgramHandler {
        ProgramHandler { side_effects, ..ProgramHandler::default() }
    }

    /// The same code, which accepts only expected values.
    #[must_use]
    pub fn expecting(self, expectations: Expectations) -> ProgramHandler {
        ProgramHandler { expectations, ..self }
    }

    /// The same code after its patch gates were deleted: the gated blocks run unconditionally.
    #[must_use]
    pub fn without_gates(self) -> ProgramHandler {
        ProgramHandler { gates_deleted: true, ..self }
    }
}

impl OrchestrationHandler for ProgramHandler {
    fn run(
        &self,
        ctx: OrchestrationContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>> {
        let handler = self.clone();
        Box::pin(async move {
            if handler.expectations.0.refuses_inputs.load(Ordering::Relaxed)
                && Expectations::is_refused(&input)
                && let Err(mismatch) = input.decode_as::<u64>()
            {
                ctx.refuse_payload(&mismatch);
            }
            match input.decode::<ProgramInput>() {
                Ok(input) => Interpreter::new(ctx, handler, input).run().await,
                Err(error) => Err(Payload::from(format!("not a program: {error}"))),
            }
        })
    }
}

/// State shared by the units and handlers of a program. The state query returns it.
#[derive(Clone, Debug, Default, Serialize)]
struct Shared {
    accumulator: Accumulator,
    signals: BTreeMap<String, u64>,
}

impl Shared {
    fn payload(&self) -> Payload {
        Payload::encode(self).expect("it encodes")
    }
}

/// A running program. Every unit has a clone.
#[derive(Clone)]
pub(crate) struct Interpreter {
    pub(crate) ctx: OrchestrationContext,
    handler: ProgramHandler,
    input: Arc<ProgramInput>,
    shared: State<Shared>,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = Accumulator> + Send>>;

impl Interpreter {
    pub(crate) fn wants_text(&self) -> bool {
        self.handler.expectations.0.wants_text.load(Ordering::Relaxed)
    }

    fn new(ctx: OrchestrationContext, handler: ProgramHandler, input: ProgramInput) -> Interpreter {
        let shared = ctx.state(Shared::default());
        let (input, looked_at) = (Arc::new(input), shared.clone());
        ctx.on_query(STATE_QUERY, move |_| Ok(looked_at.read(Shared::payload)));
        Interpreter { ctx, handler, input, shared }
    }

    async fn run(self) -> Result<Payload, Payload> {
        let accumulator = match &self.input.program.cancellation {
            Cancellation::LeftToEngine => self.clone().body().await,
            Cancellation::Watched(cleanup) => {
                let body: Running = Box::pin(self.clone().body());
                match self.ctx.select2(body, self.ctx.cancelled()).await {
                    Either::First(accumulator) => accumulator,
                    Either::Second(_) => {
                        let accumulator = self.block(cleanup.clone(), self.input.accumulator).await;
                        if accumulator.below(2) == 0 {
                            return self.ctx.end_cancelled(accumulator.to_string()).await;
                        }
                        return Err(Payload::from(format!("cancelled {accumulator}")));
                    }
                }
            }
            Cancellation::Handled(cleanup) => {
                let (interpreter, cleanup) = (self.clone(), cleanup.clone());
                self.ctx.on_cancel(move || async move {
                    let accumulator = interpreter.input.accumulator;
                    let accumulator = interpreter.block(cleanup, accumulator).await;
                    interpreter.change_state(accumulator);
                });
                self.clone().body().await
            }
        };
        self.end(accumulator).await
    }

    async fn body(self) -> Accumulator {
        let program = &self.input.program;
        let mut accumulator = self.input.accumulator;
        for (position, statement) in program.body.0.iter().enumerate() {
            let due = |handler: &&Handler| handler.installed_before == position;
            program.handlers.iter().filter(due).for_each(|handler| self.install(handler));
            self.statement(statement, &mut accumulator).await;
        }
        accumulator
    }

    async fn end(self, mut accumulator: Accumulator) -> Result<Payload, Payload> {
        accumulator.fold(self.shared.read(Shared::payload).as_json());
        let output = Payload::from(accumulator.to_string());
        match self.input.program.end {
            End::Complete => Ok(output),
            End::Fail => Err(output),
            End::Depends if accumulator.below(2) == 0 => Ok(output),
            End::Depends => Err(output),
            End::ContinueAsNew => {
                self.continue_as_new(accumulator).await;
                Ok(output)
            }
        }
    }

    fn install(&self, handler: &Handler) {
        let (interpreter, dispatched) = (self.clone(), handler.clone());
        let dispatch = move |payload: Payload| {
            let (interpreter, handler) = (interpreter.clone(), dispatched.clone());
            async move { interpreter.dispatch(handler, payload).await }
        };
        match handler.kind {
            HandlerKind::Event => self.ctx.on_event(handler.name.clone(), move |payload| {
                let dispatched = dispatch(payload);
                async move {
                    dispatched.await;
                }
            }),
            HandlerKind::Update => {
                let looked_at = self.shared.clone();
                let validate = move |payload: &Payload| {
                    let seen = looked_at.read(|shared| shared.accumulator);
                    let refused = *payload == Program::refused_update();
                    if refused { Err(Payload::from(seen.to_string())) } else { Ok(()) }
                };
                self.ctx.on_update(handler.name.clone(), validate, move |payload| {
                    let dispatched = dispatch(payload);
                    async move {
                        let accumulator = dispatched.await;
                        let answer = Payload::from(accumulator.to_string());
                        if accumulator.below(3) == 0 { Err(answer) } else { Ok(answer) }
                    }
                });
            }
        }
    }

    /// Handles one event or update. Its start is signalled first, so that two waits for signals never wait
    /// for each other.
    async fn dispatch(self, handler: Handler, payload: Payload) -> Accumulator {
        self.shared.update(|shared| {
            *shared.signals.entry(handler.name.clone()).or_default() += 1;
            shared.accumulator.fold(payload.as_json());
        });
        let mut accumulator = self.input.accumulator;
        accumulator.fold(&handler.name);
        accumulator.fold(payload.as_json());
        let accumulator = self.block(handler.body, accumulator).await;
        self.change_state(accumulator);
        accumulator
    }

    fn change_state(&self, accumulator: Accumulator) {
        self.shared.update(|shared| shared.accumulator.fold(&accumulator.to_string()));
    }

    /// Waits for signals of a handler.
    pub(crate) async fn signals(self, name: String, at_least: u64) {
        let enough = move |shared: &Shared| shared.signals.get(&name).is_some_and(|count| *count >= at_least);
        self.ctx.wait_until(&self.shared, enough).await;
    }

    pub(crate) fn block(&self, block: Block, mut accumulator: Accumulator) -> Running {
        let interpreter = self.clone();
        Box::pin(async move {
            for statement in &block.0 {
                interpreter.statement(statement, &mut accumulator).await;
            }
            accumulator
        })
    }

    async fn statement(&self, statement: &Statement, accumulator: &mut Accumulator) {
        match statement {
            Statement::Await(what) => accumulator.fold(&text(self.begin(what, *accumulator).await)),
            Statement::Hold { what, polled, meanwhile, fate } => {
                self.hold((what, *polled, meanwhile, *fate), accumulator).await
            }
            Statement::If { then, otherwise } => {
                let taken = if accumulator.below(2) == 0 { then } else { otherwise };
                *accumulator = self.block(taken.clone(), *accumulator).await;
            }
            Statement::Repeat { at_most, body } => {
                for _ in 0..*at_most {
                    *accumulator = self.block(body.clone(), *accumulator).await;
                    if accumulator.below(4) == 0 {
                        break;
                    }
                }
            }
            Statement::Patched { id, body } => {
                if self.handler.gates_deleted || self.ctx.patched(id) {
                    *accumulator = self.block(body.clone(), *accumulator).await;
                }
            }
            Statement::ContinueAsNew => self.continue_as_new(*accumulator).await,
            Statement::Stream { name, at_most, limit_ms } => {
                self.stream(name, *at_most, *limit_ms, accumulator).await
            }
            _ => self.at_once(statement, accumulator).await,
        }
    }

    async fn hold(&self, held: (&Awaitable, bool, &Block, Fate), accumulator: &mut Accumulator) {
        let (what, polled, meanwhile, fate) = held;
        let mut pending = self.begin(what, *accumulator);
        if polled {
            pending.poll_once().await;
        }
        *accumulator = self.block(meanwhile.clone(), *accumulator).await;
        match fate {
            Fate::Awaited => accumulator.fold(&text(pending.await)),
            Fate::HandedOver => accumulator.fold(&text(self.ctx.spawn(pending).await)),
            Fate::Dropped => drop(pending),
            Fate::Detached => pending.detach(),
        }
    }

    /// Receives events from a stream until there are enough, or none arrives in time. Dropping a `receive`
    /// loses no event: the stream keeps it.
    async fn stream(&self, name: &str, at_most: u8, limit_ms: u64, accumulator: &mut Accumulator) {
        let mut events = self.ctx.events(name);
        if self.wants_text() {
            events = events.read_by(text_alone);
        }
        for _ in 0..at_most {
            let limit = self.ctx.schedule_timer(Duration::from_millis(limit_ms));
            match self.ctx.select2(events.receive(), limit).await {
                Either::First(payload) => accumulator.fold(payload.as_json()),
                Either::Second(()) => return accumulator.fold("nothing in time"),
            }
        }
    }

    /// Statements that hold no future while they wait.
    async fn at_once(&self, statement: &Statement, accumulator: &mut Accumulator) {
        let ctx = &self.ctx;
        match statement {
            Statement::SideEffect { name } => {
                let value = ctx.side_effect(name, || self.handler.side_effects.next()).await;
                accumulator.fold(&value.to_string());
            }
            Statement::UtcNow => accumulator.fold(&ctx.utc_now().await.as_millis().to_string()),
            Statement::NewGuid => accumulator.fold(&ctx.new_guid().await),
            Statement::Random => accumulator.fold(&format!("{} {}", ctx.random(), ctx.uuid4())),
            Statement::Look => {
                let looks = (ctx.now(), ctx.info(), ctx.is_cancelled(), ctx.should_continue_as_new());
                accumulator.fold(&format!("{looks:?}"));
            }
            Statement::ReadOneself => {
                accumulator.fold(&format!("{:?} {:?}", ctx.published(), ctx.attributes()));
            }
            Statement::TryReceive { name } => {
                let (unread, any) = (ctx.unread(name), ctx.has_unread());
                let read: fn(Payload) -> Result<Payload, NotOfType> =
                    if self.wants_text() { text_alone } else { Ok };
                let taken = ctx.try_receive_by(name.as_str(), read);
                assert_eq!(taken.is_some(), unread > 0, "an unread event can be received");
                assert!(any || unread == 0, "an unread event of a name counts as unread");
                accumulator.fold(&format!("{taken:?} of {unread}"));
            }
            Statement::ReadState => accumulator.fold(self.shared.read(Shared::payload).as_json()),
            Statement::ChangeState => self.change_state(*accumulator),
            Statement::SetStatus => ctx.set_status(accumulator.to_string()),
            Statement::UpsertAttribute { name, remove } => {
                let value = if *remove { Payload::null() } else { Payload::from(accumulator.to_string()) };
                ctx.upsert_attributes([(name.as_str(), value)]);
            }
            Statement::Start { program, versioned, heard } => {
                let (instance, input) = (self.new_instance(*accumulator), self.given(program, *accumulator));
                let sent = match versioned {
                    true => ctx.schedule_orchestration_versioned(PROGRAM, PROGRAM_VERSION, instance, input),
                    false => ctx.schedule_orchestration(PROGRAM, instance, input),
                };
                if *heard {
                    accumulator.fold(&format!("{:?}", sent.delivered().await));
                }
            }
            Statement::Raise { event, to } => {
                let instance = self.recipient(*to, *accumulator);
                ctx.raise_event(instance, event.as_str(), accumulator.to_string());
            }
            Statement::RaiseHeard { event, to } => {
                let instance = self.recipient(*to, *accumulator);
                let sent = ctx.raise_event(instance, event.as_str(), accumulator.to_string());
                // Another program may use the same key; then its event is dropped where this one was
                // accepted.
                let sent = sent.once(format!("heard-{accumulator}"));
                accumulator.fold(&format!("{:?}", sent.delivered().await));
            }
            Statement::CancelOther { to } => {
                let sent = ctx.cancel_orchestration(self.recipient(*to, *accumulator), "another's wish");
                accumulator.fold(&format!("{:?}", sent.grace(Duration::from_secs(5)).delivered().await));
            }
            _ => unreachable!("the other statements wait"),
        }
    }

    fn recipient(&self, to: Recipient, accumulator: Accumulator) -> String {
        let info = self.ctx.info();
        let instance = match to {
            Recipient::Itself => Some(info.instance),
            Recipient::Parent => info.parent.map(|parent| parent.instance),
            Recipient::Nobody => None,
            Recipient::Shared => Some(shared_id(accumulator)),
        };
        instance.unwrap_or_else(|| "nobody".to_owned())
    }

    /// An instance id that no other call of this program chooses, as far as it has seen different results; or
    /// one that others choose, too.
    pub(crate) fn new_instance(&self, accumulator: Accumulator) -> String {
        match accumulator.below(5) {
            0 | 1 => shared_id(accumulator),
            _ => format!("{}/{accumulator}", self.ctx.info().instance),
        }
    }

    /// The input of a program that this one starts.
    pub(crate) fn given(&self, program: &Program, accumulator: Accumulator) -> Payload {
        ProgramInput { accumulator, ..ProgramInput::from(program.clone()) }.payload()
    }

    async fn continue_as_new(&self, accumulator: Accumulator) {
        let Some(rounds_left) = self.input.rounds_left.checked_sub(1) else {
            return;
        };
        let input = ProgramInput { program: self.input.program.clone(), accumulator, rounds_left };
        if accumulator.below(4) == 0 {
            self.ctx.continue_as_new_versioned(PROGRAM_VERSION, input.payload()).await
        } else {
            self.ctx.continue_as_new(input.payload()).await
        }
    }
}

fn shared_id(accumulator: Accumulator) -> String {
    SHARED_IDS[accumulator.below(11) as usize % SHARED_IDS.len()].to_owned()
}

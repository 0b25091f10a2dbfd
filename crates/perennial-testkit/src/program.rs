//! Programs: orchestrations as data.
//!
//! A program is a small tree that [`ProgramHandler`](crate::ProgramHandler) runs as an orchestration. It is
//! passed in the input, so that any node can run it, and it is plain data, so that a failing one can be
//! printed and stored.

use std::collections::BTreeSet;

use perennial_core::{OnTakenId, Payload};
use serde::{Deserialize, Serialize};

use crate::Accumulator;

/// The registered name of the orchestration that runs programs.
pub const PROGRAM: &str = "program";
/// The version under which programs are registered.
pub const PROGRAM_VERSION: &str = "1.0.0";
/// Ids that programs choose for others now and then, so that some already exist.
pub const SHARED_IDS: [&str; 3] = ["shared-0", "shared-1", "shared-2"];
/// The tag of some activities.
pub const TAG: &str = "tuned";
/// The query that every program answers with its shared state.
pub const STATE_QUERY: &str = "state";

/// An orchestration as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The statements of the root.
    pub body: Block,
    /// Handlers of events and updates.
    pub handlers: Vec<Handler>,
    /// The reaction to a cancel request.
    pub cancellation: Cancellation,
    /// The end of the root.
    pub end: End,
    /// The maximum number of continue-as-new.
    pub rounds: u8,
}

/// Statements that run in sequence, in one unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Block(pub Vec<Statement>);

/// A step of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Statement {
    /// Starts an operation and awaits it.
    Await(Awaitable),
    /// Starts an operation, perhaps polls it once, runs a block, and only then returns to it.
    Hold {
        /// The operation.
        what: Awaitable,
        /// Whether it is polled at once, which makes this unit the one that receives its result.
        polled: bool,
        /// The block to run first.
        meanwhile: Block,
        /// The further use of the operation.
        fate: Fate,
    },
    /// Branches, depending on everything seen so far.
    If {
        /// The first branch.
        then: Block,
        /// The second branch.
        otherwise: Block,
    },
    /// Repeats until the accumulator is a multiple of four, or the maximum is reached.
    Repeat {
        /// The maximum number of repetitions.
        at_most: u8,
        /// The block to repeat.
        body: Block,
    },
    /// Runs the body if a patch applies.
    Patched {
        /// The id of the patch.
        id: String,
        /// The gated block.
        body: Block,
    },
    /// Records a side effect.
    SideEffect {
        /// The name under which it is recorded.
        name: String,
    },
    /// Records the current time.
    UtcNow,
    /// Records a UUID.
    NewGuid,
    /// Draws a number and a UUID from the unit's random stream.
    Random,
    /// Reads the time, the instance's own data, and whether cancellation was requested.
    Look,
    /// Reads the published value and the attributes of the program.
    ReadOneself,
    /// Takes an event if one has arrived.
    TryReceive {
        /// The event.
        name: String,
    },
    /// Receives the next events of a name from a stream, with a timeout.
    Stream {
        /// The event.
        name: String,
        /// The maximum number of events.
        at_most: u8,
        /// The timeout for each event.
        limit_ms: u64,
    },
    /// Reads the shared state.
    ReadState,
    /// Changes the shared state.
    ChangeState,
    /// Publishes the accumulator as the status.
    SetStatus,
    /// Sets an attribute to the accumulator, or removes it.
    UpsertAttribute {
        /// The attribute.
        name: String,
        /// Whether it is removed instead.
        remove: bool,
    },
    /// Starts a program as a top-level instance.
    Start {
        /// The program.
        program: Box<Program>,
        /// Whether an exact version is given.
        versioned: bool,
        /// Whether this program awaits the acknowledgement.
        heard: bool,
    },
    /// Raises an event at an instance.
    Raise {
        /// The event.
        event: String,
        /// The instance.
        to: Recipient,
    },
    /// Raises an event once, and awaits the acknowledgement.
    RaiseHeard {
        /// The event.
        event: String,
        /// The instance.
        to: Recipient,
    },
    /// Requests the cancellation of an instance, and awaits the acknowledgement.
    CancelOther {
        /// The instance.
        to: Recipient,
    },
    /// Continues as new, unless the rounds are used up.
    ContinueAsNew,
}

/// An operation that takes time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Awaitable {
    /// An activity.
    Activity {
        /// Its name.
        name: String,
        /// The input.
        input: ActivityInput,
        /// Whether it is scheduled with retries, timeouts or a tag, depending on what was seen.
        tuned: bool,
    },
    /// A timer.
    Timer {
        /// The duration.
        delay_ms: u64,
    },
    /// A wait for an external event.
    Event {
        /// The event.
        name: String,
    },
    /// A program as a sub-orchestration.
    Child {
        /// The program.
        program: Box<Program>,
        /// Whether the program chooses its id.
        named: bool,
        /// Whether an exact version is given.
        versioned: bool,
        /// Whether it may outlive this instance.
        abandoned: bool,
        /// The policy for an id that exists.
        on_existing: OnTakenId,
    },
    /// A wait until a handler has started this many times.
    Signals {
        /// The handler's event or update.
        name: String,
        /// The number of starts.
        at_least: u64,
    },
    /// A wait until no handler is running.
    HandlersIdle,
    /// A block, in the unit that awaits it, starting at its first poll.
    Sequence(Block),
    /// Parallel blocks, each in its own unit.
    Parallel(Vec<Block>),
    /// A block in its own unit.
    Spawned(Block),
    /// A block in its own unit that is never cancelled.
    Shielded(Block),
    /// A block in its own unit that a cancel request does not end.
    Uncancellable(Block),
    /// An activity or a child that is cancelled after a while and then awaited.
    Stopped {
        /// The operation to cancel.
        what: Box<Awaitable>,
        /// The delay before the cancellation.
        after_ms: u64,
    },
    /// A program as a sub-orchestration with retries and a timeout, whose start is awaited.
    Attempted {
        /// The program.
        program: Box<Program>,
    },
    /// All operations, in one unit.
    Joined(Vec<Awaitable>),
    /// All operations, or the first failure.
    TryJoined(Vec<Awaitable>),
    /// The first operation to finish.
    Raced {
        /// The operands, at least one.
        operands: Vec<Awaitable>,
        /// Whether the program learns which one won.
        named: bool,
    },
    /// An operation with a timeout.
    Limited {
        /// The timeout.
        limit_ms: u64,
        /// The operation.
        what: Box<Awaitable>,
    },
}

/// The input of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityInput {
    /// The accumulator.
    Accumulator,
    /// The same at every call, so that a history contains identical schedules.
    Fixed,
}

/// The further use of a started operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It is awaited.
    Awaited,
    /// It is moved to a new unit, which awaits it.
    HandedOver,
    /// It is dropped, which cancels it if it is still open.
    Dropped,
    /// A spawned unit is detached; anything else is dropped.
    Detached,
}

/// The target of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipient {
    /// The parent; no event is sent if there is none.
    Parent,
    /// The instance itself.
    Itself,
    /// An instance that does not exist.
    Nobody,
    /// The instance with one of the [ids that programs share](SHARED_IDS).
    Shared,
}

/// A handler of an event or update. Each call runs in its own unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// The event or update. No wait has the same name.
    pub name: String,
    /// Whether it handles events or updates.
    pub kind: HandlerKind,
    /// The position in the root's body before which it is installed.
    pub installed_before: usize,
    /// The block to run after the start is signalled.
    pub body: Block,
}

/// The kind of calls that a handler handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandlerKind {
    /// External events.
    Event,
    /// Updates, except [those to refuse](Program::refused_update).
    Update,
}

/// The reaction to a cancel request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cancellation {
    /// The engine ends the execution.
    LeftToEngine,
    /// The root drops its body, cleans up and fails.
    Watched(Block),
    /// A handler runs, and the root continues.
    Handled(Block),
}

/// The end of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With a result.
    Complete,
    /// With an error.
    Fail,
    /// With a result or an error, depending on everything seen.
    Depends,
    /// By continuing as new; with a result once the rounds are used up.
    ContinueAsNew,
}

/// The input of the orchestration that runs programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramInput {
    /// The program.
    pub program: Program,
    /// The digest of its predecessors or its parent.
    pub accumulator: Accumulator,
    /// The remaining number of continue-as-new.
    pub rounds_left: u8,
}

impl From<Program> for ProgramInput {
    fn from(program: Program) -> ProgramInput {
        let rounds_left = program.rounds;
        ProgramInput { program, accumulator: Accumulator::default(), rounds_left }
    }
}

impl ProgramInput {
    /// The input as a payload.
    pub fn payload(&self) -> Payload {
        Payload::encode(self).expect("a program encodes")
    }
}

impl Program {
    /// The names that the program has handlers of a kind for. A program may wait for their signals without an
    /// open operation, so the driver raises them when nothing else is open.
    pub fn handled(&self, kind: HandlerKind) -> impl Iterator<Item = &str> {
        self.handlers.iter().filter(move |handler| handler.kind == kind).map(|handler| handler.name.as_str())
    }

    /// The names of the events that the program may wait for or take, without those of its children.
    pub fn awaited_events(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.walk(&mut |node| {
            if let Node::Awaitable(Awaitable::Event { name })
            | Node::Statement(Statement::TryReceive { name } | Statement::Stream { name, .. }) = node
            {
                names.insert(name.as_str());
            }
        });
        names
    }

    /// A payload that every update handler refuses.
    pub fn refused_update() -> Payload {
        Payload::from("refuse this")
    }

    /// Visits every statement and awaitable, parents first. Programs that this one starts are not visited.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(Node<'a>)) {
        let cleanup = match &self.cancellation {
            Cancellation::LeftToEngine => None,
            Cancellation::Watched(block) | Cancellation::Handled(block) => Some(block),
        };
        let handled = self.handlers.iter().map(|handler| &handler.body);
        for block in std::iter::once(&self.body).chain(handled).chain(cleanup) {
            block.walk(visit);
        }
    }
}

/// A part of a program, for visitors.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// A statement.
    Statement(&'a Statement),
    /// An operation that takes time.
    Awaitable(&'a Awaitable),
}

impl Block {
    fn walk<'a>(&'a self, visit: &mut impl FnMut(Node<'a>)) {
        for statement in &self.0 {
            visit(Node::Statement(statement));
            match statement {
                Statement::Await(what) => what.walk(visit),
                Statement::Hold { what, meanwhile, .. } => {
                    what.walk(visit);
                    meanwhile.walk(visit);
                }
                Statement::If { then, otherwise } => {
                    then.walk(visit);
                    otherwise.walk(visit);
                }
                Statement::Repeat { body, .. } | Statement::Patched { body, .. } => body.walk(visit),
                _ => {}
            }
        }
    }
}

impl Awaitable {
    fn walk<'a>(&'a self, visit: &mut impl FnMut(Node<'a>)) {
        visit(Node::Awaitable(self));
        match self {
            Awaitable::Sequence(block)
            | Awaitable::Spawned(block)
            | Awaitable::Shielded(block)
            | Awaitable::Uncancellable(block) => {
                block.walk(visit);
            }
            Awaitable::Parallel(blocks) => blocks.iter().for_each(|block| block.walk(visit)),
            Awaitable::Joined(parts)
            | Awaitable::TryJoined(parts)
            | Awaitable::Raced { operands: parts, .. } => parts.iter().for_each(|part| part.walk(visit)),
            Awaitable::Limited { what, .. } | Awaitable::Stopped { what, .. } => what.walk(visit),
            Awaitable::Activity { .. }
            | Awaitable::Timer { .. }
            | Awaitable::Event { .. }
            | Awaitable::Child { .. }
            | Awaitable::Attempted { .. }
            | Awaitable::Signals { .. }
            | Awaitable::HandlersIdle => {}
        }
    }
}

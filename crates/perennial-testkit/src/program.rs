//! Programs: orchestrations as data.
//!
//! A program is a small tree that [`ProgramHandler`](crate::ProgramHandler) runs as an orchestration. It travels in
//! the input, so that any node can run it, and it is plain data, so that a failing one can be printed and kept.

use std::collections::BTreeSet;

use perennial_core::{OnTakenId, Payload};
use serde::{Deserialize, Serialize};

use crate::Accumulator;

/// The registered name of the orchestration that runs programs.
pub const PROGRAM: &str = "program";
/// The version that programs are registered under.
pub const PROGRAM_VERSION: &str = "1.0.0";
/// Ids that programs choose for others now and then, so that some are taken.
pub const SHARED_IDS: [&str; 3] = ["shared-0", "shared-1", "shared-2"];
/// The tag of some activities.
pub const TAG: &str = "tuned";
/// The query that every program answers, with what its units and handlers share.
pub const STATE_QUERY: &str = "state";

/// An orchestration as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// What the root does, one after the other.
    pub body: Block,
    /// What is done about events and updates, beside the root.
    pub handlers: Vec<Handler>,
    /// Who answers a cancel request.
    pub cancellation: Cancellation,
    /// How the root ends.
    pub end: End,
    /// How many times it may continue as new.
    pub rounds: u8,
}

/// Statements that are run one after the other, in one unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Block(pub Vec<Statement>);

/// One thing that a unit does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Statement {
    /// Begins something and waits for it.
    Await(Awaitable),
    /// Begins something, perhaps polls it once, does something else meanwhile, and only then turns to it.
    Hold {
        /// What is begun.
        what: Awaitable,
        /// Whether it is polled right away, which makes this unit the one that its result goes to.
        polled: bool,
        /// What is done before anyone turns to it.
        meanwhile: Block,
        /// What becomes of it.
        fate: Fate,
    },
    /// Goes one way or the other, depending on everything seen so far.
    If {
        /// One way.
        then: Block,
        /// The other.
        otherwise: Block,
    },
    /// Repeats until the accumulator happens to be a multiple of four, or often enough.
    Repeat {
        /// How often at most.
        at_most: u8,
        /// What is repeated.
        body: Block,
    },
    /// Runs the body if a patch applies.
    Patched {
        /// The patch.
        id: String,
        /// What it adds.
        body: Block,
    },
    /// Takes a value from outside, recorded.
    SideEffect {
        /// The name it is recorded under.
        name: String,
    },
    /// Takes the recorded time.
    UtcNow,
    /// Takes a recorded UUID.
    NewGuid,
    /// Draws a number and a UUID from the unit's stream.
    Random,
    /// Looks at the time, at the instance itself and at whether it is being cancelled.
    Look,
    /// Reads back what the program has published and its attributes.
    ReadOneself,
    /// Takes an event if one is there.
    TryReceive {
        /// The event.
        name: String,
    },
    /// Takes the next events of a name from a stream, which a timer may interrupt.
    Stream {
        /// The event.
        name: String,
        /// How many events at most.
        at_most: u8,
        /// How long it waits for each.
        limit_ms: u64,
    },
    /// Reads what handlers and units share.
    ReadState,
    /// Changes what handlers and units share.
    ChangeState,
    /// Publishes the accumulator as status.
    SetStatus,
    /// Sets an attribute to the accumulator, or removes it.
    UpsertAttribute {
        /// The attribute.
        name: String,
        /// Whether it is removed.
        remove: bool,
    },
    /// Starts a program that is nobody's child.
    Start {
        /// The program.
        program: Box<Program>,
        /// Whether it is started at its exact version.
        versioned: bool,
        /// Whether this one waits to hear what became of it.
        heard: bool,
    },
    /// Raises an event at an instance.
    Raise {
        /// The event.
        event: String,
        /// The instance.
        to: Recipient,
    },
    /// Raises an event at an instance once, and waits to hear what became of it.
    RaiseHeard {
        /// The event.
        event: String,
        /// The instance.
        to: Recipient,
    },
    /// Asks an instance to cancel, and waits to hear what became of that.
    CancelOther {
        /// The instance.
        to: Recipient,
    },
    /// Ends the execution and goes on in the next one, unless the rounds are used up.
    ContinueAsNew,
}

/// Something that takes time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Awaitable {
    /// An activity.
    Activity {
        /// Its name.
        name: String,
        /// What it is given.
        input: ActivityInput,
        /// Whether it is scheduled with retries, timeouts or a tag, by what was seen.
        tuned: bool,
    },
    /// A timer.
    Timer {
        /// How long it takes.
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
        /// Whether it gets an id of the program's choice.
        named: bool,
        /// Whether it is started at its exact version.
        versioned: bool,
        /// Whether it may outlive this instance.
        abandoned: bool,
        /// What happens if its id is another's.
        on_existing: OnTakenId,
    },
    /// A handler has begun this many times.
    Signals {
        /// The handler's event or update.
        name: String,
        /// How many times.
        at_least: u64,
    },
    /// No handler is at work.
    HandlersIdle,
    /// A block, in the unit that waits for it, from its first poll on.
    Sequence(Block),
    /// Blocks side by side, each in a unit of its own.
    Parallel(Vec<Block>),
    /// A block in a unit of its own.
    Spawned(Block),
    /// A block in a unit of its own that nothing cancels.
    Shielded(Block),
    /// A block in a unit of its own that a cancel request does not end.
    Uncancellable(Block),
    /// An activity or a child that is asked to stop after a while, and is waited for.
    Stopped {
        /// What is stopped.
        what: Box<Awaitable>,
        /// After which time.
        after_ms: u64,
    },
    /// A program as a sub-orchestration with retries and a timeout, whose start is waited for.
    Attempted {
        /// The program.
        program: Box<Program>,
    },
    /// All of these, in one unit.
    Joined(Vec<Awaitable>),
    /// All of these, or the first failure.
    TryJoined(Vec<Awaitable>),
    /// The first of these.
    Raced {
        /// The operands, at least one.
        operands: Vec<Awaitable>,
        /// Whether the program gets to know which one won.
        named: bool,
    },
    /// Something with a time limit.
    Limited {
        /// The limit.
        limit_ms: u64,
        /// What is limited.
        what: Box<Awaitable>,
    },
}

/// What an activity is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActivityInput {
    /// The accumulator.
    Accumulator,
    /// The same at every call, so that a history holds schedules that look alike.
    Fixed,
}

/// What becomes of something that was begun and held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It is waited for.
    Awaited,
    /// It is handed to a new unit, which waits for it.
    HandedOver,
    /// It is dropped, hence cancelled if it is still open.
    Dropped,
    /// A spawned unit is let go; anything else is dropped.
    Detached,
}

/// Who gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recipient {
    /// The parent, or nobody if there is none.
    Parent,
    /// This very instance.
    Itself,
    /// An instance that does not exist.
    Nobody,
    /// Whichever instance has one of the [ids that programs share](SHARED_IDS).
    Shared,
}

/// What is done about an event or update, each time in a unit of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// The event or update. No wait has the same name.
    pub name: String,
    /// Which of the two.
    pub kind: HandlerKind,
    /// The position in the root's body before which it is installed.
    pub installed_before: usize,
    /// What it does, after it has signalled that it began.
    pub body: Block,
}

/// What a handler handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandlerKind {
    /// External events.
    Event,
    /// Updates, except [those that say so](Program::refused_update).
    Update,
}

/// Who answers a cancel request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cancellation {
    /// The engine: the execution ends.
    LeftToEngine,
    /// The root: it drops its body, cleans up and fails.
    Watched(Block),
    /// A handler, beside the root, which goes on.
    Handled(Block),
}

/// How a root ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With a result.
    Complete,
    /// With an error.
    Fail,
    /// With a result or an error, depending on everything seen.
    Depends,
    /// In the next execution; with a result once the rounds are used up.
    ContinueAsNew,
}

/// What the orchestration that runs programs is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramInput {
    /// The program.
    pub program: Program,
    /// What its predecessors or its parent have seen.
    pub accumulator: Accumulator,
    /// How many times it may still continue as new.
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
    /// The names that the program has handlers of a kind for. Their signals are all it may wait for without an open
    /// operation to show it, so whoever drives it raises them when nothing else is open.
    pub fn handled(&self, kind: HandlerKind) -> impl Iterator<Item = &str> {
        self.handlers.iter().filter(move |handler| handler.kind == kind).map(|handler| handler.name.as_str())
    }

    /// The names of the events that the program may wait for or take, those of its children not included.
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

    /// Visits every statement and awaitable, parents first. Programs that this one starts are not entered.
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

/// A part of a program, for those who walk through it.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// A statement.
    Statement(&'a Statement),
    /// Something that takes time.
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

//! Generates programs from a seed.
//!
//! Every generated program can finish: its root ends if its activities, timers and children complete, the
//! events it waits for are raised, and the events and updates it has handlers for arrive now and then (not so
//! often that handlers are never idle). Constructs that would prevent this are not generated: handlers that
//! wait for each other to be idle, or for signals of a handler that the root may never install.

use crate::program::{
    ActivityInput, Awaitable, Block, Cancellation, End, Fate, Handler, HandlerKind, Program, Recipient,
    Statement,
};
use crate::{Features, Rng};
use perennial_core::OnTakenId;

/// The maximum nesting of blocks.
const DEPTH: usize = 4;
/// The maximum nesting of programs.
const GENERATIONS: usize = 2;

/// Generates the program of a seed, with about `size` statements, without features that `features` disable.
pub fn generate(seed: u64, features: &Features, size: usize) -> Program {
    program(Rng::new(seed), features, size, GENERATIONS)
}

fn program(rng: Rng, features: &Features, size: usize, generations: usize) -> Program {
    let mut generator = Generator {
        rng,
        features: features.clone(),
        left: size,
        generations,
        handlers: Vec::new(),
        patches: 0,
    };
    generator.program()
}

struct Generator {
    rng: Rng,
    features: Features,
    /// The number of statements still to generate. At 0, open blocks end.
    left: usize,
    generations: usize,
    /// Without their bodies until these are generated.
    handlers: Vec<Handler>,
    patches: usize,
}

/// A position in a program, as far as it restricts what can be generated there.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    in_handler: bool,
    in_loop: bool,
    /// Handlers that are installed before a later position than this may never be.
    position: usize,
}

impl Place {
    fn deeper(self) -> Place {
        Place { depth: self.depth + 1, ..self }
    }
}

type Make<T> = fn(&mut Generator, Place) -> T;

fn weight(on: bool, weight: u64) -> u64 {
    if on { weight } else { 0 }
}

impl Generator {
    fn program(&mut self) -> Program {
        let features = self.features.clone();
        self.choose_handlers();
        let body = self.body();
        for handler in &mut self.handlers {
            handler.installed_before = handler.installed_before.min(body.0.len() - 1);
        }
        for index in 0..self.handlers.len() {
            self.left = self.left.max(2);
            let position = self.handlers[index].installed_before;
            self.handlers[index].body =
                self.block(Place { depth: 1, in_handler: true, in_loop: false, position });
        }
        let cancellation = match self.rng.below(3) {
            0 if features.cancellation => Cancellation::Watched(self.cleanup(false)),
            1 if features.cancellation => Cancellation::Handled(self.cleanup(true)),
            _ => Cancellation::LeftToEngine,
        };
        let end = self.rng.weighted(&[
            (6, End::Complete),
            (weight(features.failures, 2), End::Fail),
            (weight(features.failures, 2), End::Depends),
            (weight(features.continue_as_new, 2), End::ContinueAsNew),
        ]);
        let rounds = match features.continue_as_new {
            true => u8::try_from(self.rng.below(4)).expect("it is small"),
            false => 0,
        };
        Program { body, handlers: std::mem::take(&mut self.handlers), cancellation, end, rounds }
    }

    /// At least one statement, and all that are left.
    fn body(&mut self) -> Block {
        let mut body = Block::default();
        while body.0.is_empty() || self.left > 0 {
            let place = Place { depth: 0, in_handler: false, in_loop: false, position: body.0.len() };
            body.0.push(self.statement(place));
        }
        body
    }

    fn choose_handlers(&mut self) {
        let families = [
            (self.features.handlers, HandlerKind::Event, "handled"),
            (self.features.updates, HandlerKind::Update, "update"),
        ];
        for (on, kind, name) in families {
            let count = if on { self.rng.weighted(&[(4, 0), (3, 1), (1, 2)]) } else { 0 };
            for number in 0..count {
                self.handlers.push(Handler {
                    name: format!("{name}-{number}"),
                    kind,
                    installed_before: self.rng.weighted(&[(3, 0), (1, 1), (1, 2)]),
                    body: Block::default(),
                });
            }
        }
    }

    /// Runs even if the root has reached only its first statement.
    fn cleanup(&mut self, in_handler: bool) -> Block {
        self.left = self.left.max(1);
        self.block(Place { depth: 2, in_handler, in_loop: false, position: 0 })
    }

    fn block(&mut self, place: Place) -> Block {
        let mut block = Block::default();
        let length = self.rng.weighted(&[(1, 0), (6, 1), (4, 2), (2, 3)]);
        while block.0.len() < length && self.left > 0 {
            block.0.push(self.statement(place));
        }
        block
    }

    fn statement(&mut self, place: Place) -> Statement {
        self.left = self.left.saturating_sub(1);
        let on = &self.features;
        let nests = place.depth < DEPTH;
        let choices: [(u64, Make<Statement>); 21] = [
            (12, |this, place| Statement::Await(this.awaitable(place))),
            (weight(on.holds && nests, 5), Generator::hold),
            (weight(on.holds && on.events && on.units && nests, 1), Generator::rivals),
            (weight(on.branching && nests, 2), Generator::branch),
            (weight(on.branching && nests && !place.in_loop, 2), Generator::repeat),
            (weight(on.patches && nests, 2), Generator::patched),
            (weight(on.system_calls, 3), Generator::system_call),
            (weight(on.random, 1), |_, _| Statement::Random),
            (weight(on.looks, 1), |_, _| Statement::Look),
            (weight(on.handlers || on.updates, 1), |_, _| Statement::ReadState),
            (weight(on.handlers || on.updates, 1), |_, _| Statement::ChangeState),
            (weight(on.status, 1), |_, _| Statement::SetStatus),
            (weight(on.status, 1), Generator::upsert),
            (weight(on.starts && self.generations > 0, 1), Generator::start),
            (weight(on.sent_events, 1), Generator::raise),
            (weight(on.events, 2), |this, _| Statement::TryReceive { name: event_name(&mut this.rng) }),
            (weight(on.events && on.timers && on.races, 1), Generator::stream),
            (weight(on.status && on.looks, 1), |_, _| Statement::ReadOneself),
            (weight(on.sent_events, 1), Generator::raise_heard),
            (weight(on.sent_events, 1), Generator::cancel_other),
            (weight(on.continue_as_new && place.depth > 0, 1), |_, _| Statement::ContinueAsNew),
        ];
        self.rng.weighted(&choices)(self, place)
    }

    fn hold(&mut self, place: Place) -> Statement {
        let units = self.features.units;
        Statement::Hold {
            what: self.awaitable(place.deeper()),
            polled: self.rng.percent(50),
            meanwhile: self.block(place.deeper()),
            fate: self.rng.weighted(&[
                (2, Fate::Awaited),
                (3, Fate::Dropped),
                (weight(units, 1), Fate::HandedOver),
                (weight(units, 1), Fate::Detached),
            ]),
        }
    }

    /// Two branches that wait for the same event. The first gives up, and its event passes to the second.
    fn rivals(&mut self, place: Place) -> Statement {
        let wait = self.event(place);
        let given_up = Statement::Hold {
            what: wait.clone(),
            polled: self.rng.percent(50),
            meanwhile: Block(vec![Statement::Await(self.activity(place))]),
            fate: Fate::Dropped,
        };
        let branches = vec![Block(vec![given_up]), Block(vec![Statement::Await(wait)])];
        Statement::Await(Awaitable::Parallel(branches))
    }

    fn branch(&mut self, place: Place) -> Statement {
        Statement::If { then: self.block(place.deeper()), otherwise: self.block(place.deeper()) }
    }

    fn repeat(&mut self, place: Place) -> Statement {
        let inside = Place { in_loop: true, ..place.deeper() };
        Statement::Repeat { at_most: self.rng.weighted(&[(1, 2), (1, 3)]), body: self.block(inside) }
    }

    /// A new patch gate, or one that was used before.
    fn patched(&mut self, place: Place) -> Statement {
        if self.patches == 0 || self.rng.percent(70) {
            self.patches += 1;
        }
        let number = self.rng.below(self.patches);
        Statement::Patched { id: format!("patch-{number}"), body: self.block(place.deeper()) }
    }

    fn system_call(&mut self, _: Place) -> Statement {
        match self.rng.below(4) {
            0 => Statement::UtcNow,
            1 => Statement::NewGuid,
            number => Statement::SideEffect { name: format!("effect-{}", number % 2) },
        }
    }

    fn upsert(&mut self, _: Place) -> Statement {
        Statement::UpsertAttribute {
            name: format!("attribute-{}", self.rng.below(2)),
            remove: self.rng.percent(25),
        }
    }

    fn start(&mut self, _: Place) -> Statement {
        Statement::Start {
            program: self.smaller_program(),
            versioned: self.rng.percent(30),
            heard: self.rng.percent(40) && self.features.sent_events,
        }
    }

    fn raise(&mut self, _: Place) -> Statement {
        Statement::Raise {
            event: event_name(&mut self.rng),
            to: *self.rng.pick(&[Recipient::Parent, Recipient::Itself, Recipient::Nobody, Recipient::Shared]),
        }
    }

    fn stream(&mut self, _: Place) -> Statement {
        Statement::Stream {
            name: event_name(&mut self.rng),
            at_most: self.rng.weighted(&[(1, 1), (2, 2), (1, 3)]),
            limit_ms: delay_ms(&mut self.rng),
        }
    }

    fn raise_heard(&mut self, place: Place) -> Statement {
        match self.raise(place) {
            Statement::Raise { event, to } => Statement::RaiseHeard { event, to },
            other => other,
        }
    }

    fn cancel_other(&mut self, _: Place) -> Statement {
        Statement::CancelOther { to: *self.rng.pick(&[Recipient::Nobody, Recipient::Shared]) }
    }

    fn stopped_activity(&mut self, place: Place) -> Awaitable {
        let (what, after_ms) = (Box::new(self.activity(place)), delay_ms(&mut self.rng));
        Awaitable::Stopped { what, after_ms }
    }

    fn stopped_child(&mut self, place: Place) -> Awaitable {
        let (what, after_ms) = (Box::new(self.child(place)), delay_ms(&mut self.rng));
        Awaitable::Stopped { what, after_ms }
    }

    fn attempted(&mut self, _: Place) -> Awaitable {
        Awaitable::Attempted { program: self.smaller_program() }
    }

    fn smaller_program(&mut self) -> Box<Program> {
        let size = 1 + self.rng.below(1 + self.left.min(4));
        let rng = self.rng.fork();
        Box::new(program(rng, &self.features, size, self.generations - 1))
    }

    fn awaitable(&mut self, place: Place) -> Awaitable {
        let on = &self.features;
        let nests = place.depth < DEPTH && self.left > 0;
        let idle = (on.handlers || on.updates) && !place.in_handler;
        let choices: [(u64, Make<Awaitable>); 18] = [
            (10, Generator::activity),
            (weight(on.timers, 4), Generator::timer),
            (weight(on.events, 5), Generator::event),
            (weight(on.children && self.generations > 0, 2), Generator::child),
            (weight(self.signals(place).next().is_some(), 3), Generator::signal),
            (weight(idle, 1), |_, _| Awaitable::HandlersIdle),
            (weight(nests, 1), |this, place| Awaitable::Sequence(this.block(place.deeper()))),
            (weight(on.units && nests, 5), Generator::parallel),
            (weight(on.units && nests, 3), |this, place| Awaitable::Spawned(this.block(place.deeper()))),
            (weight(on.units && nests, 2), |this, place| Awaitable::Shielded(this.block(place.deeper()))),
            (weight(on.units && nests, 2), |this, place| {
                Awaitable::Uncancellable(this.block(place.deeper()))
            }),
            (weight(on.timers && on.races && nests, 2), Generator::stopped_activity),
            (
                weight(on.timers && on.races && on.children && self.generations > 0, 1),
                Generator::stopped_child,
            ),
            (weight(on.timers && on.children && on.random && self.generations > 0, 2), Generator::attempted),
            (weight(on.joins && nests, 3), |this, place| Awaitable::Joined(this.parts(place))),
            (weight(on.joins && nests, 1), |this, place| Awaitable::TryJoined(this.parts(place))),
            (weight(on.races && nests, 4), Generator::race),
            (weight(on.timeouts && nests, 2), Generator::limited),
        ];
        self.rng.weighted(&choices)(self, place)
    }

    fn activity(&mut self, _: Place) -> Awaitable {
        let inputs = [(4, ActivityInput::Accumulator), (1, ActivityInput::Fixed)];
        Awaitable::Activity {
            name: format!("activity-{}", self.rng.below(4)),
            input: self.rng.weighted(&inputs),
            tuned: self.rng.percent(20),
        }
    }

    fn timer(&mut self, _: Place) -> Awaitable {
        Awaitable::Timer { delay_ms: delay_ms(&mut self.rng) }
    }

    fn event(&mut self, _: Place) -> Awaitable {
        Awaitable::Event { name: event_name(&mut self.rng) }
    }

    fn child(&mut self, _: Place) -> Awaitable {
        Awaitable::Child {
            program: self.smaller_program(),
            named: self.rng.percent(30),
            versioned: self.rng.percent(30),
            abandoned: self.rng.percent(30),
            on_existing: self.rng.weighted(&[
                (3, OnTakenId::Reject),
                (2, OnTakenId::ReplaceEnded),
                // The child waits before it retries.
                (weight(self.features.timers, 1), OnTakenId::TerminateAndReplace),
            ]),
        }
    }

    /// The handlers that are installed whenever this position is reached.
    fn signals(&self, place: Place) -> impl Iterator<Item = &str> {
        self.handlers
            .iter()
            .filter(move |handler| handler.installed_before <= place.position)
            .map(|handler| handler.name.as_str())
    }

    fn signal(&mut self, place: Place) -> Awaitable {
        let names: Vec<String> = self.signals(place).map(str::to_owned).collect();
        Awaitable::Signals { name: self.rng.pick(&names).clone(), at_least: self.rng.between(1, 3) }
    }

    fn parallel(&mut self, place: Place) -> Awaitable {
        let width = 2 + self.rng.below(3);
        Awaitable::Parallel((0..width).map(|_| self.block(place.deeper())).collect())
    }

    fn parts(&mut self, place: Place) -> Vec<Awaitable> {
        let width = 2 + self.rng.below(3);
        self.left = self.left.saturating_sub(width - 1);
        (0..width).map(|_| self.awaitable(place.deeper())).collect()
    }

    fn race(&mut self, place: Place) -> Awaitable {
        Awaitable::Raced { operands: self.parts(place), named: self.rng.percent(70) }
    }

    fn limited(&mut self, place: Place) -> Awaitable {
        Awaitable::Limited {
            limit_ms: delay_ms(&mut self.rng),
            what: Box::new(self.awaitable(place.deeper())),
        }
    }
}

fn event_name(rng: &mut Rng) -> String {
    format!("event-{}", rng.below(2))
}

fn delay_ms(rng: &mut Rng) -> u64 {
    *rng.pick(&[0, 1, 50, 1_000, 20_000])
}

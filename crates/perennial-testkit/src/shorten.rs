//! Programs with a statement left out: smaller ones that may fail in the same way.

use crate::Program;
use crate::program::{Awaitable, Block, Cancellation, Statement};

impl Program {
    /// The number of statements, with those of programs that it starts.
    pub fn statements(&self) -> usize {
        let mut left = usize::MAX;
        self.clone().strike(&mut left);
        usize::MAX - left
    }

    /// Removes the statement with this number, with everything in it.
    pub(crate) fn leave_out_statement(&mut self, number: usize) {
        self.strike(&mut { number });
    }

    /// Removes a statement after `left` others. Returns whether it did.
    fn strike(&mut self, left: &mut usize) -> bool {
        let before = self.body.0.len();
        let top = *left;
        if self.body.strike(left) {
            // A handler is installed before the same statement as before.
            if self.body.0.len() < before {
                let position = self.body.position_of(top);
                let later = self.handlers.iter_mut().filter(|handler| handler.installed_before > position);
                later.for_each(|handler| handler.installed_before -= 1);
            }
            return true;
        }
        if self.handlers.iter_mut().any(|handler| handler.body.strike(left)) {
            return true;
        }
        match &mut self.cancellation {
            Cancellation::LeftToEngine => false,
            Cancellation::Watched(block) | Cancellation::Handled(block) => block.strike(left),
        }
    }
}

impl Block {
    fn strike(&mut self, left: &mut usize) -> bool {
        for position in 0..self.0.len() {
            if *left == 0 {
                self.0.remove(position);
                return true;
            }
            *left -= 1;
            let is_done = match &mut self.0[position] {
                Statement::Await(what) => what.strike(left),
                Statement::Hold { what, meanwhile, .. } => what.strike(left) || meanwhile.strike(left),
                Statement::If { then, otherwise } => then.strike(left) || otherwise.strike(left),
                Statement::Repeat { body, .. } | Statement::Patched { body, .. } => body.strike(left),
                Statement::Start { program, .. } => program.strike(left),
                _ => false,
            };
            if is_done {
                return true;
            }
        }
        false
    }

    /// The position of the statement of this block that has this number or contains it.
    fn position_of(&self, number: usize) -> usize {
        let mut before = 0;
        for (position, statement) in self.0.iter().enumerate() {
            let mut left = usize::MAX;
            Block(vec![statement.clone()]).strike(&mut left);
            before += usize::MAX - left;
            if number < before {
                return position;
            }
        }
        self.0.len()
    }
}

impl Awaitable {
    fn strike(&mut self, left: &mut usize) -> bool {
        match self {
            Awaitable::Sequence(block)
            | Awaitable::Spawned(block)
            | Awaitable::Shielded(block)
            | Awaitable::Uncancellable(block) => block.strike(left),
            Awaitable::Parallel(blocks) => blocks.iter_mut().any(|block| block.strike(left)),
            Awaitable::Joined(parts)
            | Awaitable::TryJoined(parts)
            | Awaitable::Raced { operands: parts, .. } => parts.iter_mut().any(|part| part.strike(left)),
            Awaitable::Limited { what, .. } | Awaitable::Stopped { what, .. } => what.strike(left),
            Awaitable::Child { program, .. } | Awaitable::Attempted { program } => program.strike(left),
            Awaitable::Activity { .. }
            | Awaitable::Timer { .. }
            | Awaitable::Event { .. }
            | Awaitable::Signals { .. }
            | Awaitable::HandlersIdle => false,
        }
    }
}

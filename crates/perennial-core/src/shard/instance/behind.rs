//! Requests and calls that take effect after a message that was acknowledged to their sender: they wait until that
//! message has been read from the inbox (N16).

use crate::store::{InboxNumber, RequestNumber};

use super::super::request::{InstanceCall, ReplyTo, Request, RequestId};

/// A request of a caller or a call of another process.
pub(super) enum Late {
    Request(RequestId, Request),
    Call(ReplyTo, InstanceCall),
}

impl Late {
    /// The caller of this process that waits for the reply.
    pub(super) fn caller(&self) -> Option<RequestId> {
        match self {
            Late::Request(request, _) => Some(*request),
            Late::Call(reply_to, _) => reply_to.caller(),
        }
    }
}

/// A waiting request or call.
pub(super) struct Waiting {
    pub(super) after: InboxNumber,
    pub(super) what: Late,
    /// Whether a read of the messages was started after it arrived. Once that read has passed its message's number, the
    /// message is either in memory or consumed.
    pub(super) is_read_for: bool,
}

/// How long a request has to wait for its message after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The read was started before it arrived.
    ForAnotherRead,
    /// The read ended before the number of its message: messages have to be consumed before the next read can return
    /// more.
    ForTheRest,
}

impl Waiting {
    /// Whether it still has to wait for a message that is not in memory, after a read that was cut off before this
    /// number.
    pub(super) fn wait_after_read(&self, cut: Option<InboxNumber>) -> Option<Wait> {
        if cut.is_some_and(|next| self.after >= next) {
            return Some(Wait::ForTheRest);
        }
        (!self.is_read_for).then_some(Wait::ForAnotherRead)
    }
}

#[derive(Default)]
pub(super) struct Behind {
    waiting: Vec<Waiting>,
}

impl Behind {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Puts back those that have to wait longer, before those that arrived meanwhile.
    pub(super) fn put_back(&mut self, waiting: Vec<Waiting>) {
        self.waiting.splice(0..0, waiting);
    }

    /// Notes that a read of the messages starts now.
    pub(super) fn handle_read_begun(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.is_read_for = true);
    }

    pub(super) fn knows_row(&self, number: RequestNumber) -> bool {
        let is_it =
            |waiting: &Waiting| matches!(waiting.what, Late::Call(ReplyTo::Row(row), _) if row == number);
        self.waiting.iter().any(is_it)
    }

    /// Removes all, and returns the callers of this process among them.
    pub(super) fn take_callers(&mut self) -> Vec<RequestId> {
        self.take_all().iter().filter_map(|waiting| waiting.what.caller()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Payload;

    fn call(number: RequestNumber) -> Waiting {
        let call = InstanceCall::Query { name: "q".to_owned(), payload: Payload::null() };
        Waiting { after: 1, what: Late::Call(ReplyTo::Row(number), call), is_read_for: false }
    }

    #[test]
    fn n16_a_read_that_was_cut_says_nothing_about_the_messages_after_the_cut() {
        let waiting = |after, is_read_for| Waiting { after, is_read_for, ..call(1) };
        assert_eq!(waiting(7, true).wait_after_read(None), None);
        assert_eq!(waiting(7, false).wait_after_read(None), Some(Wait::ForAnotherRead));
        assert_eq!(waiting(7, true).wait_after_read(Some(8)), None, "it is gone");
        assert_eq!(waiting(7, true).wait_after_read(Some(7)), Some(Wait::ForTheRest));
        assert_eq!(waiting(7, false).wait_after_read(Some(7)), Some(Wait::ForTheRest));
    }

    #[test]
    fn n16_a_request_row_that_waits_for_a_message_is_known() {
        let mut behind = Behind::default();
        behind.push(call(5));
        assert!(behind.knows_row(5) && !behind.knows_row(6));
        let early = behind.take_all();
        behind.push(call(6));
        behind.put_back(early);
        behind.handle_read_begun();
        let rows: Vec<_> = behind
            .take_all()
            .into_iter()
            .map(|waiting| match waiting.what {
                Late::Call(reply_to, _) => (reply_to.row(), waiting.is_read_for),
                Late::Request(..) => (None, false),
            })
            .collect();
        assert_eq!(rows, [(Some(5), true), (Some(6), true)]);
        behind.push(Waiting { what: Late::Request(RequestId(3), Request::Retry), ..call(1) });
        behind.push(call(9));
        assert_eq!(behind.take_callers(), [RequestId(3)]);
        assert!(behind.is_empty());
    }
}

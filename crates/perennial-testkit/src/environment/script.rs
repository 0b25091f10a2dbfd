//! What happens to instances from outside, as a test has written it down beforehand.

use perennial_core::Payload;
use perennial_core::shard::{InstanceCall, Request, RequestId, Said};

/// One thing that is to happen.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    pub(super) when: When,
    /// The instance; the one that was started last if not given.
    pub(super) instance: Option<String>,
    pub(super) action: Action,
    pub(super) is_done: bool,
    /// Where it was asked, if it has an outcome to wait for.
    pub(super) sent: Option<SentRequest>,
}

/// Something that was asked of an instance.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub(super) id: String,
    pub(super) request: RequestId,
    /// How often the process had died by then; after another time it is asked again.
    pub(super) crashes: u64,
}

/// When it is to happen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum When {
    /// This long after the environment began.
    AfterMs(u64),
    /// As soon as the instance waits for the event.
    Waiting,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    Raise {
        event: String,
        payload: Payload,
    },
    Update {
        name: String,
        payload: Payload,
    },
    Cancel {
        reason: String,
    },
    /// Say something about an attempt that waits for its token.
    Say {
        activity: String,
        said: Said,
    },
}

impl Scripted {
    /// What is asked of the instance. The number tells this action from others when it has to be asked again. What is said
    /// about an attempt depends on the attempt.
    pub(super) fn request(&self, number: usize) -> Option<Request> {
        Some(match &self.action {
            Action::Say { .. } => return None,
            Action::Raise { event, payload } => Request::Raise {
                name: event.clone(),
                payload: payload.clone(),
                key: Some(Scripted::key(number)),
                trace: None,
            },
            Action::Update { name, payload } => Request::Call(InstanceCall::Update {
                name: name.clone(),
                payload: payload.clone(),
                key: Some(Scripted::key(number)),
                trace: None,
            }),
            Action::Cancel { reason } => Request::Cancel { reason: reason.clone(), grace_ms: None },
        })
    }

    /// What tells the action of a number from others.
    pub(super) fn key(number: usize) -> String {
        format!("script-{number}")
    }

    /// The event that has to be waited for.
    pub(super) fn awaited(&self) -> Option<&str> {
        match (&self.when, &self.action) {
            (When::Waiting, Action::Raise { event, .. }) => Some(event),
            _ => None,
        }
    }
}

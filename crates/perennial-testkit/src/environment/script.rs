//! Actions on instances that a test plans in advance.

use perennial_core::Payload;
use perennial_core::shard::{InstanceCall, Request, RequestId, Said};

/// A planned action.
#[derive(Clone, Debug)]
pub(super) struct Scripted {
    pub(super) when: When,
    /// The target; `None` for the most recently started instance.
    pub(super) instance: Option<String>,
    pub(super) action: Action,
    pub(super) is_done: bool,
    /// The request that was sent, if the action has an outcome to wait for.
    pub(super) sent: Option<SentRequest>,
}

#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    pub(super) id: String,
    pub(super) request: RequestId,
    /// The number of crashes at that time. After another crash the request is sent again.
    pub(super) crashes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum When {
    /// This long after the start of the environment.
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
    /// Reports an outcome for an attempt that waits for its token.
    TokenCall {
        activity: String,
        said: Said,
    },
}

impl Scripted {
    /// The request to send to the instance. The number identifies the action when it is sent again. `None`
    /// for a token call, which depends on the attempt.
    pub(super) fn request(&self, number: usize) -> Option<Request> {
        Some(match &self.action {
            Action::TokenCall { .. } => return None,
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

    /// Identifies the action with this number.
    pub(super) fn key(number: usize) -> String {
        format!("script-{number}")
    }

    /// The event that the instance must be waiting for.
    pub(super) fn awaited(&self) -> Option<&str> {
        match (&self.when, &self.action) {
            (When::Waiting, Action::Raise { event, .. }) => Some(event),
            _ => None,
        }
    }
}

//! What all requests of a router share.

use std::sync::Arc;

use perennial::Client;
use tokio::sync::Semaphore;

use crate::access::{Failures, Sessions};
use crate::histories::{Histories, KEPT_BYTES};
use crate::listed::Outcomes;
use crate::meters::Meters;
use crate::operations::Operations;
use crate::options::{Caller, Options, Role};
use crate::stop::Stop;
use crate::stream::Hub;

/// How many scans and exports run at a time.
const HEAVY_REQUESTS: usize = 8;
/// How many streams are open at a time.
const STREAMS: usize = 256;

pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) sessions: Sessions,
    pub(crate) failures: Failures,
    pub(crate) heavy: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) hub: Hub,
    pub(crate) outcomes: Arc<Outcomes>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) histories: Histories,
}

impl Server {
    pub(crate) fn new(client: Client, options: Options) -> Arc<Server> {
        Arc::new(Server {
            client: client.remembering_histories(KEPT_BYTES),
            options,
            sessions: Sessions::default(),
            failures: Failures::default(),
            heavy: Arc::new(Semaphore::new(HEAVY_REQUESTS)),
            streams: Arc::new(Semaphore::new(STREAMS)),
            operations: Arc::default(),
            hub: Hub::default(),
            outcomes: Arc::default(),
            meters: Arc::new(Meters::new()),
            histories: Histories::default(),
        })
    }

    pub(crate) fn stop(&self) -> &Stop {
        &self.options.stop
    }

    /// Whether the host of requests is checked.
    pub(crate) fn checks_host(&self) -> bool {
        self.options.checks_host.unwrap_or(!self.options.access.is_proven())
    }

    /// Whether payloads are hidden from a caller.
    pub(crate) fn hides_payloads_from(&self, caller: &Caller) -> bool {
        self.options.hide_payloads && caller.role == Role::Reader
    }
}

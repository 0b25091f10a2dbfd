//! The dashboard beside a demo, until it ends.

use std::net::SocketAddr;

use perennial::Client;
use perennial_server::{Access, Options, Role, Stop};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::exit::Failure;
use crate::output::{line, object};

/// A running server.
pub(crate) struct Serving {
    stop: Stop,
    task: JoinHandle<std::io::Result<()>>,
}

impl Serving {
    /// Serves a store that exists, and prints the URL. Everybody who reaches the address is an operator, so it has to be one
    /// of this machine.
    pub(crate) async fn start(store: &str, listen: SocketAddr, as_json: bool) -> Result<Serving, Failure> {
        if !listen.ip().is_loopback() {
            return Err(Failure::usage("the demo serves this machine only; use a loopback address"));
        }
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|error| Failure::failed(format!("cannot listen on {listen}: {error}")))?;
        let url = format!("http://{}/", listener.local_addr()?);
        if as_json {
            object(&json!({"url": url}))?;
        } else {
            line(&url)?;
        }
        let stop = Stop::default();
        let options = Options::default().access(Access::everybody(Role::Operator)).stop(stop.clone());
        let task = tokio::spawn(perennial_server::serve(listener, Client::open(store)?, options, None));
        Ok(Serving { stop, task })
    }

    /// Ends the server, after it has answered what is under way.
    pub(crate) async fn end(self) -> Result<(), Failure> {
        self.stop.stop();
        Ok(self.task.await.map_err(Failure::failed)??)
    }
}

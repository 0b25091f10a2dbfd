//! A store, the runtimes on it, and the server beside them: each can be stopped, killed and started by itself.

use std::net::SocketAddr;

use perennial::{Client, Runtime, RuntimeOptions};
use perennial_server::{Access, NewToken, Options, Role, Stop, TokenFile};
use perennial_testkit::postgres::{ServerOptions, TestServer};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::code::{Code, registrations};
use crate::{Arguments, Failure};

/// Short, so that a killed runtime is missed soon.
const LEASE: std::time::Duration = std::time::Duration::from_secs(2);

/// The URL of a store that ends with its runtime.
const MEMORY: &str = "memory:";

struct Server {
    stop: Stop,
    task: JoinHandle<std::io::Result<()>>,
}

pub(crate) struct Stage {
    arguments: Arguments,
    url: String,
    runtimes: Vec<Runtime>,
    code: Code,
    server: Option<Server>,
    /// Kept, so that a restarted server is found where it was.
    address: Option<SocketAddr>,
    options: Options,
    /// The tokens of a reader and an operator.
    pub(crate) tokens: Option<[String; 2]>,
    _directory: tempfile::TempDir,
    /// The PostgreSQL server that was started for this store.
    _postgres: Option<TestServer>,
}

impl Stage {
    pub(crate) fn new(arguments: Arguments) -> Result<Stage, Failure> {
        let directory = tempfile::tempdir()?;
        let postgres = match arguments.store.as_deref() {
            Some("postgres") => Some(TestServer::try_start(&ServerOptions::default().unsynced())?),
            _ => None,
        };
        let url = match (&postgres, &arguments.store) {
            (Some(server), _) => server.url().to_owned(),
            (None, Some(url)) => url.clone(),
            (None, None) => format!("sqlite:{}", directory.path().join("store.db").display()),
        };
        let (access, tokens) = match arguments.with_tokens {
            false => (Access::everybody(Role::Operator), None),
            true => {
                let file = directory.path().join("tokens");
                let made = [("bob", Role::Reader), ("ada", Role::Operator)].map(|(name, role)| {
                    let token = NewToken::generate(name, role);
                    token.append_to(&file).map(|()| token.token)
                });
                let [reader, operator] = made;
                (Access::tokens(TokenFile::open(&file)?), Some([reader?, operator?]))
            }
        };
        let links = arguments.links.iter();
        let options =
            links.fold(Options::default(), |options, (name, template)| options.link(name, template));
        let options = options
            .access(access)
            .read_only(arguments.read_only)
            .hide_payloads_from_readers(arguments.hide_payloads);
        Ok(Stage {
            arguments,
            url,
            runtimes: Vec::new(),
            code: Code::Good,
            server: None,
            address: None,
            options,
            tokens,
            _directory: directory,
            _postgres: postgres,
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Whether the store outlives its runtimes.
    pub(crate) fn is_durable(&self) -> bool {
        self.url != MEMORY
    }

    /// A client beside the runtimes, as another process has it.
    fn guest(&self) -> Result<Client, Failure> {
        match self.is_durable() {
            true => Ok(Client::open(&self.url)?),
            false => Ok(self.runtime()?.client()),
        }
    }

    /// A client of the first runtime, or beside the store if none runs.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        match self.runtimes.first() {
            Some(runtime) => Ok(runtime.client()),
            None => self.guest(),
        }
    }

    pub(crate) fn runtime(&self) -> Result<&Runtime, Failure> {
        self.runtimes.first().ok_or_else(|| "no runtime runs".into())
    }

    pub(crate) async fn start_runtime(&mut self, code: Code) -> Result<(), Failure> {
        if !self.runtimes.is_empty() {
            return Err("a runtime runs already".into());
        }
        self.code = code;
        for number in 1..=self.arguments.nodes {
            let mut options = RuntimeOptions {
                node: format!("node-{number}"),
                lease: LEASE,
                keep_executions: None,
                relaxed: true,
                ..RuntimeOptions::default()
            };
            // Those in trouble stay so until somebody acts.
            options.shard.retry_first = std::time::Duration::from_secs(3_600);
            options.shard.retry_max = options.shard.retry_first;
            let builder = Runtime::open(&self.url);
            let runtime = builder.options(options).registrations(registrations(code)).start().await?;
            self.runtimes.push(runtime);
        }
        Ok(())
    }

    /// Starts runtimes with the build that ran last.
    pub(crate) async fn start_runtime_again(&mut self) -> Result<(), Failure> {
        self.start_runtime(self.code).await
    }

    pub(crate) async fn stop_runtime(&mut self) -> Result<(), Failure> {
        if !self.is_durable() {
            return Err("a store in memory ends with its runtime".into());
        }
        for runtime in self.runtimes.drain(..) {
            runtime.shutdown_within(std::time::Duration::from_millis(100)).await?;
        }
        Ok(())
    }

    /// Ends all runtimes as a crash would.
    pub(crate) fn kill_runtime(&mut self) {
        tokio::task::block_in_place(|| self.runtimes.clear());
    }

    /// Starts the server, at the same address as before.
    pub(crate) async fn start_server(&mut self) -> Result<String, Failure> {
        if self.server.is_some() {
            return Err("the server runs already".into());
        }
        let address = self.address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], self.arguments.port)));
        let listener = TcpListener::bind(address).await?;
        self.address = Some(listener.local_addr()?);
        let stop = Stop::default();
        let options = self.options.clone().stop(stop.clone());
        let prefix = self.arguments.prefix.clone();
        let task = match &prefix {
            None => tokio::spawn(perennial_server::serve(listener, self.guest()?, options, None)),
            Some(prefix) => {
                let router = perennial_server::router(self.client()?, options.check_host(true));
                let app = axum::Router::new().nest(prefix, router);
                let app = app.into_make_service_with_connect_info::<SocketAddr>();
                let stopped = stop.clone();
                tokio::spawn(async move {
                    axum::serve(listener, app)
                        .with_graceful_shutdown(async move { stopped.stopped().await })
                        .await
                })
            }
        };
        self.server = Some(Server { stop, task });
        Ok(self.shown_url())
    }

    pub(crate) fn shown_url(&self) -> String {
        let address = self.address.map(|address| address.to_string()).unwrap_or_default();
        // The prefix alone leads there too; with a slash at its end, axum does not route it to a nested router.
        let path = self.arguments.prefix.as_ref().map(|prefix| format!("{prefix}/index.html"));
        format!("http://{address}{}", path.as_deref().unwrap_or("/"))
    }

    /// Stops the server as a signal would.
    pub(crate) async fn stop_server(&mut self) -> Result<(), Failure> {
        let server = self.server.take().ok_or("no server runs")?;
        server.stop.stop();
        Ok(server.task.await??)
    }

    /// Ends the server and all its connections at once.
    pub(crate) async fn kill_server(&mut self) -> Result<(), Failure> {
        let server = self.server.take().ok_or("no server runs")?;
        server.task.abort();
        // Cancelled, as asked for.
        let _ = server.task.await;
        Ok(())
    }
}

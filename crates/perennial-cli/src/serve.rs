//! `serve` and `token`: the HTTP API over a store.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use perennial_server::{Access, MetricsHandle, NewToken, Options, Role, Stop, TlsFiles, TokenFile};
use serde_json::json;
use tokio::net::TcpListener;

use crate::exit::Failure;
use crate::output::{line, lines, object};
use crate::store::StoreAt;
use crate::traces::Traces;

#[derive(Debug, Args)]
pub(crate) struct Token {
    /// The file with the hashes of tokens; created if it does not exist
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Whose token it is; recorded with what its owner does
    #[arg(long)]
    name: String,
    /// What its owner may do
    #[arg(long, value_enum, default_value_t = TokenRole::Reader)]
    role: TokenRole,
}

/// What the owner of a token may do.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TokenRole {
    /// Look, and ask queries
    Reader,
    /// Also start, change and delete
    Operator,
}

/// Who is shown payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PayloadReaders {
    /// Everybody who may look
    Readers,
    /// Operators only; readers cannot query, either
    Operators,
}

/// What is served of metrics.
#[derive(Debug, Args)]
struct ServeMetrics {
    /// Serve metrics as Prometheus text at /metrics, to readers
    #[cfg(feature = "prometheus")]
    #[arg(long)]
    metrics: bool,
    /// Serve metrics at /metrics of this address, and nothing else there; port 0 takes a free one. Readers need their
    /// tokens there, too
    #[cfg(feature = "prometheus")]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,
}

/// Metrics for the API's own listener, and for one of their own.
type Installed = (Option<MetricsHandle>, Option<(SocketAddr, MetricsHandle)>);

#[cfg(feature = "prometheus")]
impl ServeMetrics {
    /// Installs the recorder if metrics are served. Returns what the API serves of them, and what is served elsewhere.
    fn install(&self) -> Result<Installed, Failure> {
        if !self.metrics && self.metrics_listen.is_none() {
            return Ok((None, None));
        }
        let handle = perennial_server::prometheus::install()
            .map_err(|error| Failure::failed(format!("metrics cannot be recorded: {error}")))?;
        let apart = self.metrics_listen.map(|address| (address, handle.clone()));
        Ok((Some(handle).filter(|_| self.metrics), apart))
    }
}

#[cfg(not(feature = "prometheus"))]
impl ServeMetrics {
    fn install(&self) -> Result<Installed, Failure> {
        Ok((None, None))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7370", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The file with the hashes of tokens, made by `perennial token`. Required unless the address is a loopback
    /// address
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Let nobody change anything
    #[arg(long)]
    read_only: bool,
    /// Who is shown payloads; others get their sizes
    #[arg(long, value_enum, default_value_t = PayloadReaders::Readers)]
    payloads: PayloadReaders,
    /// Another name under which the server is reached
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// An origin, such as https://ops.example.com, whose pages may use the server
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// A template from which the dashboard makes links: editor and repository (with {file}, {line} and {column}), trace
    /// (with {trace}) or logs (with {id}, {key} and {name})
    #[arg(long, value_name = "NAME=URL", value_parser = link)]
    link: Vec<(String, String)>,
    /// The certificate for TLS, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    metrics: ServeMetrics,
    #[command(flatten)]
    traces: Traces,
}

/// The names of links that the dashboard makes.
const LINKS: [&str; 4] = ["editor", "repository", "trace", "logs"];

/// Reads a template of links. A script is not a link.
fn link(text: &str) -> Result<(String, String), String> {
    let (name, template) = text.split_once('=').ok_or("it has no =; write NAME=URL")?;
    if !LINKS.contains(&name) {
        return Err(format!("no link is called {name:?}; there are {}", LINKS.join(", ")));
    }
    match template.split_once(':') {
        Some((scheme, _))
            if !["javascript", "data", "vbscript"].contains(&scheme.to_ascii_lowercase().as_str()) =>
        {
            Ok((name.to_owned(), template.to_owned()))
        }
        _ => Err("it needs a whole URL, such as https://traces.example.com/{trace}".to_owned()),
    }
}

/// Serves the API until a signal asks the process to stop.
pub(crate) async fn serve(store: &StoreAt, serve: Serve, as_json: bool) -> Result<(), Failure> {
    let Serve {
        listen,
        tokens,
        read_only,
        payloads,
        allow_host,
        allow_origin,
        link,
        tls_cert,
        tls_key,
        metrics,
        traces,
    } = serve;
    let (metrics, apart) = metrics.install()?;
    let tls = match (tls_cert, tls_key) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        _ => None,
    };
    let is_elsewhere = |(address, _): &(SocketAddr, MetricsHandle)| !address.ip().is_loopback();
    let is_private =
        listen.ip().is_loopback() && allow_host.is_empty() && !apart.as_ref().is_some_and(is_elsewhere);
    let access = access(tokens.as_deref(), is_private)?;
    if !is_private && tls.is_none() {
        eprintln!(
            "warning: tokens and payloads are sent unencrypted; use --tls-cert and --tls-key, or a proxy with TLS"
        );
    }
    let stop = Stop::default();
    let mut options = Options::default()
        .access(access)
        .read_only(read_only)
        .hide_payloads_from_readers(payloads == PayloadReaders::Operators)
        .stop(stop.clone());
    for host in allow_host {
        options = options.allow_host(host);
    }
    for origin in allow_origin {
        options = options.allow_origin(origin);
    }
    for (name, template) in link {
        options = options.link(name, template);
    }
    let exported = traces.begin()?;
    let client = store.open()?;
    let listener = bind(listen).await?;
    let url = shown_url(listener.local_addr()?, tls.is_some());
    let apart = match apart {
        Some((address, handle)) => Some((bind(address).await?, handle)),
        None => None,
    };
    let metrics_url = apart.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
    let metrics_url = metrics_url.map(|address| format!("{}metrics", shown_url(address, tls.is_some())));
    match (as_json, &metrics_url) {
        (true, None) => object(&json!({"url": url}))?,
        (true, Some(metrics)) => object(&json!({"url": url, "metrics": metrics}))?,
        (false, None) => line(&url)?,
        (false, Some(metrics)) => lines(format!("{url}\n{metrics}"))?,
    }
    stop_on_signals(stop)?;
    let only = |handle: MetricsHandle| options.clone().metrics(handle).only_metrics(true);
    let apart = apart.map(|(listener, handle)| {
        perennial_server::serve(listener, client.clone(), only(handle), tls.clone())
    });
    let apart = async {
        match apart {
            Some(served) => served.await,
            None => Ok(()),
        }
    };
    let options = match metrics {
        Some(handle) => options.metrics(handle),
        None => options,
    };
    let served = tokio::try_join!(perennial_server::serve(listener, client, options, tls), apart);
    exported.end();
    served?;
    Ok(())
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| Failure::failed(format!("cannot listen on {address}: {error}")))
}

/// Who may use the server. Only on a loopback address need nobody prove who they are.
fn access(tokens: Option<&Path>, is_private: bool) -> Result<Access, Failure> {
    match tokens {
        None if is_private => Ok(Access::everybody(Role::Operator)),
        None => Err(Failure::usage(
            "others than this machine could use the server; make a token with `perennial token`, and pass --tokens FILE",
        )),
        Some(path) => {
            let file = TokenFile::open(path).map_err(Failure::usage)?;
            if file.is_empty() {
                let message = format!("{} has no tokens; make one with `perennial token`", path.display());
                return Err(Failure::usage(message));
            }
            Ok(Access::tokens(file))
        }
    }
}

fn shown_url(address: SocketAddr, is_tls: bool) -> String {
    format!("{}://{address}/", if is_tls { "https" } else { "http" })
}

/// The first signal lets requests end; the second ends the process.
fn stop_on_signals(stop: Stop) -> Result<(), Failure> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};

        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if stop.is_stopped() {
                    std::process::exit(1);
                }
                stop.stop();
            }
        });
    }
    #[cfg(not(unix))]
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() {
            if stop.is_stopped() {
                std::process::exit(1);
            }
            stop.stop();
        }
    });
    Ok(())
}

/// Makes a token, adds its hash to a file, and shows the token this once.
pub(crate) fn token(token: &Token, as_json: bool) -> Result<(), Failure> {
    let (path, name) = (&token.file, &token.name);
    let role = match token.role {
        TokenRole::Reader => Role::Reader,
        TokenRole::Operator => Role::Operator,
    };
    if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Failure::usage("a name has no blanks"));
    }
    let made = NewToken::generate(name, role);
    made.append_to(path).map_err(Failure::usage)?;
    if as_json {
        return object(&json!({"token": made.token, "name": name, "role": role.name()}));
    }
    line(&made.token)?;
    eprintln!("added {} {name} to {}; the token is not shown again", role.name(), path.display());
    Ok(())
}

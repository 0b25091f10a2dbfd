//! Who may use the API, and what it shows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use perennial::store::shown_url;
use serde::Serialize;

use crate::access::TokenFile;
use crate::stop::Stop;
use crate::times::Times;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Looks at everything and asks queries.
    Reader,
    /// Also starts, changes and deletes.
    Operator,
}

impl Role {
    /// Its name in token files and answers.
    pub fn name(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Operator => "operator",
        }
    }

    /// The role with a name.
    pub fn from_name(name: &str) -> Option<Role> {
        [Role::Reader, Role::Operator].into_iter().find(|role| role.name() == name)
    }
}

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// Recorded with the reason of a cancel or terminate, and logged with each change.
    pub name: String,
    /// What the caller may do.
    pub role: Role,
}

/// Decides who sends a request, from its method, URL and headers.
type Login = dyn Fn(&Parts) -> Option<Caller> + Send + Sync;

/// How callers are told apart.
#[derive(Clone, Default)]
pub struct Access(pub(crate) AccessKind);

#[derive(Clone, Default)]
pub(crate) enum AccessKind {
    #[default]
    Nobody,
    Tokens(Arc<TokenFile>),
    Login(Arc<Login>),
    Everybody(Role),
}

impl Access {
    /// Refuses everything. The default of a mounted router, until the application chooses.
    pub fn nobody() -> Access {
        Access(AccessKind::Nobody)
    }

    /// Callers send a token of this file, as `Authorization: Bearer TOKEN`, or exchange it for a session.
    pub fn tokens(file: TokenFile) -> Access {
        Access(AccessKind::Tokens(Arc::new(file)))
    }

    /// The application's own login decides: `None` is nobody. A layer around the router can leave the user in the
    /// request's extensions.
    ///
    /// ```
    /// use perennial_server::{Access, Caller, Role};
    ///
    /// #[derive(Clone)]
    /// struct User { name: String, is_admin: bool }
    ///
    /// let access = Access::login(|request| {
    ///     let user = request.extensions.get::<User>()?;
    ///     let role = if user.is_admin { Role::Operator } else { Role::Reader };
    ///     Some(Caller { name: user.name.clone(), role })
    /// });
    /// ```
    pub fn login(login: impl Fn(&Parts) -> Option<Caller> + Send + Sync + 'static) -> Access {
        Access(AccessKind::Login(Arc::new(login)))
    }

    /// Everybody who can reach the server has this role.
    pub fn everybody(role: Role) -> Access {
        Access(AccessKind::Everybody(role))
    }

    /// Whether callers prove who they are. Then no web page can act for them unnoticed.
    pub(crate) fn is_proven(&self) -> bool {
        matches!(self.0, AccessKind::Tokens(_) | AccessKind::Login(_))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AccessKind::Nobody => "nobody",
            AccessKind::Tokens(_) => "tokens",
            AccessKind::Login(_) => "login",
            AccessKind::Everybody(_) => "everybody",
        })
    }
}

/// Gives the metrics of the process as Prometheus text.
///
/// With the feature `prometheus`, [`prometheus::install`](crate::prometheus::install) makes one; a `PrometheusHandle` of the
/// application's own recorder can be turned into one.
#[derive(Clone)]
pub struct MetricsHandle(Arc<dyn Fn() -> String + Send + Sync>);

impl MetricsHandle {
    /// A handle that calls a function for each request.
    pub fn new(render: impl Fn() -> String + Send + Sync + 'static) -> MetricsHandle {
        MetricsHandle(Arc::new(render))
    }

    pub(crate) fn render(&self) -> String {
        (self.0)()
    }
}

impl fmt::Debug for MetricsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsHandle")
    }
}

/// Settings of the API.
///
/// ```
/// use perennial::prelude::*;
/// use perennial_server::{Access, Options, Role};
///
/// # #[tokio::main]
/// # async fn main() -> perennial::Result<()> {
/// let runtime = Runtime::open("memory:").start().await?;
/// let options = Options::default().access(Access::everybody(Role::Reader));
/// let app: axum::Router = axum::Router::new().nest("/ops", perennial_server::router(runtime.client(), options));
/// # runtime.shutdown().await
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Options {
    pub(crate) access: Access,
    pub(crate) read_only: bool,
    pub(crate) hide_payloads: bool,
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
    pub(crate) checks_host: Option<bool>,
    pub(crate) secure: bool,
    pub(crate) metrics: Option<MetricsHandle>,
    pub(crate) only_metrics: bool,
    pub(crate) store_url: Option<String>,
    pub(crate) times: Times,
    pub(crate) stop: Stop,
    pub(crate) links: BTreeMap<String, String>,
}

impl Options {
    /// Sets how callers are told apart. Default: [`Access::nobody`].
    pub fn access(mut self, access: Access) -> Options {
        self.access = access;
        self
    }

    /// Makes everybody a reader. Default: `false`.
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// Shows readers the sizes of payloads instead of payloads, everywhere, and refuses their queries. Default: `false`.
    pub fn hide_payloads_from_readers(mut self, hide: bool) -> Options {
        self.hide_payloads = hide;
        self
    }

    /// Adds a name under which the server can be reached, besides the loopback names.
    pub fn allow_host(mut self, host: impl Into<String>) -> Options {
        self.hosts.push(host.into());
        self
    }

    /// Lets pages of an origin, such as `https://ops.example.com`, read answers and send changes.
    pub fn allow_origin(mut self, origin: impl Into<String>) -> Options {
        self.origins.push(origin.into());
        self
    }

    /// Sets whether requests for other hosts are refused. Default: `true`, except for a mounted router whose callers prove
    /// who they are by tokens or by the application's login.
    pub fn check_host(mut self, check: bool) -> Options {
        self.checks_host = Some(check);
        self
    }

    /// Sets whether cookies are sent over TLS only. Default: `false`; a server with its own certificate sets it.
    pub fn secure_cookies(mut self, secure: bool) -> Options {
        self.secure = secure;
        self
    }

    /// Serves the metrics of the process at `/metrics`, to readers, as Prometheus text. Default: there is no such path.
    /// The gauges of the process and of the store are refreshed for each request.
    pub fn metrics(mut self, handle: impl Into<MetricsHandle>) -> Options {
        self.metrics = Some(handle.into());
        self
    }

    /// Answers nothing but `/metrics`: for a listener of its own. Default: `false`.
    pub fn only_metrics(mut self, only: bool) -> Options {
        self.only_metrics = only;
        self
    }

    /// Sets a template from which the dashboard makes links: `editor` and `repository` for a place in the source, with
    /// `{file}`, `{line}` and `{column}`; `trace` with `{trace}`; `logs` with `{id}`, `{key}` and `{name}`. The page itself
    /// loads nothing from them.
    ///
    /// ```
    /// use perennial_server::Options;
    ///
    /// let options = Options::default()
    ///     .link("editor", "vscode://file/home/ada/shop/{file}:{line}")
    ///     .link("trace", "https://traces.example.com/{trace}");
    /// ```
    pub fn link(mut self, name: impl Into<String>, template: impl Into<String>) -> Options {
        self.links.insert(name.into(), template.into());
        self
    }

    /// Divides all times that callers are given, so that tests need not wait for them.
    #[doc(hidden)]
    pub fn divide_times(mut self, divisor: u32) -> Options {
        self.times = self.times.divided_by(divisor);
        self
    }

    /// Sets the URL of the store that callers are shown, without its password. Default: that of the client, if it was
    /// opened by a URL.
    pub fn store_url(mut self, url: &str) -> Options {
        self.store_url = Some(shown_url(url));
        self
    }

    /// Sets the handle that stops the router. See [`Stop`].
    pub fn stop(mut self, stop: Stop) -> Options {
        self.stop = stop;
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("access", &self.access).finish_non_exhaustive()
    }
}

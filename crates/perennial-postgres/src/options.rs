//! Options of a store, from its URL and from the program.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::{StoreError, shown_url};
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::tls::Verify;

/// The schema that is used unless another one is named.
pub const DEFAULT_SCHEMA: &str = "perennial";

/// PostgreSQL truncates names at 63 bytes. The name of the notification channel contains the schema's name.
const MAX_SCHEMA_BYTES: usize = 48;
/// Default maximum number of connections, not counting the one for hints.
const CONNECTIONS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a TCP acknowledgement after which a connection counts as lost.
const TCP_TIMEOUT: Duration = Duration::from_secs(30);
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Replaces the server's clock in tests. Returns milliseconds since 1970.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Options for opening a store. Parameters of the URL override options of the same name.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(crate) schema: String,
    pub(crate) create: bool,
    pub(crate) connections: usize,
    pub(crate) hints: bool,
    pub(crate) pooler: bool,
    pub(crate) relaxed: bool,
    pub(crate) read_only: bool,
    pub(crate) clock: Option<Clock>,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions {
            schema: DEFAULT_SCHEMA.to_owned(),
            create: true,
            connections: CONNECTIONS,
            hints: true,
            pooler: false,
            relaxed: false,
            read_only: false,
            clock: None,
        }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PostgresOptions { schema, create, connections, hints, pooler, relaxed, read_only, clock: _ } =
            self;
        f.debug_struct("PostgresOptions")
            .field("schema", schema)
            .field("create", create)
            .field("connections", connections)
            .field("hints", hints)
            .field("pooler", pooler)
            .field("relaxed", relaxed)
            .field("read_only", read_only)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    /// Sets the schema that holds all tables. In the URL: `schema=`.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> PostgresOptions {
        self.schema = schema.into();
        self
    }

    /// Sets whether the schema is created if it does not exist, and migrated if it is older. The default is `true`.
    #[must_use]
    pub fn create(mut self, create: bool) -> PostgresOptions {
        self.create = create;
        self
    }

    /// Sets the maximum number of connections, at least 1. The default is 10. Half of them, but at most four, are used by
    /// commits alone. Hints use one more. In the URL:
    /// `connections=`.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> PostgresOptions {
        self.connections = connections.max(1);
        self
    }

    /// Sets whether processes notify each other about new work, with LISTEN and NOTIFY on a connection of its own.
    /// Without hints, processes poll. In the URL: `hints=off`.
    #[must_use]
    pub fn hints(mut self, hints: bool) -> PostgresOptions {
        self.hints = hints;
        self
    }

    /// Sets whether the server is behind a pooler that assigns connections per transaction. The store then keeps no
    /// state in a session: no prepared statements, no settings and no hints. `relaxed` has no effect, and `read_only`
    /// is enforced by this process alone. In the URL: `pooler=on`.
    #[must_use]
    pub fn pooler(mut self, pooler: bool) -> PostgresOptions {
        self.pooler = pooler;
        self
    }

    /// Acknowledges commits before the server has synced them. If the server or its machine crashes, the last
    /// acknowledged commits can be lost. Use it for tests, and for data that can be reproduced.
    #[must_use]
    pub fn relaxed(mut self, relaxed: bool) -> PostgresOptions {
        self.relaxed = relaxed;
        self
    }

    /// Refuses all calls that modify the store.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> PostgresOptions {
        self.read_only = read_only;
        self
    }

    /// Replaces the server's clock. Returns milliseconds since 1970. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> PostgresOptions {
        self.clock = Some(Arc::new(clock));
        self
    }
}

/// The location of a store and how to connect to it.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) config: Config,
    pub(crate) verify: Verify,
    /// A file with the trusted root certificates. `None` means the system's.
    pub(crate) root_certificate: Option<String>,
    pub(crate) options: PostgresOptions,
    /// The URL without its password and parameters, for error messages.
    pub(crate) shown: String,
}

impl Target {
    pub(crate) fn parse(url: &str, options: PostgresOptions) -> Result<Target, StoreError> {
        // The parameters are left out, since messages name the schema separately.
        let shown = shown_url(url).split('?').next().unwrap_or_default().to_owned();
        let cannot = |problem: String| StoreError::CannotOpen(format!("{shown}: {problem}"));
        let mut options = options;
        let (mut verify, mut ssl_mode, mut root_certificate) = (Verify::Nothing, None, None);
        let (base, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut others = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let text = || decoded(value).ok_or_else(|| cannot(format!("the value of {name} is not UTF-8")));
            match name {
                "schema" => options.schema = text()?,
                "connections" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    options.connections =
                        number.ok_or_else(|| cannot("connections= takes a number from 1 on".to_owned()))?;
                }
                "hints" => options.hints = switch(name, value).map_err(cannot)?,
                "pooler" => options.pooler = switch(name, value).map_err(cannot)?,
                "sslrootcert" => root_certificate = Some(text()?),
                "sslmode" => {
                    let (mode, verified) = ssl(value).map_err(cannot)?;
                    (ssl_mode, verify) = (Some(mode), verified);
                }
                _ => others.push(parameter),
            }
        }
        check_schema(&options.schema).map_err(cannot)?;
        let separator = if others.is_empty() { "" } else { "?" };
        let plain = format!("{base}{separator}{}", others.join("&"));
        let mut config: Config = plain.parse().map_err(|error| cannot(describe(&error)))?;
        if let Some(mode) = ssl_mode {
            config.ssl_mode(mode);
        }
        set_defaults(&mut config);
        Ok(Target { config, verify, root_certificate, options, shown })
    }

    /// The schema's name, quoted for SQL.
    pub(crate) fn quoted_schema(&self) -> String {
        quoted(&self.options.schema)
    }
}

/// Formats an error of the client library with its cause, which has the useful details.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) if error.as_db_error().is_none() => format!("{error}: {source}"),
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// Quotes any name for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn set_defaults(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("perennial");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_TIMEOUT);
    }
    config.keepalives_idle(KEEPALIVE);
    // Of several servers, use the primary.
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
}

fn ssl(mode: &str) -> Result<(SslMode, Verify), String> {
    Ok(match mode {
        "disable" => (SslMode::Disable, Verify::Nothing),
        "allow" | "prefer" => (SslMode::Prefer, Verify::Nothing),
        "require" => (SslMode::Require, Verify::Nothing),
        "verify-ca" => (SslMode::Require, Verify::Authority),
        "verify-full" => (SslMode::Require, Verify::Full),
        other => {
            return Err(format!(
                "sslmode={other} is not known; use disable, prefer, require, verify-ca or verify-full"
            ));
        }
    })
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(format!("{name}= takes on or off")),
    }
}

/// Accepts any name that PostgreSQL stores unchanged and that does not belong to other programs.
fn check_schema(schema: &str) -> Result<(), String> {
    let problem = if schema.is_empty() {
        "it is empty".to_owned()
    } else if schema.len() > MAX_SCHEMA_BYTES {
        format!("it has {} bytes, {MAX_SCHEMA_BYTES} are allowed", schema.len())
    } else if schema.chars().any(char::is_control) {
        "it contains a control character".to_owned()
    } else if schema.starts_with("pg_") || matches!(schema, "information_schema" | "public") {
        "it belongs to PostgreSQL or to other programs".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("the schema {schema:?} cannot be used: {problem}"))
}

fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Target {
        Target::parse(url, PostgresOptions::default()).unwrap()
    }

    fn refused(url: &str) -> String {
        match Target::parse(url, PostgresOptions::default()) {
            Err(StoreError::CannotOpen(problem)) => problem,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{url} should be refused"),
        }
    }

    #[test]
    fn s9_parameters_of_the_url_are_ours_or_the_clients() {
        let target = parsed(
            "postgres://me:secret@db:5433/shop?schema=or%20ders&connections=3&hints=off&connect_timeout=7&sslmode=verify-full",
        );
        assert_eq!(target.options.schema, "or ders");
        assert_eq!((target.options.connections, target.options.hints), (3, false));
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_secs(7)));
        assert_eq!((target.config.get_ssl_mode(), target.verify), (SslMode::Require, Verify::Full));
        assert_eq!(target.shown, "postgres://me@db:5433/shop");
    }

    #[test]
    fn s9_a_password_is_never_shown() {
        for url in ["postgres://me:sec@ret@db/shop?connections=0", "postgres://me:secret@db/shop?nonsense=1"]
        {
            let problem = refused(url);
            assert!(!problem.contains("sec"), "{problem}");
        }
    }

    #[test]
    fn s9_schema_names_that_cannot_be_meant_are_refused() {
        for (schema, why) in [
            ("", "it is empty"),
            ("pg_catalog", "belongs to PostgreSQL"),
            ("public", "belongs to PostgreSQL"),
            ("a%00b", "a control character"),
            ("123456789012345678901234567890123456789012345678x", "49 bytes, 48 are allowed"),
        ] {
            let problem = refused(&format!("postgres://me@db/shop?schema={schema}"));
            assert!(problem.contains(why), "{problem}");
        }
        assert_eq!(quoted("a\"; DROP TABLE x; --"), "\"a\"\"; DROP TABLE x; --\"");
    }

    #[test]
    fn s9_of_several_servers_the_primary_is_used() {
        let attributes = |url| parsed(url).config.get_target_session_attrs();
        assert_eq!(attributes("postgres://me@one,two/shop"), TargetSessionAttrs::ReadWrite);
        assert_eq!(attributes("postgres://me@one/shop"), TargetSessionAttrs::Any);
    }
}

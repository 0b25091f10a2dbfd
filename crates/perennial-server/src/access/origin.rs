//! Checks of the host and the origin of a request, against web pages of other sites.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use perennial::ErrorCode;

use crate::options::Options;
use crate::problem::Problem;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests for a host that is not served, so that a page cannot reach this machine by pointing its own name at
/// it. The port is not compared: tunnels change it.
pub(crate) fn check_host(options: &Options, parts: &Parts) -> Result<(), Problem> {
    let headers = || parts.headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let header = headers().next();
    let target = parts.uri.authority().map(|authority| authority.as_str());
    // A proxy may read another of several hosts than this server does.
    let is_one = headers().count() <= 1;
    let mut hosts = headers().chain(target).peekable();
    let is_served = |host: &str| {
        let name = without_port(host);
        let allowed = options.hosts.iter().map(|allowed| without_port(allowed));
        LOOPBACK.into_iter().chain(allowed).any(|allowed| allowed.eq_ignore_ascii_case(name))
    };
    if is_one && hosts.peek().is_some() && hosts.all(is_served) {
        return Ok(());
    }
    let shown: String = header.or(target).unwrap_or("none").chars().take(100).collect();
    Err(Problem::new(ErrorCode::HostNotAllowed, format!("the host {shown:?} is not served here")))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => {
            if name.contains(':') && !name.ends_with(']') {
                host
            } else {
                name
            }
        }
        _ => host,
    }
}

/// Refuses a change that a page of another site sends.
pub(crate) fn check_origin(options: &Options, headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |what: String| Err(Problem::new(ErrorCode::OriginNotAllowed, what));
    let is_allowed = is_allowed_origin(options, headers);
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if !is_allowed && !is_own(origin, headers) {
            let shown: String = origin.chars().take(100).collect();
            return refused(format!("a page of {shown:?} sent the request"));
        }
    }
    let is_other = |site: &HeaderValue| !matches!(site.to_str(), Ok("same-origin" | "none"));
    match headers.get_all(SEC_FETCH_SITE).iter().any(is_other) && !is_allowed {
        true => refused("a page of another site sent the request".to_owned()),
        false => Ok(()),
    }
}

/// Whether the origin of a request is on the list of allowed ones.
pub(crate) fn is_allowed_origin(options: &Options, headers: &HeaderMap) -> bool {
    let is_listed = |origin: &HeaderValue| options.origins.iter().any(|allowed| *origin == **allowed);
    let mut origins = headers.get_all(header::ORIGIN).iter();
    matches!((origins.next(), origins.next()), (Some(origin), None) if is_listed(origin))
}

/// Whether an origin is that of the host which the request is for.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let Ok(origin) = origin.parse::<Uri>() else { return false };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let has_scheme = matches!(origin.scheme_str(), Some("http" | "https"));
    has_scheme
        && host
            .is_some_and(|host| origin.authority().is_some_and(|own| own.as_str().eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h9_a_port_does_not_make_another_host() {
        for (host, name) in [
            ("localhost:7370", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a.example", "a.example"),
            ("::1", "::1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn h10_the_own_origin_is_that_of_the_host() {
        let headers = |host: &str| HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        assert!(is_own("http://localhost:7370", &headers("localhost:7370")));
        assert!(is_own("https://ops.example", &headers("ops.example")));
        for foreign in ["null", "http://localhost:1", "http://evil.example", "file://localhost:7370", ""] {
            assert!(!is_own(foreign, &headers("localhost:7370")), "{foreign}");
        }
    }
}

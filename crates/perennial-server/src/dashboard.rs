//! The files of the dashboard: every path that is not of the API leads to it.
//!
//! The files are public and the same for everybody; what they show comes from the API, which asks who wants to know. A
//! build with debug assertions serves them from the directory that `PERENNIAL_DASHBOARD` names, so that a change of the
//! pages needs no build of the server.

use std::borrow::Cow;
use std::io::Read;
use std::path::PathBuf;

use axum::body::Body;
use axum::extract::OriginalUri;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use flate2::read::GzDecoder;
use perennial::ErrorCode;

use crate::problem::Problem;

/// The directory to serve from instead, in builds with debug assertions.
const DIRECTORY_VARIABLE: &str = "PERENNIAL_DASHBOARD";

/// Only files of this server are loaded, nothing is inline, and no text becomes a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const INDEX: &str = "index.html";
/// The names of files in here contain a hash of their content.
const HASHED: &str = "assets/";

struct File {
    /// Below the prefix, without a leading slash.
    path: &'static str,
    etag: &'static str,
    gzip: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Whether a path belongs to the dashboard.
pub(crate) fn covers(path: &str) -> bool {
    let is_api = path == "/api" || path.starts_with("/api/");
    !is_api && !["/livez", "/readyz", "/metrics"].contains(&path)
}

/// Answers a request for the dashboard: a file, or the way to the page.
pub(crate) fn answer(parts: &Parts) -> Result<Response<Body>, Problem> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        let allow = HeaderValue::from_static("GET, HEAD");
        return Err(Problem::new(ErrorCode::MethodNotAllowed, "the path takes GET, HEAD")
            .header(header::ALLOW, allow));
    }
    let path = parts.uri.path();
    let name = match path {
        "/" | "" => match missing_slash(parts) {
            Some(location) => return Ok(redirect(&location)),
            None => INDEX,
        },
        path => path.trim_start_matches('/'),
    };
    if let Some(directory) = directory() {
        return from_disk(&directory, name).map_or_else(|| elsewhere(parts), |file| Ok(respond(parts, file)));
    }
    match FILES.iter().find(|file| file.path == name) {
        Some(file) => Ok(respond(parts, Served::embedded(file))),
        None => elsewhere(parts),
    }
}

/// Sends a browser from an unknown path to the page, and refuses everything else.
fn elsewhere(parts: &Parts) -> Result<Response<Body>, Problem> {
    let path = parts.uri.path();
    let accepts =
        |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts(header::ACCEPT).contains("text/html") && !path.trim_start_matches('/').starts_with(HASHED) {
        let depth = path.matches('/').count().saturating_sub(1);
        return Ok(redirect(&format!(
            "{}{INDEX}",
            if depth == 0 { "./".to_owned() } else { "../".repeat(depth) }
        )));
    }
    let shown: String = path.chars().take(200).collect();
    Err(Problem::new(ErrorCode::NoRoute, format!("no route has the path {shown:?}")))
}

/// The relative URL of the page, if a mounted router is asked for its prefix without a slash: the page's own relative URLs
/// would lead out of the prefix. Not the prefix with a slash, which axum does not route to a nested router.
fn missing_slash(parts: &Parts) -> Option<String> {
    let original = parts.extensions.get::<OriginalUri>()?.0.path();
    let (_, last) = original.rsplit_once('/')?;
    (!last.is_empty()).then(|| format!("{last}/{INDEX}"))
}

fn redirect(location: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A file that was found.
struct Served {
    name: Cow<'static, str>,
    etag: Cow<'static, str>,
    content: Content,
}

enum Content {
    Gzip(&'static [u8]),
    Plain(Vec<u8>),
}

impl Served {
    fn embedded(file: &'static File) -> Served {
        Served { name: file.path.into(), etag: file.etag.into(), content: Content::Gzip(file.gzip) }
    }
}

fn respond(parts: &Parts, file: Served) -> Response<Body> {
    let is_hashed = file.name.starts_with(HASHED);
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("vary", "accept-encoding"),
        ("cache-control", if is_hashed { "public, max-age=31536000, immutable" } else { "no-cache" }),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Ok(etag) = HeaderValue::from_str(&file.etag) {
        headers.insert(header::ETAG, etag);
    }
    let known =
        parts.headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    if known.split(',').any(|tag| tag.trim().trim_start_matches("W/") == file.etag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media(&file.name)));
    let body = match file.content {
        Content::Plain(bytes) => Body::from(bytes),
        Content::Gzip(bytes) if takes_gzip(&parts.headers) => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            Body::from(bytes)
        }
        Content::Gzip(bytes) => {
            let mut plain = Vec::new();
            // What the build compressed decompresses.
            let _ = GzDecoder::new(bytes).read_to_end(&mut plain);
            Body::from(plain)
        }
    };
    *response.body_mut() = body;
    response
}

/// Whether a caller takes a compressed answer.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut wildcard = false;
    for coding in values.flat_map(|value| value.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        match name {
            _ if name.eq_ignore_ascii_case("gzip") => return weight > 0.0,
            "*" => wildcard = weight > 0.0,
            _ => {}
        }
    }
    wildcard
}

fn media(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        _ => "application/octet-stream",
    }
}

fn directory() -> Option<PathBuf> {
    if !cfg!(debug_assertions) {
        return None;
    }
    std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from)
}

/// Reads a file of the directory. A name leads to no other place.
fn from_disk(directory: &std::path::Path, name: &str) -> Option<Served> {
    let is_inside = name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if !is_inside || name.contains(['\\', '\0', '%', ':']) {
        return None;
    }
    let bytes = std::fs::read(directory.join(name)).ok()?;
    let hash = bytes
        .iter()
        .fold(bytes.len() as u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    Some(Served {
        name: name.to_owned().into(),
        etag: format!("\"{hash:x}\"").into(),
        content: Content::Plain(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d56_a_caller_gets_the_encoding_that_it_takes() {
        let headers = |value: &str| HeaderMap::from_iter([(header::ACCEPT_ENCODING, value.parse().unwrap())]);
        for taken in ["gzip", "br, GZIP;q=0.5", "*", "deflate, *;q=0.1", "gzip;q=1.0, identity;q=0"] {
            assert!(takes_gzip(&headers(taken)), "{taken}");
        }
        for refused in ["", "br", "gzip;q=0", "*;q=0", "identity", "*, gzip;q=0", "gzip;q=x"] {
            assert!(!takes_gzip(&headers(refused)), "{refused}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn d56_files_from_disk_are_those_of_the_directory_alone() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("dist");
        std::fs::create_dir_all(inner.join("assets")).unwrap();
        std::fs::write(directory.path().join("secret.js"), "secret").unwrap();
        std::fs::write(inner.join("assets/a.js"), "a").unwrap();
        assert!(from_disk(&inner, "assets/a.js").is_some());
        for name in [
            "../secret.js",
            "assets/../../secret.js",
            "/secret.js",
            "assets//a.js",
            "assets",
            "",
            "%2e%2e/secret.js",
        ] {
            assert!(from_disk(&inner, name).is_none(), "{name}");
        }
    }
}

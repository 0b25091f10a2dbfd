//! A small blocking HTTP client for the exporter's thread: one request per connection.
//!
//! The usual clients bring a runtime or a second TLS library. This one needs what the project uses anyway.

use std::fmt;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long connecting, sending or receiving may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer.
const MAX_ANSWER: u64 = 4 << 20;

/// Sends requests on the calling thread.
pub(crate) struct BlockingClient {
    tls: Arc<ClientConfig>,
}

impl BlockingClient {
    pub(crate) fn new() -> Result<BlockingClient, rustls::Error> {
        let mut roots = RootCertStore::empty();
        // A machine without certificates can still send to a collector without TLS.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        Ok(BlockingClient { tls: Arc::new(tls) })
    }

    fn send(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let uri = request.uri();
        let host = uri.host().ok_or("the endpoint has no host")?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("the endpoint is neither http nor https".into()),
        };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = connect(host.trim_matches(['[', ']']), port)?;
        if !is_tls {
            return exchange(stream, request);
        }
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        let connection = ClientConnection::new(Arc::clone(&self.tls), name)?;
        exchange(StreamOwned::new(connection, stream), request)
    }
}

impl fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingClient")
    }
}

impl HttpClient for BlockingClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.send(&request) })
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = None;
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("the host has no address")))
}

fn exchange(mut stream: impl Read + Write, request: &Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    let mut head = format!("{} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n", request.method());
    head.push_str(&format!("Content-Length: {}\r\n", request.body().len()));
    for (name, value) in request.headers() {
        if !matches!(name.as_str(), "host" | "connection" | "content-length") {
            head.push_str(&format!("{name}: {}\r\n", value.to_str()?));
        }
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(request.body())?;
    stream.flush()?;
    let mut answer = Vec::new();
    match stream.take(MAX_ANSWER).read_to_end(&mut answer) {
        // Some servers close a TLS connection without saying so; what has arrived is checked below.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
        _ => {}
    }
    parse(&answer).ok_or_else(|| "the collector's answer is not HTTP".into())
}

/// Reads an answer. Of a body in chunks nothing is kept: the exporter can do without it.
fn parse(answer: &[u8]) -> Option<Response<Bytes>> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut response = Response::builder().status(status);
    let mut is_chunked = false;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        is_chunked |= name.eq_ignore_ascii_case("transfer-encoding");
        response = response.header(name, value.trim());
    }
    let body = if is_chunked { Bytes::new() } else { Bytes::copy_from_slice(&answer[end + 4..]) };
    response.body(body).ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn answers_of_collectors_are_read() {
        let answer = parse(b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n\r\nlater").unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["retry-after"]),
            (503, &"3".parse().unwrap())
        );
        assert_eq!(&answer.body()[..], b"later");
        let chunked =
            parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").unwrap();
        assert!(chunked.body().is_empty());
        assert!(parse(b"nonsense").is_none());
        assert!(parse(b"HTTP/1.1 abc\r\n\r\n").is_none());
    }
}

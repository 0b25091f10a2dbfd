//! A small HTTP/1.1 client, so that tests see what is on the wire.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::contract;

/// A server, and the prefix under which its router is mounted.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    pub(crate) prefix: &'static str,
}

/// A request, with defaults that the server accepts.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    place: Place,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Place {
    pub(crate) fn get(&self, path: &str) -> Asked {
        self.ask("GET", path)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Asked {
        self.ask("POST", path).body(&body.to_string())
    }

    pub(crate) fn delete(&self, path: &str) -> Asked {
        self.ask("DELETE", path)
    }

    /// A request below `/api/v1/`, or below the prefix if the path begins with a slash.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Asked {
        let whole = match path.starts_with('/') {
            true => format!("{}{path}", self.prefix),
            false => format!("{}/api/v1/{path}", self.prefix),
        };
        let asked = Asked {
            place: self.clone(),
            method: method.to_owned(),
            path: whole,
            headers: Vec::new(),
            body: None,
        };
        let asked = asked.header("host", &self.address.to_string());
        if method == "GET" { asked } else { asked.header("content-type", "application/json") }
    }
}

impl Asked {
    /// Sets a header, replacing the default.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Asked {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Asked {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub(crate) fn token(self, token: &str) -> Asked {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: &str) -> Asked {
        self.body = Some(body.as_bytes().to_vec());
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        head.push_str("connection: close\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }

    /// Sends the request, and checks the answer against the document.
    pub(crate) async fn send(self) -> Answer {
        let answer = self.send_unchecked().await;
        contract::check(self.place.prefix, &self.method, &self.path, &answer);
        answer
    }

    /// Sends the request and demands a status.
    pub(crate) async fn expect(self, status: u16) -> Answer {
        let shown = format!("{} {}", self.method, self.path);
        let answer = self.send().await;
        assert_eq!(answer.status, status, "{shown}: {}", answer.text());
        answer
    }

    /// Sends the request and demands an error with this code.
    pub(crate) async fn refused(self, status: u16, code: &str) -> Answer {
        let answer = self.expect(status).await;
        assert_eq!(answer.json()["code"], code, "{}", answer.text());
        answer
    }

    pub(crate) async fn send_unchecked(&self) -> Answer {
        Answer::parse(&exchange(self.place.address, &self.bytes()).await)
    }

    /// Opens a stream; `None` if there is no server.
    pub(crate) async fn try_open(&self) -> Option<Stream> {
        let mut stream = TcpStream::connect(self.place.address).await.ok()?;
        stream.write_all(&self.bytes()).await.ok()?;
        Some(Stream { stream, buffer: Vec::new(), text: String::new(), is_open: false })
    }

    /// Opens a stream.
    pub(crate) async fn open(&self) -> Stream {
        let mut stream = TcpStream::connect(self.place.address).await.unwrap();
        stream.write_all(&self.bytes()).await.unwrap();
        Stream { stream, buffer: Vec::new(), text: String::new(), is_open: false }
    }
}

/// Sends bytes and reads everything until the other side closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(90), stream.read_to_end(&mut answer)).await;
    answer
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Answer {
        let end = find(bytes, b"\r\n\r\n").unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let headers: Vec<(String, String)> =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let rest = &bytes[end + 4..];
        let is_chunked =
            headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(rest.len(), |(_, length)| length.parse().unwrap());
        let body = if is_chunked { unchunked(rest) } else { rest[..length.min(rest.len())].to_vec() };
        Answer { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = find(rest, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let from = end + 2;
        if size == 0 || rest.len() < from + size {
            break;
        }
        body.extend_from_slice(&rest[from..from + size]);
        rest = &rest[from + size + 2..];
    }
    body
}

/// A stream of server-sent events.
pub(crate) struct Stream {
    stream: TcpStream,
    buffer: Vec<u8>,
    text: String,
    is_open: bool,
}

/// One message of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Stream {
    /// The next message; `None` if the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        // Comments keep a silent connection open, so the whole wait is limited.
        tokio::time::timeout(Duration::from_secs(30), self.read_next()).await.expect("a message within 30 s")
    }

    /// The next message, however long it takes; `None` if the stream has ended.
    pub(crate) async fn next_if_open(&mut self) -> Option<Message> {
        self.read_next().await
    }

    async fn read_next(&mut self) -> Option<Message> {
        loop {
            while let Some((message, rest)) = self.text.split_once("\n\n") {
                let (message, rest) = (message.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    message.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
                };
                let kind = field("event: ");
                if !kind.is_empty() {
                    let data = serde_json::from_str(&field("data: ")).unwrap();
                    return Some(Message { kind, id: field("id: "), data });
                }
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.buffer.extend_from_slice(&bytes[..read]),
            }
            self.take_chunks();
        }
    }

    /// The next message of a kind.
    pub(crate) async fn next_of(&mut self, kind: &str) -> Message {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("the stream ended before {kind:?}"));
            if message.kind == kind {
                return message;
            }
        }
    }

    fn take_chunks(&mut self) {
        if !self.is_open {
            let Some(end) = find(&self.buffer, b"\r\n\r\n") else { return };
            let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
            assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
            assert!(
                head.contains("x-accel-buffering: no") && head.contains("cache-control: no-store"),
                "{head}"
            );
            self.buffer.drain(..end + 4);
            self.is_open = true;
        }
        while let Some(end) = find(&self.buffer, b"\r\n") {
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..end]).unwrap(), 16).unwrap();
            if self.buffer.len() < end + 2 + size + 2 {
                return;
            }
            self.text.push_str(std::str::from_utf8(&self.buffer[end + 2..end + 2 + size]).unwrap());
            self.buffer.drain(..end + 2 + size + 2);
        }
    }
}

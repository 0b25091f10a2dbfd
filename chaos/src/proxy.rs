//! A TCP proxy between the nodes and the server that injects faults: it refuses connections, delays data, and cuts
//! connections just before or just after a batch is forwarded.
//!
//! It parses as much of PostgreSQL's protocol as is needed to find the statement that commits a batch.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The texts that identify a prepared statement as a commit of a batch.
const COMMITS: [&[u8]; 2] = [b"commit_batch", b"plain_commit"];
/// Codes of requests that may precede the startup message: TLS and GSS encryption.
const BEFORE_START: [u32; 2] = [80_877_103, 80_877_104];
const BUFFER: usize = 64 << 10;
/// How long the server may take to respond to a batch whose client was cut off.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// When a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The request does not reach the server.
    Before,
    /// The request reaches the server, but the response is lost.
    After,
}

#[derive(Debug, Default)]
struct Faults {
    /// Number of connections to cut at their next commit.
    cuts_before: AtomicUsize,
    cuts_after: AtomicUsize,
    /// Number of connections that were cut.
    cut: AtomicUsize,
    delay_ms: AtomicU64,
}

/// A running proxy. It stops when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    faults: Arc<Faults>,
    is_open: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy on a free port, in front of a port of this machine.
    pub async fn start(server: u16) -> std::io::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (is_open, opened) = watch::channel(true);
        let faults: Arc<Faults> = Arc::default();
        let task = tokio::spawn(serve(listener, server, Arc::clone(&faults), opened));
        Ok(Proxy { port, faults, is_open, task })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Refuses new connections and cuts existing ones, or accepts connections again.
    pub fn refuse(&self, is_refusing: bool) {
        self.is_open.send_replace(!is_refusing);
    }

    /// Delays everything that clients send by `delay`.
    pub fn delay(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.faults.delay_ms.store(delay_ms, Ordering::Relaxed);
    }

    /// Cuts this many connections at their next commit.
    pub fn cut(&self, when: Cut, connections: usize) {
        let cuts = match when {
            Cut::Before => &self.faults.cuts_before,
            Cut::After => &self.faults.cuts_after,
        };
        cuts.store(connections, Ordering::Relaxed);
    }

    /// Number of connections that were cut at a commit.
    pub fn cuts(&self) -> usize {
        self.faults.cut.load(Ordering::Relaxed)
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.cut(Cut::Before, 0);
        self.cut(Cut::After, 0);
        self.delay(Duration::ZERO);
        self.refuse(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, server: u16, faults: Arc<Faults>, mut is_open: watch::Receiver<bool>) {
    let address = listener.local_addr().expect("a listener has an address");
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        if !*is_open.borrow_and_update() {
            listener = None;
            connections.abort_all();
        } else if listener.is_none() {
            listener = Some(listen_again(address).await);
        }
        tokio::select! {
            changed = is_open.changed() => if changed.is_err() { return },
            accepted = accept(listener.as_ref()) => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(connect(client, server, Arc::clone(&faults)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// Binds the port again. The previous listener may not have released it yet.
async fn listen_again(address: SocketAddr) -> TcpListener {
    loop {
        if let Ok(listener) = TcpListener::bind(address).await {
            return listener;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn connect(client: TcpStream, server: u16, faults: Arc<Faults>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    // An error means that one side has closed; dropping both sockets closes the other.
    let _ = pass(client, server, &faults).await;
}

async fn pass(mut client: TcpStream, mut server: TcpStream, faults: &Faults) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut messages = Messages::default();
    let (mut asked, mut answered) = (vec![0; BUFFER], vec![0; BUFFER]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                let is_commit = messages.handle(bytes);
                let delay_ms = faults.delay_ms.load(Ordering::Relaxed);
                if delay_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
                }
                if is_commit && take(&faults.cuts_before) {
                    faults.cut.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                server.write_all(bytes).await?;
                if is_commit && take(&faults.cuts_after) {
                    faults.cut.fetch_add(1, Ordering::Relaxed);
                    drop(client);
                    // Once the server responds, it has received the whole request.
                    let _ = tokio::time::timeout(ANSWER_PATIENCE, server.read(&mut answered)).await;
                    return Ok(());
                }
            }
            read = server.read(&mut answered) => {
                let bytes = &answered[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                client.write_all(bytes).await?;
            }
        }
    }
}

fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Splits the bytes of a client into messages.
#[derive(Debug, Default)]
struct Messages {
    pending: Vec<u8>,
    has_started: bool,
    /// The names of prepared statements that commit a batch.
    commits: BTreeSet<Vec<u8>>,
}

impl Messages {
    /// Returns whether these bytes complete the request of a commit.
    fn handle(&mut self, bytes: &[u8]) -> bool {
        self.pending.extend_from_slice(bytes);
        let mut is_commit = false;
        while let Some(message) = self.next() {
            let mut parts = message.get(5..).unwrap_or_default().split(|byte| *byte == 0);
            let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let is_about_commit =
                COMMITS.iter().any(|name| second.windows(name.len()).any(|window| window == *name));
            match message.first() {
                // Parse: name of the statement, text.
                Some(b'P') if self.has_started && is_about_commit => {
                    self.commits.insert(first.to_vec());
                }
                // Bind: name of the portal, name of the statement.
                Some(b'B') if self.has_started => is_commit |= self.commits.contains(second),
                _ => {}
            }
        }
        is_commit
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let head = if self.has_started { 1 } else { 0 };
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes).ok();
        let length = number(self.pending.get(head..head + 4)?)?;
        let length = head + usize::try_from(length).ok()?;
        if self.pending.len() < length.max(head + 4) {
            return None;
        }
        if !self.has_started {
            self.has_started = !BEFORE_START.contains(&number(self.pending.get(4..8)?)?);
            self.pending.drain(..length);
            return Some(Vec::new());
        }
        Some(self.pending.drain(..length).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    #[test]
    fn a_commit_is_found_however_its_bytes_arrive() {
        let mut bytes = [&8_u32.to_be_bytes()[..], &BEFORE_START[0].to_be_bytes()].concat();
        bytes.extend([&9_u32.to_be_bytes()[..], &196_608_u32.to_be_bytes(), &[0]].concat());
        bytes.extend(message(b'P', b"s1\0SELECT 1\0\0\0"));
        bytes.extend(message(b'P', b"s2\0SELECT * FROM \"s\".commit_batch($1)\0\0\0"));
        bytes.extend(message(b'B', b"\0s1\0\0\0"));
        let (mut whole, mut slow) = (Messages::default(), Messages::default());
        assert!(!whole.handle(&bytes) && !bytes.chunks(3).any(|chunk| slow.handle(chunk)));
        let commit = message(b'B', b"\0s2\0\0\0");
        assert!(whole.handle(&commit));
        assert!(!slow.handle(&commit[..7]) && slow.handle(&commit[7..]));
    }
}

//! Live changes over one connection. The cursor of an instance is its place in the history, so that a reader misses no turn
//! and gets none twice, however often it comes back and wherever.

mod instance;
mod place;
mod snapshots;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use perennial::{Client, ErrorCode};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use instance::InstanceTopic;
use place::Places;
use snapshots::{ListTopic, Snapshots};

use crate::answer::{self, Payloads};
use crate::ask::Ask;
use crate::listing::Selection;
use crate::meters::OpenStream;
use crate::problem::Problem;
use crate::server::Server;

/// How many instances and lists one connection follows.
const MAX_INSTANCES: usize = 20;
const MAX_LISTS: usize = 5;
/// How long to wait for a free stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// A comment after this much silence keeps proxies from closing the connection.
const SILENCE: Duration = Duration::from_secs(15);
/// A reader that takes nothing for this long is cut off, and comes back.
const STALLED: Duration = Duration::from_secs(30);
/// How many messages wait for a slow reader; the rest waits in the store.
const BUFFERED: usize = 2;
/// Changes that follow each other faster than this are read together.
const GATHERED: Duration = Duration::from_millis(20);
/// How often to look if no hint comes: beside the owner, hints tell of messages, and not of every turn.
const LOOK_IN_RUNTIME: Duration = Duration::from_secs(1);
const LOOK_BESIDE: Duration = Duration::from_millis(150);

/// Opens the stream that a request asks for.
pub(crate) async fn open(ask: &Ask) -> Result<Response<Body>, Problem> {
    let ids: Vec<String> = ask.query.all("instance").map(str::to_owned).collect();
    let lists: Vec<&str> = ask.query.all("list").collect();
    if ids.len() > MAX_INSTANCES || lists.len() > MAX_LISTS {
        let detail = format!("a stream follows at most {MAX_INSTANCES} instances and {MAX_LISTS} lists");
        return Err(Problem::bad_request(detail));
    }
    let client = ask.server.client.clone();
    let from = ask.headers.get("last-event-id").and_then(|id| id.to_str().ok()).or(ask.query.text("from"));
    let places = match from {
        None | Some("") => Places::beginning(ids.len()),
        Some("now") => Places::now(&client, &ids).await?,
        Some(from) => Places::decode(&ids, from)?,
    };
    let mut topics = Vec::new();
    for (id, place) in ids.iter().zip(places.of_instances()) {
        topics.push(InstanceTopic::new(id, place));
    }
    let mut selections = Vec::new();
    for (number, list) in lists.into_iter().enumerate() {
        selections.push(ListTopic::new(number, Selection::parse(&client, list).await?));
    }
    let stats = ask.query.flag("stats") == Some(true);
    let operations = ask.query.flag("operations") == Some(true);
    if topics.is_empty() && selections.is_empty() && !stats && !operations {
        return Err(Problem::bad_request("name a topic: `instance`, `list`, `stats` or `operations`"));
    }
    let streams = Arc::clone(&ask.server.streams);
    let permit = match tokio::time::timeout(PATIENCE, streams.acquire_owned()).await {
        Ok(Ok(permit)) => permit,
        _ => return Err(Problem::new(ErrorCode::Busy, "too many streams are open")),
    };
    let (sender, receiver) = mpsc::channel(BUFFERED);
    let writer = Writer { sender, payloads: ask.payloads(), last: Instant::now() };
    let follower = Follower {
        server: Arc::clone(&ask.server),
        client,
        ids,
        topics,
        snapshots: Snapshots::new(selections, stats, operations),
        writer,
        _permit: permit,
        _open: ask.server.meters.stream_opened(),
    };
    tokio::spawn(follower.run());
    let body = Body::from_stream(stream::unfold(receiver, |mut receiver| async {
        let message: Bytes = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(message), receiver))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Why a stream ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The reader left, or takes nothing.
    Reader,
    /// Something failed; the reader comes back and may have more luck.
    Failed(Problem),
}

impl<T: Into<Problem>> From<T> for End {
    fn from(problem: T) -> End {
        End::Failed(problem.into())
    }
}

/// Follows the topics of one connection.
struct Follower {
    server: Arc<Server>,
    client: Client,
    ids: Vec<String>,
    topics: Vec<InstanceTopic>,
    snapshots: Snapshots,
    writer: Writer,
    _permit: OwnedSemaphorePermit,
    _open: OpenStream,
}

impl Follower {
    async fn run(mut self) {
        let stop = self.server.stop().clone();
        let ended = tokio::select! {
            ended = self.follow() => ended,
            () = stop.stopped() => Err(End::Reader),
        };
        let last = match ended {
            Err(End::Failed(problem)) => problem.text(),
            _ => "the server is stopping".to_owned(),
        };
        let words = Ended { reason: &last, retry_ms: retry_ms() };
        // The reader may be gone.
        let _ = self.writer.message("end", None, &words).await;
    }

    async fn follow(&mut self) -> Result<(), End> {
        self.writer.send(format!("retry: {}\n\n", retry_ms())).await?;
        let pause = if self.client.is_in_runtime() { LOOK_IN_RUNTIME } else { LOOK_BESIDE };
        loop {
            // Created before the reads, so that a change after them is not missed.
            let changed = self.client.changed(pause);
            let began = Instant::now();
            if self.client.is_stopping() {
                return Err(Problem::new(ErrorCode::Stopped, "the runtime has stopped").into());
            }
            self.look().await?;
            let silence = self.writer.last + SILENCE;
            if Instant::now() >= silence {
                self.writer.send(":\n\n".to_owned()).await?;
            }
            tokio::select! {
                _ = changed => {}
                () = self.writer.sender.closed() => return Err(End::Reader),
            }
            tokio::time::sleep_until(began + GATHERED).await;
        }
    }

    /// Sends everything that is new.
    async fn look(&mut self) -> Result<(), End> {
        for place in 0..self.topics.len() {
            while let Some(news) = self.topics[place].next(&self.client).await? {
                let cursor = Places::encode(&self.ids, self.topics.iter().map(InstanceTopic::place));
                let id = self.topics[place].id().to_owned();
                news.send(&mut self.writer, &id, &cursor).await?;
            }
        }
        let cursor = Places::encode(&self.ids, self.topics.iter().map(InstanceTopic::place));
        self.snapshots.look(&self.server, &self.client, &mut self.writer, &cursor).await
    }
}

#[derive(Serialize)]
struct Ended<'a> {
    reason: &'a str,
    retry_ms: u64,
}

/// When a reader comes back: in about a second, and not all readers at once.
fn retry_ms() -> u64 {
    let (_, jitter) = uuid::Uuid::new_v4().as_u64_pair();
    1_000 + jitter % 500
}

/// Writes messages for one reader.
pub(crate) struct Writer {
    sender: mpsc::Sender<Bytes>,
    payloads: Payloads<'static>,
    last: Instant,
}

impl Writer {
    pub(crate) fn hides_payloads(&self) -> bool {
        self.payloads == Payloads::Hidden
    }

    /// Sends a value as a message.
    pub(crate) async fn message(
        &mut self,
        kind: &str,
        cursor: Option<&str>,
        value: &impl Serialize,
    ) -> Result<(), End> {
        let data = answer::json(value, self.payloads)?;
        self.raw(kind, cursor, &data).await
    }

    /// Sends JSON without line breaks as a message.
    pub(crate) async fn raw(&mut self, kind: &str, cursor: Option<&str>, data: &[u8]) -> Result<(), End> {
        let id = cursor.map_or_else(String::new, |cursor| format!("id: {cursor}\n"));
        let mut message = format!("event: {kind}\n{id}data: ").into_bytes();
        // Payloads are recorded as they were written, possibly over several lines.
        message.extend(data.iter().map(|byte| if *byte == b'\n' || *byte == b'\r' { b' ' } else { *byte }));
        message.extend_from_slice(b"\n\n");
        self.bytes(message.into()).await
    }

    async fn send(&mut self, text: String) -> Result<(), End> {
        self.bytes(text.into()).await
    }

    async fn bytes(&mut self, message: Bytes) -> Result<(), End> {
        match tokio::time::timeout(STALLED, self.sender.send(message)).await {
            Ok(Ok(())) => {
                self.last = Instant::now();
                Ok(())
            }
            _ => Err(End::Reader),
        }
    }
}

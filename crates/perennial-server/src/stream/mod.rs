//! Live changes over one connection. The cursor of an instance is its place in the history, so that a reader misses no turn
//! and gets none twice, however often it comes back and wherever.

mod hub;
mod instance;
mod place;
mod snapshots;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use perennial::{Client, ErrorCode};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, watch};

use hub::{Latest, Topic, Topics};
use instance::{InstanceTopic, Tip, TipSource};
use place::Places;
use snapshots::{ListPage, ListSource, ListTopic, OperationsSource, StatsSource};
pub(crate) use writer::Writer;

use crate::ask::Ask;
use crate::listed;
use crate::listing::Selection;
use crate::meters::OpenStream;
use crate::operations::Progress;
use crate::problem::Problem;
use crate::routes::StatsView;
use crate::server::Server;

/// How many instances and lists one connection follows.
const MAX_INSTANCES: usize = 20;
const MAX_LISTS: usize = 5;
/// How long to wait for a free stream.
const PATIENCE: Duration = Duration::from_secs(5);
/// Turns that follow each other faster than this are read together.
const GATHERED: Duration = Duration::from_millis(20);
/// How many messages of an instance are sent before others have their turn.
const TURN: usize = 50;

/// What streams follow, each read once for all of them.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    instances: Topics<Tip>,
    lists: Topics<ListPage>,
    stats: Topics<StatsView>,
    operations: Topics<Vec<Progress>>,
}

/// Something that a stream follows.
struct Followed<T> {
    latest: watch::Receiver<Latest<T>>,
    /// Reads as long as somebody holds it.
    _topic: Arc<Topic<T>>,
}

impl<T> Followed<T> {
    fn new(topic: Arc<Topic<T>>) -> Followed<T> {
        Followed { latest: topic.latest(), _topic: topic }
    }

    /// The newest value, if it is new.
    fn news(&mut self) -> Result<Option<Arc<T>>, End> {
        // A task that has ended may have said why.
        if !self.latest.has_changed().unwrap_or(true) {
            return Ok(None);
        }
        match self.latest.borrow_and_update().clone() {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(problem)) => Err(End::Unreadable(problem)),
        }
    }
}

/// Opens the stream that a request asks for.
pub(crate) async fn open(ask: &Ask) -> Result<Response<Body>, Problem> {
    let ids: Vec<String> = ask.query.all("instance").map(str::to_owned).collect();
    let lists: Vec<&str> = ask.query.all("list").collect();
    if ids.len() > MAX_INSTANCES || lists.len() > MAX_LISTS {
        let detail = format!("a stream follows at most {MAX_INSTANCES} instances and {MAX_LISTS} lists");
        return Err(Problem::bad_request(detail));
    }
    let (server, client) = (&ask.server, ask.server.client.clone());
    let stats = ask.query.flag("stats") == Some(true);
    let operations = ask.query.flag("operations") == Some(true);
    if ids.is_empty() && lists.is_empty() && !stats && !operations {
        return Err(Problem::bad_request("name a topic: `instance`, `list`, `stats` or `operations`"));
    }
    let places = places(ask, &client, &ids).await?;
    let streams = Arc::clone(&server.streams);
    let permit = match tokio::time::timeout(PATIENCE, streams.acquire_owned()).await {
        Ok(Ok(permit)) => permit,
        _ => return Err(Problem::new(ErrorCode::Busy, "too many streams are open")),
    };
    let mut instances = Vec::new();
    for (id, place) in ids.iter().zip(places.of_instances()) {
        let topic = server.hub.instances.follow(id, &client, GATHERED, || TipSource::new(&client, id));
        instances.push((InstanceTopic::new(id, place), Followed::new(topic), None));
    }
    let gathered = snapshots::GATHERED;
    let mut followed_lists = Vec::new();
    for (number, list) in lists.into_iter().enumerate() {
        let (filter, include) = listed::include_of(list)?;
        // A filter that is wrong is refused now, and not in the stream.
        Selection::parse(&client, &filter).await?;
        let source = || ListSource::new(&client, &filter, include, &server.outcomes);
        let topic = server.hub.lists.follow(list, &client, gathered, source);
        followed_lists.push((ListTopic::new(number), Followed::new(topic)));
    }
    let stats = stats.then(|| {
        let source = || StatsSource { client: client.clone(), known: Vec::new() };
        Followed::new(server.hub.stats.follow("", &client, gathered, source))
    });
    let operations = operations.then(|| {
        let source = || OperationsSource { operations: Arc::clone(&server.operations), known: Vec::new() };
        Followed::new(server.hub.operations.follow("", &client, gathered, source))
    });
    let (writer, body) = Writer::new(ask.payloads(), server.options.times.stalled);
    let follower = Follower {
        server: Arc::clone(server),
        client,
        ids,
        instances,
        lists: followed_lists,
        stats,
        operations,
        writer,
        _permit: permit,
        _open: ask.server.meters.stream_opened(),
    };
    tokio::spawn(follower.run());
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Where the stream of each instance begins.
async fn places(ask: &Ask, client: &Client, ids: &[String]) -> Result<Places, Problem> {
    let from = ask.headers.get("last-event-id").and_then(|id| id.to_str().ok()).or(ask.query.text("from"));
    let places = match from {
        None | Some("") => Places::beginning(ids.len()),
        Some("now") => return Places::now(client, ids).await,
        Some(from) => {
            let (places, known) = Places::decode(ids, from)?;
            match ask.query.text("others") {
                Some("now") => return places.or_now(client, ids, &known).await,
                _ => places,
            }
        }
    };
    Ok(places)
}

/// Why a stream ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The reader left, or takes nothing.
    Reader,
    /// The server stops.
    Stopping,
    /// Something failed; the reader comes back and may have more luck.
    Failed(Problem),
    Unreadable(String),
}

impl<T: Into<Problem>> From<T> for End {
    fn from(problem: T) -> End {
        End::Failed(problem.into())
    }
}

/// An instance of a stream, and its newest state if not all of it was sent.
type FollowedInstance = (InstanceTopic, Followed<Tip>, Option<Arc<Tip>>);

/// Follows the topics of one connection.
struct Follower {
    server: Arc<Server>,
    client: Client,
    ids: Vec<String>,
    instances: Vec<FollowedInstance>,
    lists: Vec<(ListTopic, Followed<ListPage>)>,
    stats: Option<Followed<StatsView>>,
    operations: Option<Followed<Vec<Progress>>>,
    writer: Writer,
    _permit: OwnedSemaphorePermit,
    _open: OpenStream,
}

impl Follower {
    async fn run(mut self) {
        let stop = self.server.stop().clone();
        let ended = tokio::select! {
            ended = self.follow() => ended,
            () = stop.stopped() => Err(End::Stopping),
        };
        let last = match ended {
            // Nobody would read it.
            Err(End::Reader) => return,
            Err(End::Failed(problem)) => problem.text(),
            Err(End::Unreadable(problem)) => problem,
            Ok(()) | Err(End::Stopping) => "the server is stopping".to_owned(),
        };
        let words = Ended { reason: &last, retry_ms: retry_ms() };
        // The reader may be gone.
        let _ = self.writer.message("end", None, &words).await;
    }

    async fn follow(&mut self) -> Result<(), End> {
        self.writer.send(format!("retry: {}\n\n", retry_ms())).await?;
        loop {
            while self.look().await? {}
            let silence = self.writer.last() + self.server.options.times.silence;
            tokio::select! {
                () = changed(&mut self.instances, &mut self.lists, &mut self.stats, &mut self.operations) => {}
                () = self.writer.closed() => return Err(End::Reader),
                () = tokio::time::sleep_until(silence) => self.writer.send(":\n\n".to_owned()).await?,
            }
        }
    }

    /// Sends something of everything that is new. Returns whether there is more.
    async fn look(&mut self) -> Result<bool, End> {
        let mut has_more = false;
        for place in 0..self.instances.len() {
            has_more |= self.look_at_instance(place).await?;
        }
        let cursor = self.cursor();
        for (list, followed) in &mut self.lists {
            if let Some(page) = followed.news()? {
                list.send(&page, &mut self.writer, &cursor).await?;
            }
        }
        if let Some(stats) = self.stats.as_mut().map(Followed::news).transpose()?.flatten() {
            self.writer.message("stats", Some(&cursor), &*stats).await?;
        }
        if let Some(operations) = self.operations.as_mut().map(Followed::news).transpose()?.flatten() {
            self.writer.message("operations", Some(&cursor), &*operations).await?;
        }
        Ok(has_more)
    }

    async fn look_at_instance(&mut self, place: usize) -> Result<bool, End> {
        let (_, followed, tip) = &mut self.instances[place];
        if let Some(newest) = followed.news()? {
            *tip = Some(newest);
        }
        let Some(tip) = tip.clone() else { return Ok(false) };
        for _ in 0..TURN {
            let Some(news) = self.instances[place].0.next(&self.client, &tip).await? else {
                self.instances[place].2 = None;
                return Ok(false);
            };
            let (id, cursor) = (self.instances[place].0.id().to_owned(), self.cursor());
            news.send(&mut self.writer, &id, &cursor).await?;
        }
        Ok(true)
    }

    fn cursor(&self) -> String {
        Places::encode(&self.ids, self.instances.iter().map(|(topic, ..)| topic.place()))
    }
}

/// Waits until something that is followed may be new.
async fn changed(
    instances: &mut [FollowedInstance],
    lists: &mut [(ListTopic, Followed<ListPage>)],
    stats: &mut Option<Followed<StatsView>>,
    operations: &mut Option<Followed<Vec<Progress>>>,
) {
    async fn of<T>(followed: &mut Followed<T>) {
        match followed.latest.changed().await {
            // Seen only when it is sent.
            Ok(()) => followed.latest.mark_changed(),
            // Its task has ended, and said why.
            Err(_) => std::future::pending().await,
        }
    }
    let instances = instances.iter_mut().map(|(_, followed, _)| Box::pin(of(followed)) as Waiting<'_>);
    let lists = lists.iter_mut().map(|(_, followed)| Box::pin(of(followed)) as Waiting<'_>);
    let stats = stats.iter_mut().map(|followed| Box::pin(of(followed)) as Waiting<'_>);
    let operations = operations.iter_mut().map(|followed| Box::pin(of(followed)) as Waiting<'_>);
    futures_util::future::select_all(instances.chain(lists).chain(stats).chain(operations)).await;
}

type Waiting<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

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

//! Lists, counts and operations of a stream: whole values, gathered, of which a slow reader gets the newest.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use perennial::{Client, InstanceKey};
use serde::Serialize;

use super::hub::Source;
use super::{End, Writer};
use crate::answer::{self, Payloads};
use crate::listed::{Include, Listed};
use crate::listing::Selection;
use crate::operations::{Operations, Progress};
use crate::problem::Problem;
use crate::routes::StatsView;

/// Changes of lists and counts are gathered for this long.
pub(crate) const GATHERED: Duration = Duration::from_millis(500);
/// How many rows of a list are followed.
const ROWS: usize = 100;

/// The first rows of a list.
#[derive(Debug)]
pub(crate) struct ListPage {
    rows: Vec<FollowedRow>,
    more: bool,
}

/// A row, and what recognises it.
#[derive(Debug)]
struct FollowedRow {
    hash: u64,
    row: Listed,
    /// It as JSON, whole and with hidden payloads: written once for all readers that ask for it.
    written: [OnceLock<Vec<u8>>; 2],
}

impl FollowedRow {
    fn json(&self, payloads: Payloads<'static>) -> Result<&[u8], Problem> {
        let hides = payloads == Payloads::Hidden;
        let written = &self.written[usize::from(hides)];
        if let Some(json) = written.get() {
            return Ok(json);
        }
        let json = answer::json(&self.row.clone().shown(hides), payloads)?;
        Ok(written.get_or_init(|| json))
    }
}

/// Reads a list for all streams that follow it.
pub(crate) struct ListSource {
    pub(crate) client: Client,
    pub(crate) filter: String,
    pub(crate) include: Include,
    pub(crate) outcomes: Arc<crate::listed::Outcomes>,
    known: Vec<(InstanceKey, u64)>,
    is_read: bool,
}

impl ListSource {
    pub(crate) fn new(
        client: &Client,
        filter: &str,
        include: Include,
        outcomes: &Arc<crate::listed::Outcomes>,
    ) -> ListSource {
        let (client, filter, outcomes) = (client.clone(), filter.to_owned(), Arc::clone(outcomes));
        ListSource { client, filter, include, outcomes, known: Vec::new(), is_read: false }
    }
}

impl Source for ListSource {
    type Value = ListPage;

    async fn read(&mut self) -> Result<Option<ListPage>, Problem> {
        // Parsed for each read: ages, and who retries, are as of now.
        let selection = Selection::parse(&self.client, &self.filter).await?;
        let page = selection.page(&self.client, None, ROWS).await?;
        let more = page.next.is_some();
        let rows = Listed::of(&self.client, page.rows, self.include, &self.outcomes).await?;
        let followed =
            |row: Listed| FollowedRow { hash: fingerprint(&row), row, written: Default::default() };
        let rows: Vec<FollowedRow> = rows.into_iter().map(followed).collect();
        let known = rows.iter().map(|row| (row.row.instance.key, row.hash)).collect();
        let is_known = self.is_read && self.known == known;
        (self.known, self.is_read) = (known, true);
        Ok((!is_known).then_some(ListPage { rows, more }))
    }
}

/// Recognises a row. Texts of waits are left out: they contain ages, which change all the time.
fn fingerprint(row: &Listed) -> u64 {
    let mut row = row.clone();
    row.waits_for.iter_mut().flatten().for_each(Listed::forget_text);
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(&row).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// Reads counts for all streams that follow them.
pub(crate) struct StatsSource {
    pub(crate) client: Client,
    pub(crate) known: Vec<u8>,
}

impl Source for StatsSource {
    type Value = StatsView;

    async fn read(&mut self) -> Result<Option<StatsView>, Problem> {
        let stats = StatsView::read(&self.client).await?;
        Ok(is_news(&mut self.known, &stats).then_some(stats))
    }
}

pub(crate) struct OperationsSource {
    pub(crate) operations: Arc<Operations>,
    pub(crate) known: Vec<u8>,
}

impl Source for OperationsSource {
    type Value = Vec<Progress>;

    async fn read(&mut self) -> Result<Option<Vec<Progress>>, Problem> {
        let operations = self.operations.all();
        Ok(is_news(&mut self.known, &operations).then_some(operations))
    }
}

fn is_news(known: &mut Vec<u8>, value: &impl Serialize) -> bool {
    let data = serde_json::to_vec(value).unwrap_or_default();
    let is_news = data != *known;
    *known = data;
    is_news
}

/// What a reader has of a list.
pub(crate) struct ListTopic {
    number: usize,
    /// The rows that the reader has.
    sent: Option<BTreeMap<InstanceKey, u64>>,
}

impl ListTopic {
    pub(crate) fn new(number: usize) -> ListTopic {
        ListTopic { number, sent: None }
    }

    /// Sends what is new in a list.
    pub(crate) async fn send(
        &mut self,
        page: &ListPage,
        writer: &mut Writer,
        cursor: &str,
    ) -> Result<(), End> {
        let (list, more, payloads) = (self.number, page.more, writer.payloads());
        let is_sent = |row: &FollowedRow| {
            self.sent.as_ref().is_some_and(|sent| sent.get(&row.row.instance.key) == Some(&row.hash))
        };
        let mut news = Vec::new();
        for row in page.rows.iter().filter(|row| !is_sent(row)) {
            if !news.is_empty() {
                news.push(b',');
            }
            news.extend_from_slice(row.json(payloads)?);
        }
        let keys: BTreeMap<InstanceKey, u64> =
            page.rows.iter().map(|row| (row.row.instance.key, row.hash)).collect();
        let begin = |member: &str| format!(r#"{{"list":{list},"{member}":["#).into_bytes();
        match &self.sent {
            None => {
                let end = format!(r#"],"more":{more}}}"#).into_bytes();
                writer.raw("list", Some(cursor), &[begin("rows"), news, end].concat()).await?;
            }
            Some(sent) => {
                let left = sent.keys().filter(|key| !keys.contains_key(key));
                let left: Vec<String> = left.map(|key| format!("\"{key}\"")).collect();
                if !news.is_empty() || !left.is_empty() {
                    let end = format!(r#"],"left":[{}],"more":{more}}}"#, left.join(",")).into_bytes();
                    writer.raw("changes", Some(cursor), &[begin("changed"), news, end].concat()).await?;
                }
            }
        }
        self.sent = Some(keys);
        Ok(())
    }
}

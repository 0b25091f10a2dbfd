//! Lists, counts and operations of a stream: whole values, gathered, of which a slow reader gets the newest.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial::{Client, InstanceKey, InstanceView};
use serde::Serialize;
use tokio::time::Instant;

use super::{End, Writer};
use crate::listing::Selection;
use crate::redact;
use crate::routes::StatsView;
use crate::server::Server;

/// Changes of lists and counts are gathered for this long.
const GATHERED: Duration = Duration::from_millis(500);
/// How many rows of a list are followed.
const ROWS: usize = 100;

pub(crate) struct ListTopic {
    number: usize,
    selection: Selection,
    /// The rows that the reader has.
    sent: Option<BTreeMap<InstanceKey, InstanceView>>,
}

impl ListTopic {
    pub(crate) fn new(number: usize, selection: Selection) -> ListTopic {
        ListTopic { number, selection, sent: None }
    }
}

pub(crate) struct Snapshots {
    lists: Vec<ListTopic>,
    /// The last value that was sent, of those that are followed.
    stats: Option<Vec<u8>>,
    operations: Option<Vec<u8>>,
    due: Instant,
}

impl Snapshots {
    pub(crate) fn new(lists: Vec<ListTopic>, stats: bool, operations: bool) -> Snapshots {
        let (stats, operations) = (stats.then(Vec::new), operations.then(Vec::new));
        Snapshots { lists, stats, operations, due: Instant::now() }
    }

    /// Sends what has changed, if enough time has passed.
    pub(crate) async fn look(
        &mut self,
        server: &Server,
        client: &Client,
        writer: &mut Writer,
        cursor: &str,
    ) -> Result<(), End> {
        if Instant::now() < self.due {
            return Ok(());
        }
        for list in &mut self.lists {
            list.look(client, writer, cursor).await?;
        }
        if let Some(sent) = &mut self.stats {
            let stats = StatsView::read(client).await?;
            send_changed(sent, writer, "stats", cursor, &stats).await?;
        }
        if let Some(sent) = &mut self.operations {
            let operations = server.operations.all();
            send_changed(sent, writer, "operations", cursor, &operations).await?;
        }
        self.due = Instant::now() + GATHERED;
        Ok(())
    }
}

async fn send_changed(
    sent: &mut Vec<u8>,
    writer: &mut Writer,
    kind: &str,
    cursor: &str,
    value: &impl Serialize,
) -> Result<(), End> {
    let data = serde_json::to_vec(value).unwrap_or_default();
    if data != *sent {
        writer.message(kind, Some(cursor), value).await?;
        *sent = data;
    }
    Ok(())
}

impl ListTopic {
    async fn look(&mut self, client: &Client, writer: &mut Writer, cursor: &str) -> Result<(), End> {
        #[derive(Serialize)]
        struct Snapshot<'a> {
            list: usize,
            rows: &'a [InstanceView],
            more: bool,
        }
        #[derive(Serialize)]
        struct Changes<'a> {
            list: usize,
            changed: Vec<&'a InstanceView>,
            left: Vec<InstanceKey>,
            more: bool,
        }
        let mut page = self.selection.page(client, None, ROWS).await?;
        if writer.hides_payloads() {
            page.rows.iter_mut().for_each(redact::instance);
        }
        let (list, more) = (self.number, page.next.is_some());
        match &self.sent {
            None => writer.message("list", Some(cursor), &Snapshot { list, rows: &page.rows, more }).await?,
            Some(sent) => {
                let changed: Vec<_> =
                    page.rows.iter().filter(|row| sent.get(&row.key) != Some(row)).collect();
                let left = sent.keys().filter(|key| !page.rows.iter().any(|row| row.key == **key));
                let changes = Changes { list, changed, left: left.copied().collect(), more };
                if !changes.changed.is_empty() || !changes.left.is_empty() {
                    writer.message("changes", Some(cursor), &changes).await?;
                }
            }
        }
        self.sent = Some(page.rows.into_iter().map(|row| (row.key, row)).collect());
        Ok(())
    }
}

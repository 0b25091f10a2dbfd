//! Writes messages for one reader. What waits for a slow reader is limited in bytes; the rest waits in the store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::End;
use crate::answer::{self, Payloads};

/// How many bytes wait for a reader. With a message that is being written and turns that were read ahead, a reader costs
/// less than 256 KiB.
pub(crate) const WAITING_BYTES: usize = 64 << 10;

/// A part of a message, which has its place in the queue until it is taken.
struct Piece {
    bytes: Bytes,
    _place: OwnedSemaphorePermit,
}

pub(crate) struct Writer {
    sender: mpsc::UnboundedSender<Piece>,
    room: Arc<Semaphore>,
    payloads: Payloads<'static>,
    last: Instant,
    /// A reader that takes nothing for this long is cut off, and comes back.
    patience: Duration,
}

impl Writer {
    /// A writer, and the body that its messages become.
    pub(crate) fn new(payloads: Payloads<'static>, patience: Duration) -> (Writer, Body) {
        let (sender, receiver) = mpsc::unbounded_channel::<Piece>();
        let room = Arc::new(Semaphore::new(WAITING_BYTES));
        let body = Body::from_stream(stream::unfold(receiver, |mut receiver| async {
            let piece = receiver.recv().await?;
            Some((Ok::<_, std::io::Error>(piece.bytes), receiver))
        }));
        (Writer { sender, room, payloads, last: Instant::now(), patience }, body)
    }

    pub(crate) fn hides_payloads(&self) -> bool {
        self.payloads == Payloads::Hidden
    }

    /// How payloads are shown to the reader.
    pub(crate) fn payloads(&self) -> Payloads<'static> {
        self.payloads
    }

    /// When something was last written.
    pub(crate) fn last(&self) -> Instant {
        self.last
    }

    /// Waits until the reader has left.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
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

    /// Sends JSON as a message.
    pub(crate) async fn raw(&mut self, kind: &str, cursor: Option<&str>, data: &[u8]) -> Result<(), End> {
        let id = cursor.map_or_else(String::new, |cursor| format!("id: {cursor}\n"));
        let mut message = format!("event: {kind}\n{id}data: ").into_bytes();
        let begin = message.len();
        message.extend_from_slice(data);
        // Payloads are recorded as they were written, possibly over several lines.
        for byte in &mut message[begin..] {
            *byte = if matches!(*byte, b'\n' | b'\r') { b' ' } else { *byte };
        }
        message.extend_from_slice(b"\n\n");
        self.bytes(message.into()).await
    }

    pub(crate) async fn send(&mut self, text: String) -> Result<(), End> {
        self.bytes(text.into()).await
    }

    async fn bytes(&mut self, mut message: Bytes) -> Result<(), End> {
        while !message.is_empty() {
            let bytes = message.split_to(message.len().min(WAITING_BYTES / 4));
            let wanted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(wanted);
            let Ok(Ok(place)) = tokio::time::timeout(self.patience, room).await else {
                return Err(End::Reader);
            };
            if self.sender.send(Piece { bytes, _place: place }).is_err() {
                return Err(End::Reader);
            }
        }
        self.last = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn h32_a_slow_reader_costs_a_bounded_number_of_bytes_and_is_cut_off() {
        let (mut writer, body) = Writer::new(Payloads::Whole, Duration::from_millis(50));
        // One message is larger than all that may wait.
        let large = vec![b'x'; 1 << 20];
        let ended = writer.raw("turn", None, &large).await;
        assert!(matches!(ended, Err(End::Reader)), "{ended:?}");
        drop(writer);
        let mut waiting = 0;
        let mut body = body.into_data_stream();
        while let Some(Ok(piece)) = futures_util::StreamExt::next(&mut body).await {
            waiting += piece.len();
        }
        assert!(waiting <= WAITING_BYTES, "{waiting} bytes waited");
    }

    #[tokio::test]
    async fn h32_a_reader_that_takes_gets_every_byte() {
        let (mut writer, body) = Writer::new(Payloads::Whole, Duration::from_secs(60));
        let read = tokio::spawn(async move {
            let mut body = body.into_data_stream();
            let mut text = Vec::new();
            while let Some(Ok(piece)) = futures_util::StreamExt::next(&mut body).await {
                text.extend_from_slice(&piece);
            }
            text
        });
        let large = vec![b'x'; 1 << 20];
        writer.raw("turn", Some("c"), &large).await.unwrap();
        drop(writer);
        let text = read.await.unwrap();
        assert!(text.starts_with(b"event: turn\nid: c\ndata: xxx") && text.ends_with(b"xxx\n\n"));
        assert_eq!(text.len(), large.len() + "event: turn\nid: c\ndata: \n\n".len());
    }
}

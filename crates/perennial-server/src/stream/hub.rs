//! Reads that streams share: one task for each thing that is followed, however many streams follow it. It reads when the
//! store hints at a change, and ends with its last follower.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use perennial::{Client, ErrorCode};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::problem::Problem;

/// How often to look if no hint comes. Beside the owner, hints tell of messages, and not of every turn.
const LOOK_IN_RUNTIME: Duration = Duration::from_secs(1);
const LOOK_BESIDE: Duration = Duration::from_millis(150);

/// The newest value of something that is followed, or why it cannot be read.
pub(crate) type Latest<T> = Option<Result<Arc<T>, String>>;

/// One thing that streams follow.
#[derive(Debug)]
pub(crate) struct Topic<T> {
    latest: watch::Receiver<Latest<T>>,
    task: AbortHandle,
}

impl<T> Topic<T> {
    /// A receiver that has seen nothing yet.
    pub(crate) fn latest(&self) -> watch::Receiver<Latest<T>> {
        let mut latest = self.latest.clone();
        latest.mark_changed();
        latest
    }
}

impl<T> Drop for Topic<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The things of one kind that are followed, by what names them.
#[derive(Debug)]
pub(crate) struct Topics<T>(Mutex<BTreeMap<String, Weak<Topic<T>>>>);

impl<T> Default for Topics<T> {
    fn default() -> Topics<T> {
        Topics(Mutex::default())
    }
}

/// Reads the newest value of something. `None` if it has not changed.
pub(crate) trait Source: Send + 'static {
    type Value: Send + Sync + 'static;

    fn read(&mut self) -> impl Future<Output = Result<Option<Self::Value>, Problem>> + Send;
}

impl<T: Send + Sync + 'static> Topics<T> {
    /// Follows something, together with others that do. `source` is used if nobody does yet. Changes within `gathered`
    /// are read together.
    pub(crate) fn follow<S: Source<Value = T>>(
        &self,
        name: &str,
        client: &Client,
        gathered: Duration,
        source: impl FnOnce() -> S,
    ) -> Arc<Topic<T>> {
        let mut topics = self.lock();
        topics.retain(|_, topic| topic.strong_count() > 0);
        let known = topics.get(name).and_then(Weak::upgrade).filter(|topic| !topic.task.is_finished());
        if let Some(topic) = known {
            return topic;
        }
        let (sender, latest) = watch::channel(None);
        let task = tokio::spawn(follow(client.clone(), source(), gathered, sender)).abort_handle();
        let topic = Arc::new(Topic { latest, task });
        topics.insert(name.to_owned(), Arc::downgrade(&topic));
        topic
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Topic<T>>>> {
        self.0.lock().expect("no code panics while it holds the topics")
    }
}

/// Publishes a value whenever it changes, until it cannot be read.
async fn follow<S: Source>(
    client: Client,
    mut source: S,
    gathered: Duration,
    sender: watch::Sender<Latest<S::Value>>,
) {
    let pause = if client.is_in_runtime() { LOOK_IN_RUNTIME } else { LOOK_BESIDE };
    loop {
        // Created before the read, so that a change after it is not missed.
        let changed = client.changed(pause.max(gathered));
        let began = Instant::now();
        let read = match client.is_stopping() {
            true => Err(Problem::new(ErrorCode::Stopped, "the runtime has stopped")),
            false => source.read().await,
        };
        match read {
            Ok(None) => {}
            Ok(Some(value)) => drop(sender.send_replace(Some(Ok(Arc::new(value))))),
            Err(problem) => {
                sender.send_replace(Some(Err(problem.text())));
                return;
            }
        }
        changed.await;
        tokio::time::sleep_until(began + gathered).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counted(Arc<AtomicUsize>);

    impl Source for Counted {
        type Value = usize;

        async fn read(&mut self) -> Result<Option<usize>, Problem> {
            Ok(Some(self.0.fetch_add(1, Ordering::Relaxed)))
        }
    }

    #[tokio::test]
    async fn h30_watchers_of_the_same_thing_share_one_read() {
        let runtime = perennial::Runtime::open("memory:").start().await.unwrap();
        let (client, reads) = (runtime.client(), Arc::new(AtomicUsize::new(0)));
        let topics: Topics<usize> = Topics::default();
        let follow = |name: &str| {
            let reads = Arc::clone(&reads);
            topics.follow(name, &client, Duration::from_secs(3_600), || Counted(reads))
        };
        let watchers: Vec<_> = (0..100).map(|_| follow("a")).collect();
        for watcher in &watchers {
            let mut latest = watcher.latest();
            let value = latest.wait_for(Option::is_some).await.unwrap().clone();
            assert_eq!(*value.unwrap().unwrap(), 0);
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        drop(follow("b").latest().wait_for(Option::is_some).await.unwrap());
        // The task ends with its last follower.
        let task = watchers[0].task.clone();
        drop(watchers);
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        let again = follow("a");
        again.latest().wait_for(Option::is_some).await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 3);
        runtime.shutdown().await.unwrap();
    }
}

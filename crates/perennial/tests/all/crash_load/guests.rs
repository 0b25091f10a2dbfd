//! What the test's own process does to the load, as a guest that lives on while the owner dies and comes back. Each of
//! these is a life that begins again when it is over; what is acknowledged is written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use perennial::history::Ending;
use perennial::{Client, ClientError, Filter, OnExisting, Payload, Prune, StartOptions, Status, UpdateError};
use tokio::task::JoinSet;

use super::Load;
use super::kinds::letters;
use crate::support::number;

/// What events and updates bring to an account: each its own bit, so that the sum tells what came, and how often.
const DEPOSITS: [u64; 5] = [1, 2, 4, 8, 16];
const ADDITIONS: [u64; 3] = [32, 64, 128];
pub(crate) const ALL_AMOUNTS: u64 = 255;

/// What the guests have seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) updates: AtomicUsize,
    pub(crate) unknown: AtomicUsize,
    pub(crate) queries: AtomicUsize,
    pub(crate) pruned: AtomicUsize,
    pub(crate) replaced: AtomicUsize,
    pub(crate) ended: AtomicUsize,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[derive(Clone)]
pub(crate) struct Guests {
    client: Client,
    load: Load,
    stop: Arc<AtomicBool>,
    pub(crate) seen: Arc<Seen>,
}

impl Guests {
    pub(crate) fn new(client: Client, load: Load) -> Guests {
        Guests { client, load, stop: Arc::default(), seen: Arc::default() }
    }

    /// Begins all the lives.
    pub(crate) fn begin(&self) -> JoinSet<()> {
        let mut lives = JoinSet::new();
        macro_rules! live {
            ($($life:ident $pause:literal),*) => {$(
                let guests = self.clone();
                lives.spawn(async move {
                    for number in 0.. {
                        if guests.stop.load(Ordering::Relaxed) {
                            return;
                        }
                        guests.$life(number).await;
                        tokio::time::sleep(Duration::from_millis($pause)).await;
                    }
                });
            )*};
        }
        live!(mail 20, account 5, policies 30, delayed 20, ends 20, replaces 50, versions 30, prunes 60);
        lives
    }

    /// Lets each life come to its end.
    pub(crate) async fn finish(&self, mut lives: JoinSet<()>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(life) = lives.join_next().await {
            life.unwrap();
        }
        self.client.terminate("phoenix", "the end").await.unwrap();
    }

    async fn start(&self, name: &str, id: &str, options: StartOptions) {
        let started = self.client.start_with(name, id, number(0), options).await;
        assert!(matches!(&started, Ok(run) if run.is_new()), "{id}: {started:?}");
        self.load.note_start(id);
    }

    async fn raise(&self, id: &str, event: &str, payload: &str) {
        self.client.raise_event(id, event, payload).await.unwrap_or_else(|error| panic!("{id}: {error}"));
        self.load.note_event("guest", id, event, payload);
    }

    /// Letters without a key: each is acknowledged once.
    async fn mail(&self, life: usize) {
        let id = format!("mail-{life}");
        self.start("mail", &id, StartOptions::default().version("1.0.0")).await;
        for letter in letters() {
            self.raise(&id, "letter", &letter).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Events and updates while it continues as new; a query sees all that was acknowledged.
    async fn account(&self, life: usize) {
        let id = format!("account-{life}");
        self.start("account", &id, StartOptions::default().attribute("kind", "account")).await;
        let mut acknowledged = 0;
        let mut additions = ADDITIONS.into_iter();
        for (place, amount) in DEPOSITS.into_iter().enumerate() {
            let key = format!("deposit {amount}");
            self.client.raise_event(&id, "deposit", number(amount)).once(key).await.unwrap();
            if place % 2 == 1 {
                let amount = additions.next().expect("there are two in between");
                self.add(&id, amount).await;
                acknowledged += amount;
                self.look(&id, acknowledged).await;
            }
        }
        for amount in additions {
            // Two who want the same, with one key, are one.
            tokio::join!(self.add(&id, amount), self.add(&id, amount));
            acknowledged += amount;
        }
        let refused = self.client.update(&id, "add", number(0)).await;
        let is_honest = matches!(
            refused,
            Err(UpdateError::Refused { .. } | UpdateError::Client(ClientError::Unknown { .. }))
        );
        assert!(is_honest, "{id}: {refused:?}");
        self.look(&id, acknowledged).await;
        self.client.raise_event(&id, "deposit", number(0)).await.unwrap();
        let output = self.client.result(&id).await.unwrap();
        assert_eq!(output, number(ALL_AMOUNTS), "{id}");
        let status = self.client.status(&id).await.unwrap();
        assert_eq!(
            (status.published.as_ref(), status.attributes.get("total")),
            (Some(&output), Some(&output))
        );
        assert_eq!(status.attributes.get("kind"), Some(&Payload::from("account")));
        self.look(&id, ALL_AMOUNTS).await;
    }

    /// An update with a key, sent until somebody knows what came of it.
    async fn add(&self, id: &str, amount: u64) {
        let key = format!("addition {amount}");
        loop {
            match self.client.update(id, "add", number(amount)).once(&key).await {
                Ok(_) => break,
                // An instance that was in memory when many processes died is hydrated with care, one at a time.
                Err(UpdateError::Client(ClientError::Unknown { .. } | ClientError::NotAnswered { .. })) => {
                    count(&self.seen.unknown);
                }
                Err(error) => panic!("{id}: {error}"),
            }
        }
        self.load.note_update(id, &key);
        count(&self.seen.updates);
    }

    async fn look(&self, id: &str, acknowledged: u64) {
        match self.client.query(id, "total", Payload::null()).await {
            Ok(total) => {
                let total: u64 = total.decode().unwrap();
                assert_eq!(total & acknowledged, acknowledged, "{id} does not show what was acknowledged");
                count(&self.seen.queries);
            }
            Err(ClientError::NotAnswered { .. } | ClientError::Unknown { .. }) => count(&self.seen.unknown),
            Err(error) => panic!("{id}: {error}"),
        }
    }

    /// What a start does if its id is there.
    async fn policies(&self, life: usize) {
        let (used, raised) = (format!("used-{life}"), format!("raised-{life}"));
        self.start("brief", &used, StartOptions::default()).await;
        let again = StartOptions::default().on_existing(OnExisting::Use);
        let again = self.client.start_with("brief", &used, number(0), again).await;
        assert!(!again.unwrap().is_new(), "{used}");
        let refused = self.client.start("brief", &used, number(0)).await;
        assert!(matches!(refused, Err(ClientError::AlreadyExists { .. })), "{used}: {refused:?}");
        for (place, letter) in letters().enumerate() {
            let options = StartOptions::default().or_raise("letter", letter.as_str());
            let outcome = self.client.start_with("mail", &raised, number(0), options).await;
            assert_eq!(outcome.unwrap().is_new(), place == 0, "{raised}");
            self.load.note_event("guest", &raised, "letter", &letter);
        }
        self.load.note_start(&raised);
    }

    async fn delayed(&self, life: usize) {
        let id = format!("delayed-{life}");
        let delay = Duration::from_millis(50);
        let begun = std::time::Instant::now();
        self.start("sequence", &id, StartOptions::default().delay(delay)).await;
        self.client.result(&id).await.unwrap();
        assert!(begun.elapsed() >= delay, "{id} began too early");
    }

    /// Ends instances in three ways, at different moments of their lives.
    async fn ends(&self, life: usize) {
        let id = format!("ended-{life}");
        let options = match life % 3 {
            0 => StartOptions::default().timeout(Duration::from_millis(40)),
            _ => StartOptions::default(),
        };
        self.start("patient", &id, options).await;
        tokio::time::sleep(Duration::from_millis(life as u64 * 7 % 50)).await;
        match life % 3 {
            0 => {}
            1 => self.client.cancel(&id, "enough").await.unwrap(),
            _ => self.client.terminate(&id, "enough").await.unwrap(),
        }
        let ending = self.client.wait(&id).await.unwrap();
        let is_as_asked = match life % 3 {
            1 => ending == Ending::OrchestrationCancelled { reason: "enough".to_owned(), output: None },
            _ => matches!(ending, Ending::OrchestrationTerminated { .. }),
        };
        assert!(is_as_asked, "{id}: {ending:?}");
        count(&self.seen.ended);
    }

    /// One id, again and again.
    async fn replaces(&self, life: usize) {
        let options = match life {
            0 => StartOptions::default(),
            _ => StartOptions::default().on_existing(OnExisting::TerminateAndReplace),
        };
        let before = self.client.status("phoenix").await.ok().map(|status| status.key);
        let outcome = self.client.start_with("patient", "phoenix", number(0), options).await;
        assert!(outcome.unwrap().is_new());
        let after = self.client.status("phoenix").await.unwrap().key;
        assert_ne!(Some(after), before);
        self.load.note_start("phoenix");
        count(&self.seen.replaced);
    }

    async fn versions(&self, life: usize) {
        let (old, new) = (format!("old-{life}"), format!("new-{life}"));
        self.start("greet", &old, StartOptions::default().version("1.0.0")).await;
        self.start("greet", &new, StartOptions::default()).await;
        for id in [old, new] {
            self.client.result(&id).await.unwrap();
        }
    }

    /// Finished instances are deleted under the load; those that run are left alone.
    async fn prunes(&self, life: usize) {
        for number_of in 0..3 {
            let id = format!("short-{life}-{number_of}");
            self.client.start("brief", &id, number(0)).await.unwrap();
        }
        let filter = Filter::new().id_prefix("short-");
        let pruned = self.client.prune(Prune::all().only(filter), |_| {}).await.unwrap();
        assert_eq!(pruned.failed, 0, "{pruned:?}");
        self.seen.pruned.fetch_add(usize::try_from(pruned.done).unwrap(), Ordering::Relaxed);
    }

    /// How many instances have not ended.
    pub(crate) async fn unfinished(&self) -> Vec<String> {
        let filter = Filter::new().statuses([Status::Pending, Status::Running]);
        let rows = self.client.list(filter, None, 10_000).await.unwrap().rows;
        rows.into_iter().map(|row| row.id).collect()
    }
}

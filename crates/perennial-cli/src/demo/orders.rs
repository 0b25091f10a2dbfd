//! The shop of the demo: its orchestrations and activities, written as an application would.

use perennial::prelude::*;
use serde::{Deserialize, Serialize};

use super::ledger::Ledger;

/// Orders of at least this amount need approval.
const APPROVAL_CENTS: u64 = 50_000;
/// A card that the bank declines.
const BAD_CARD: &str = "stolen";

/// All registrations of the shop. Its activities write to a [`Ledger`].
pub(crate) fn registrations() -> Registrations {
    Registrations::new()
        .register(order)
        .register(shipping)
        .register(reserve)
        .register(release)
        .register(charge)
        .register(refund)
        .register(pack)
        .register(hand_over)
}

/// The decision on a large order.
pub(crate) const APPROVAL: ExternalEvent<bool> = ExternalEvent::named("approval");

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) item: String,
    pub(crate) cents: u64,
    pub(crate) card: String,
}

impl Order {
    /// Generates the order with a number: most are small, every fifth is large, some cards are declined.
    pub(crate) fn of_number(number: usize) -> Order {
        let item = ["a rose", "a peony", "an aster", "a sage", "a fern"][number % 5].to_owned();
        let cents =
            if number.is_multiple_of(5) { APPROVAL_CENTS + number as u64 } else { 900 + number as u64 };
        let card = if number % 20 == 7 { BAD_CARD } else { "good" }.to_owned();
        Order { item, cents, card }
    }

    pub(crate) fn needs_approval(&self) -> bool {
        self.cents >= APPROVAL_CENTS
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Shipped {
        parcels: usize,
    },
    /// The order was compensated.
    Undone {
        reason: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum BankError {
    NoAnswer,
    Declined,
}

impl std::fmt::Display for BankError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BankError::NoAnswer => "the bank did not answer",
            BankError::Declined => "the bank declined",
        })
    }
}

#[orchestration(version = "1.0.0", uses(reserve, release, charge, refund, shipping))]
pub(crate) async fn order(ctx: OrchestrationContext, order: Order) -> Result<Outcome, String> {
    let saga = Saga::new(&ctx);
    match saga.run(ship(&ctx, &saga, order)).await {
        Ok(parcels) => Ok(Outcome::Shipped { parcels }),
        Err(reason) if saga.failures().is_empty() => Ok(Outcome::Undone { reason }),
        Err(_) => Err(saga.failures().join("; ")),
    }
}

async fn ship(ctx: &OrchestrationContext, saga: &Saga, order: Order) -> Result<usize, String> {
    ctx.set_status("reserving");
    ctx.schedule_activity(reserve, order.item.clone()).await?;
    saga.undo(release, order.item.clone());

    ctx.set_status("charging");
    let retry = RetryPolicy::fixed(Duration::from_millis(50)).attempts(5).non_retryable(["Declined"]);
    ctx.schedule_activity(charge, (order.card.clone(), order.cents)).retry(retry).await?;
    saga.undo(refund, order.cents);

    if order.needs_approval() {
        ctx.set_status("waiting for approval");
        let day = Duration::from_secs(24 * 60 * 60);
        if !ctx.timeout(day, ctx.schedule_wait(APPROVAL)).await.unwrap_or(false) {
            return Err("not approved".to_owned());
        }
    }
    ctx.set_status("cooling off");
    ctx.schedule_timer(Duration::from_millis(500)).await;

    ctx.set_status("shipping");
    Ok(ctx.schedule_sub_orchestration(shipping, order.item).await?)
}

#[orchestration(version = "1.0.0", uses(pack, hand_over))]
pub(crate) async fn shipping(ctx: OrchestrationContext, item: String) -> Result<usize, String> {
    let parcels =
        ctx.try_join((1..=3).map(|parcel| ctx.schedule_activity(pack, (item.clone(), parcel)))).await?;
    ctx.schedule_activity(hand_over, parcels.len()).await?;
    Ok(parcels.len())
}

/// Applies an effect, after a delay, and writes it to the ledger. If the process crashes before the result is
/// recorded, the request is repeated, and the ledger recognizes it by its key.
async fn effect(ctx: &ActivityContext, what: &str) -> Result<(), String> {
    tokio::time::sleep(Duration::from_millis(25)).await;
    let ledger = ctx.state::<Ledger>();
    ledger.apply(&ctx.idempotency_key(), ctx.instance(), what).map_err(|error| error.to_string())
}

#[activity(retry = 3, state(Ledger))]
pub(crate) async fn reserve(ctx: ActivityContext, _item: String) -> Result<(), String> {
    effect(&ctx, "reserve").await
}

#[activity(retry = 3, state(Ledger))]
pub(crate) async fn release(ctx: ActivityContext, _item: String) -> Result<(), String> {
    effect(&ctx, "release").await
}

#[activity(state(Ledger))]
pub(crate) async fn charge(ctx: ActivityContext, card: String, cents: u64) -> Result<u64, BankError> {
    if card == BAD_CARD {
        return Err(BankError::Declined);
    }
    // The bank is unreliable: every third charge gets no answer at the first attempt.
    if ctx.attempt() == 1 && cents.is_multiple_of(3) {
        return Err(BankError::NoAnswer);
    }
    effect(&ctx, "charge").await.map(|()| cents).map_err(|_| BankError::NoAnswer)
}

#[activity(retry = 3, state(Ledger))]
pub(crate) async fn refund(ctx: ActivityContext, _cents: u64) -> Result<(), String> {
    effect(&ctx, "refund").await
}

#[activity(retry = 3, state(Ledger))]
pub(crate) async fn pack(ctx: ActivityContext, _item: String, parcel: u32) -> Result<(), String> {
    effect(&ctx, &format!("pack {parcel}")).await
}

#[activity(retry = 3, state(Ledger))]
pub(crate) async fn hand_over(ctx: ActivityContext, _parcels: usize) -> Result<(), String> {
    effect(&ctx, "hand over").await
}

//! What the simulator found, made small: each test is a run of it, by hand.

mod shard_cases;

use perennial_core::shard::Message;
use perennial_core::{Job, OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

/// Goes on in a version that nobody has.
async fn moves_on(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.continue_as_new_versioned("9.9.9", input).await
}

/// Seed 2948: an execution that continues in another version is terminated before it begins.
#[test]
fn i14_the_row_of_what_was_ended_before_it_began_names_the_version_it_was_to_have() {
    let mut desk = Desk::new(handlers_and("moves_on", moves_on));
    desk.start("moves_on", "a", ());
    desk.settle();
    desk.terminate("a", "enough");
    desk.settle();
    let row = desk.row("a");
    assert_eq!((row.execution, row.version.as_str(), row.status.name()), (2, "9.9.9", "terminated"));
}

/// An instance whose turn never ended.
fn given_up() -> Desk {
    let mut desk = Desk::new(handlers());
    desk.start("collect", "a", ());
    desk.settle();
    desk.raise("a", "n", number(1));
    desk.lose_turn("a");
    desk.settle();
    desk
}

/// A new owner comes to an instance that an earlier process gave up on, just while a message for it is being kept.
#[test]
fn g28_a_new_owner_tries_a_blocked_instance_again_also_while_it_keeps_a_message_for_it() {
    let mut desk = given_up();
    assert_eq!(desk.row("a").blocked.map(|blocked| blocked.code), Some("PER-0205".to_owned()));
    let kept = desk.raise("a", "n", number(2));
    let key = desk.row("a").key;
    desk.bring_owed("a", key);
    desk.settle();
    assert_eq!((desk.told(kept).as_str(), desk.row("a").blocked), ("accepted", None));
    assert_eq!(desk.jobs("a").len(), 2);
}

/// Seed 6373: while a blocked instance is being tried again, a cancel request makes its row due behind the owner's back.
#[test]
fn i14_a_row_that_was_made_due_while_it_was_being_unblocked_wants_nothing_after_the_end() {
    let mut desk = given_up();
    desk.retry("a");
    desk.load();
    let (reason, grace_until_ms) = ("enough".to_owned(), 60_000);
    let cancel = Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms });
    desk.send_message("a", &cancel);
    assert_eq!(desk.row("a").wake_at_ms, Some(0), "it is to be looked at now");
    desk.settle();
    desk.pass_inbox().settle();
    assert_eq!((desk.status("a").as_str(), desk.row("a").wake_at_ms), ("cancelled", None));
}

//! The store contract as tests that any store can run, including stores outside this project.
//!
//! [`store_conformance!`](crate::store_conformance) generates one test per rule; [`run`] runs all rules in
//! one test. Both take a function that creates an empty store with the given clock:
//!
//! ```
//! use perennial_core::store::MemoryStore;
//! use perennial_testkit::conformance::{self, Candidate};
//!
//! conformance::run(&|clock| Candidate::new(MemoryStore::new(move || clock.now_ms())));
//! ```
//!
//! The rules test the guarantees of the contract and not their implementation: for instance, message numbers
//! may have gaps.

mod drawn_members;
pub mod instances;
mod model;
mod operation;
mod side;
mod subject;
mod subject_reads;
mod test_clock;

#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod closing;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod commits;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod conflicts;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod deletions;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod leases;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod lists;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod looks;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod moving;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod outgoing;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod ownership;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod pages;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod reads;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod requests;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod searches;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod sends;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod sessions;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod settings;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod sweeping;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod tasks;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod timers;
#[allow(missing_docs, reason = "each function is named for the rule that it shows")]
mod watching;

pub use model::compare_with_model;
pub use subject::{Candidate, Make, Subject, answer_of, new_session, wait_for, waiting};
pub use subject_reads::Loaded;
pub use test_clock::TestClock;

/// The rules, one function each.
#[doc(hidden)]
pub mod rules {
    pub use super::closing::*;
    pub use super::commits::*;
    pub use super::conflicts::*;
    pub use super::deletions::*;
    pub use super::leases::*;
    pub use super::lists::*;
    pub use super::looks::*;
    pub use super::model::s2_answers_are_those_of_the_model;
    pub use super::moving::*;
    pub use super::outgoing::*;
    pub use super::ownership::*;
    pub use super::pages::*;
    pub use super::reads::*;
    pub use super::requests::*;
    pub use super::searches::*;
    pub use super::sends::*;
    pub use super::sessions::*;
    pub use super::settings::*;
    pub use super::sweeping::*;
    pub use super::tasks::*;
    pub use super::timers::*;
    pub use super::watching::*;
}

/// Runs every rule. Panics at the first rule that does not hold.
pub fn run(make: Make<'_>) {
    crate::__store_rules!(__store_run(make));
}

/// Generates one test per rule of the store contract.
///
/// ```
/// use perennial_core::store::MemoryStore;
/// use perennial_testkit::conformance::{Candidate, TestClock};
///
/// perennial_testkit::store_conformance!(|clock: TestClock| Candidate::new(MemoryStore::new(move || clock.now_ms())));
/// ```
#[macro_export]
macro_rules! store_conformance {
    ($make:expr) => {
        $crate::__store_rules!(__store_tests($make));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ($make:tt; $($rule:ident)*) => {
        $(
            #[test]
            fn $rule() {
                $crate::conformance::rules::$rule(&$make);
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_run {
    ($make:tt; $($rule:ident)*) => {
        $($crate::conformance::rules::$rule($make);)*
    };
}

/// Passes the names of all rules to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! __store_rules {
    ($then:ident($make:tt)) => {
        $crate::__store_rules!($then; $make);
    };
    ($then:ident($make:expr)) => {
        $crate::__store_rules!($then; $make);
    };
    ($then:ident; $make:tt) => {
        $crate::$then! { $make;
            s0_calls_before_closing_are_answered
            s0_after_closing_every_call_fails_as_closed
            s1_a_session_lives_for_its_lease_by_the_stores_clock
            s1_a_session_that_has_ended_is_gone
            s1_ending_a_session_twice_is_not_an_error
            s1_a_shard_belongs_to_one_session
            s1_a_claim_returns_shards_up_to_a_target
            s1_ending_a_session_frees_its_shards
            s1_an_expired_session_keeps_its_shards_until_the_next_claim
            s1_a_renewed_session_has_not_expired
            s1_a_claim_ends_sessions_that_have_expired
            s1_a_session_that_expired_cannot_claim
            s1_released_shards_can_be_claimed_by_others
            s2_a_commit_at_an_older_epoch_is_fenced
            s2_durable_members_can_be_read
            s2_an_empty_batch_is_answered
            s2_every_column_of_a_row_is_kept
            s2_every_column_that_may_change_does_and_others_stay
            s2_a_member_can_insert_and_change_its_row
            s2_turns_of_any_size_are_read_unchanged
            s2_executions_number_their_turns_separately
            s2_an_execution_may_start_with_several_turns
            s2_members_of_a_batch_take_effect_in_order
            s2_a_turn_deletes_the_messages_that_it_consumed
            s2_messages_of_a_member_are_numbered_in_order
            s2_a_message_whose_key_waits_is_not_sent_again
            s2_repeated_bytes_are_durable_and_not_written_again
            s2_another_turn_of_the_same_number_is_a_conflict
            s2_a_turn_without_the_one_before_is_a_conflict
            s2_an_existing_id_is_a_conflict_that_returns_the_row
            s2_a_member_without_an_instance_is_a_conflict
            s2_a_member_for_a_shard_of_another_session_is_fenced
            s2_a_member_is_written_as_a_whole_or_not_at_all
            s2_a_message_that_is_gone_is_a_conflict
            s2_a_repeated_turn_is_durable_after_its_messages_are_gone
            s2_a_bad_member_does_not_affect_other_members
            s2_answers_are_those_of_the_model
            s2_nothing_is_sent_to_a_missing_or_ended_instance
            s2_the_sender_gets_the_outcome_of_a_message_to_an_id
            s2_a_start_may_replace_an_ended_instance_and_its_sender_gets_the_outcome
            s2_replacing_an_instance_deletes_its_ended_children
            s2_an_instance_that_ends_in_a_batch_gets_no_later_messages_of_it
            s2_an_urgent_message_of_a_member_is_read_by_a_blocked_instance
            s2_urgent_messages_are_urgent_until_they_are_seen
            s2_a_member_sees_its_own_earlier_writes
            s2_a_message_to_an_id_reaches_its_instance
            s2_a_start_of_a_member_inserts_a_row_and_a_message
            s2_a_repeated_start_of_the_same_key_has_no_effect
            s2_a_start_with_an_existing_id_notifies_its_sender
            s2_a_start_with_a_time_is_parked_until_then
            s2_messages_and_starts_cross_shards
            s2_a_repeated_turn_sends_nothing_again
            s3_a_message_reaches_the_instance_of_the_id
            s3_a_start_inserts_a_row_and_a_message
            s3_only_one_of_many_starts_of_an_id_succeeds
            s3_a_key_is_accepted_once_while_its_message_waits
            s3_keys_belong_to_their_instance
            s3_an_ended_instance_accepts_no_messages
            s3_a_message_without_an_instance_is_refused
            s3_a_sender_does_not_change_the_row_of_the_instance
            s3_a_blocked_instance_accepts_messages
            s3_an_urgent_message_is_read_by_a_blocked_instance
            s3_ten_thousand_unread_messages_refuse_the_next
            s3_requests_of_a_call_are_independent
            s3_a_message_number_is_never_reused
            s3_a_message_for_another_key_finds_no_instance
            s3_a_message_arrives_when_the_store_inserts_it
            s4_the_inbox_is_read_from_the_lowest_number_in_pages
            s4_each_pass_reads_the_messages_since_the_last_one
            s4_the_inbox_contains_only_messages_of_the_sessions_shards
            s4_messages_of_blocked_instances_are_parked
            s4_due_instances_come_in_due_order_in_pages
            s4_endless_waits_are_stored_and_not_due
            s4_only_unfinished_instances_of_the_sessions_shards_are_due
            s4_owed_instances_come_by_key_in_pages
            s4_loading_returns_the_row_the_turns_after_one_and_the_messages
            s4_turns_are_read_after_a_number_up_to_a_limit
            s4_a_read_returns_every_commit_that_was_answered
            s4_reads_under_a_session_that_is_gone_answer_session_gone
            s4_reads_of_a_shard_that_the_session_does_not_own_answer_session_gone
            s4_the_inbox_leaves_out_known_numbers
            s4_a_page_names_the_start_of_the_next
            s4_pages_are_bounded_in_bytes
            s4_loading_returns_all_turns_and_their_checksums
            s4_blocked_instances_come_by_key_in_pages
            s4_pages_of_some_shards_are_full_despite_rows_of_others
            s5_a_task_is_leased_by_the_stores_clock
            s5_a_node_takes_only_tasks_that_it_can_run
            s5_a_node_takes_no_more_than_asked
            s5_no_task_is_taken_twice
            s5_a_renewal_writes_the_details_of_the_attempt
            s5_only_the_holder_renews
            s5_a_finished_task_becomes_a_message
            s5_only_the_holder_of_an_attempt_finishes_it
            s5_an_attempt_is_finished_only_once
            s5_a_result_for_an_instance_that_has_ended_is_dropped_with_the_row
            s5_a_result_reaches_a_blocked_instance
            s5_a_task_that_is_given_back_can_be_taken_again
            s5_a_task_with_an_expired_lease_is_queued_again
            g22_an_expired_lease_counts_if_its_lost_holder_had_recorded_the_start
            s5_a_lease_outlives_its_holders_session
            s5_a_result_is_never_refused_for_unread_messages
            s5_a_task_of_an_earlier_execution_can_be_finished
            g51_tasks_are_taken_by_prefixes_of_their_names
            s5_a_task_that_waits_forever_is_stored
            s5_every_column_of_a_task_is_kept
            s5_a_task_replaces_an_older_one
            s5_changes_of_a_members_tasks_are_made_in_order
            s5_a_task_that_is_not_leased_is_deleted_when_cancelled
            s5_a_task_that_another_node_runs_is_marked_when_cancelled
            s5_a_task_that_its_owner_runs_is_deleted_when_cancelled
            s5_loading_returns_the_tasks_of_the_current_execution_by_event
            s6_a_request_reaches_the_instance_of_the_id
            s6_a_request_without_an_instance_is_refused
            s6_requests_are_read_from_a_number_in_pages
            s6_requests_are_read_only_by_the_session_of_the_shard
            s6_a_request_past_its_deadline_is_not_read
            s6_a_reply_is_written_with_its_commit
            s6_a_fenced_member_writes_no_reply
            s6_a_request_is_withdrawn_once_unless_it_has_a_reply
            s6_requests_and_replies_are_swept_at_their_deadline
            s6_a_request_number_is_never_reused
            s6_sweeping_is_bounded
            s7_a_large_instance_is_deleted_at_once_and_swept_in_steps
            s7_the_id_of_a_large_deleted_instance_is_free_at_once
            s7_pruning_executions_never_deletes_the_current_one
            s7_pruning_executions_is_bounded_and_starts_with_the_oldest
            s7_only_the_owner_prunes_executions
            s7_executions_that_were_continued_long_ago_are_swept_in_steps
            s7_executions_are_swept_by_the_stores_clock_only_on_request
            s7_a_list_is_returned_oldest_first_in_pages
            s7_a_list_is_filtered_by_status
            s7_a_list_is_filtered_by_name
            s7_a_list_is_filtered_by_a_prefix_of_the_id
            s7_a_list_is_filtered_by_being_blocked
            n14_an_instance_that_waits_for_code_is_not_listed_as_blocked
            s7_a_list_is_returned_newest_first_on_request
            s7_a_list_is_filtered_by_version
            s7_a_list_is_filtered_by_parent
            s7_a_list_is_filtered_by_attributes_as_json_text
            s7_a_list_is_filtered_by_times
            h26_a_list_is_returned_in_the_order_of_the_end
            s7_random_filters_return_the_matching_rows
            s7_filters_of_a_list_apply_to_every_page
            s7_a_count_is_exact_up_to_a_bound
            s7_blocked_instances_are_counted_by_code
            s7_stats_count_all_kinds_of_rows
            s7_stats_count_exactly_up_to_ten_thousand
            s7_the_lag_is_that_of_the_earliest_instance_that_can_continue
            h42_the_earliest_due_time_of_each_shard_is_known
            s7_a_deleted_instance_leaves_no_rows
            s7_only_ended_instances_are_deleted
            s7_the_id_of_a_deleted_instance_is_free_at_once
            s7_a_reply_outlives_its_instance_until_the_deadline
            s7_deletions_and_commits_at_the_same_time_leave_no_orphans
            s7_a_setting_is_kept_until_it_is_replaced_or_deleted
            s7_of_two_concurrent_changes_of_a_setting_one_is_refused
            s8_a_message_gives_a_hint
            s8_starts_requests_replies_and_results_give_a_hint
            s8_tasks_that_can_be_taken_give_a_hint
            s8_endings_and_published_values_give_a_hint
            s8_a_commit_gives_a_hint_to_the_owners_of_other_shards
            s15_numbers_are_compared_by_value_and_exactly
            s15_text_is_compared_by_code_points
            s15_text_is_found_by_its_prefix
            s15_values_of_different_types_never_match
            s16_conditions_combine_with_all_other_filters
            s17_pages_stay_consistent_while_attributes_change
            g13_a_timer_that_fires_over_an_earlier_message_conflicts
            g13_results_and_messages_of_members_count_as_earlier_too
            g13_a_parked_start_is_not_an_earlier_message
            g13_a_repeated_turn_is_durable_whatever_has_arrived
            n7_maintenance_is_refused_while_a_lane_is_live
            n7_opening_a_lane_ends_all_maintenance
            n7_maintenance_leaves_no_trace_in_shards
            n9_an_expired_session_that_was_not_ended_can_be_renewed
            n10_opening_again_after_a_lost_answer_renews
            n10_each_change_of_a_shards_owner_increments_its_epoch
            n10_replacing_a_session_moves_its_shards_at_the_next_epoch
            n10_replacing_again_after_a_lost_answer_returns_the_same
            n10_replacing_a_session_that_is_gone_moves_nothing
            n10_unclean_ends_are_counted_and_a_release_clears_them
            n10_a_steady_owner_clears_the_count_of_unclean_ends
            n10_notes_are_returned_by_the_next_claim
            n10_only_the_owner_writes_notes_about_a_shard
            n10_a_claim_returns_the_times_without_an_owner
            n14_the_directory_shows_every_session
            g22_a_renewal_can_replace_the_record_of_a_session
            h42_the_owner_of_a_shard_or_the_time_it_was_lost_can_be_read
            h42_a_task_has_the_times_of_its_state_and_of_its_last_heartbeat
            h42_tasks_are_listed_by_id_in_pages_without_payloads
            n17_a_holder_lists_its_leases
            n19_an_export_is_the_same_after_an_import
            n19_pages_have_each_row_once
            n19_a_stored_row_that_differs_is_named_and_kept
            n19_numbers_continue_after_the_last_one_that_was_moved
            n19_a_session_that_is_gone_imports_nothing
            n19_rows_of_deleted_instances_stay_behind
            n19_a_store_with_the_mark_of_a_move_refuses_nodes_and_lanes
            n18_a_full_instance_refuses_senders
            n18_ten_thousand_unread_messages_refuse_no_urgent_one
        }
    };
}

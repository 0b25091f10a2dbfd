//! Bugs that are planted in the engine are noticed by the simulator, each within the number of seeds that is stated for it.

use std::collections::BTreeSet;

use perennial_testkit::simulator::{Case, Flaw, PLANTED, Planted, Simulation};

/// Requires that a planted bug is noticed, by a rule that is stated for it.
fn is_noticed(flaw: Flaw) {
    let Planted { noticed_by, within, in_storm, first, .. } =
        PLANTED.iter().find(|planted| planted.flaw == flaw).expect("it is stated");
    let case = |seed| Case { storm: *in_storm, flaw: Some(format!("{flaw:?}")), ..Case::of_seed(seed) };
    let run = |seed| case(seed).simulation().expect("the flaw is known").run().err();
    let mishap = (*first..first + within).find_map(|seed| Some((seed, run(seed)?)));
    let (seed, mishap) = mishap.unwrap_or_else(|| panic!("{flaw:?} was not noticed"));
    println!("seed {seed}: {}", mishap.what);
    assert!(noticed_by.contains(&mishap.invariant()), "{flaw:?} was noticed by {}", mishap.what);
}

macro_rules! noticed {
    ($($name:ident: $flaw:ident,)*) => {
        $(#[test]
        fn $name() {
            is_noticed(Flaw::$flaw);
        })*

        /// The planted bugs that have a test here.
        const TESTED: &[Flaw] = &[$(Flaw::$flaw),*];
    };
}

noticed! {
    i3_a_store_that_does_not_fence_is_noticed: NoFencing,
    i8_lost_messages_are_noticed: LostMessages,
    g5_effects_before_their_commit_are_noticed: EffectsBeforeCommit,
    i10_timers_that_fire_early_are_noticed: EarlyTimers,
    i13_outcomes_that_are_sent_twice_are_noticed: OutcomeTwice,
    i9_continue_as_new_that_forgets_events_is_noticed: ForgottenEvents,
    g22_retries_before_their_rows_are_durable_are_noticed: RetryBeforeRow,
    g5_answers_before_their_turns_are_durable_are_noticed: AnswerBeforeTurn,
    i13_children_with_new_keys_when_a_batch_is_sent_again_are_noticed: FreshChildKeys,
    g22_interruptions_that_are_not_counted_are_noticed: UncountedInterruptions,
    g22_interruptions_that_are_counted_without_evidence_are_noticed: EveryEndCounts,
    g46_paused_instances_that_go_on_are_noticed: PausesForgotten,
    g48_resets_that_forget_events_are_noticed: ResetForgetsEvents,
    g36_children_that_replace_instances_that_run_are_noticed: ReplacesRunning,
    n8_a_shard_that_is_given_up_before_it_is_drained_is_noticed: ReleasedUndrained,
    n10_epochs_that_make_no_difference_are_noticed: EpochUnchecked,
    n10_what_belongs_to_an_earlier_tenure_and_is_taken_is_noticed: TenureUnchecked,
    n9_a_lane_that_acts_past_its_deadline_is_noticed: ActsPastDeadline,
    n9_a_lane_that_forgets_at_its_deadline_is_noticed: ForgetsAtDeadline,
    g16_keys_that_are_not_recognized_are_noticed: NoDedupe,
    n17_tasks_that_stop_with_the_lanes_of_their_node_are_noticed: TasksDieWithLanes,
    n16_a_request_that_overtakes_its_senders_message_is_noticed: UnorderedSenders,
    n17_tasks_that_are_forgotten_after_a_lost_answer_are_noticed: ForgottenTakes,
    n3_a_node_that_ends_together_with_its_lanes_is_noticed: EndsWithLanes,
    g20_results_of_attempts_that_were_replaced_are_noticed: StaleAttempts,
    g13_timers_that_are_delivered_before_earlier_events_are_noticed: TimersFirst,
    g13_timers_that_overtake_events_in_the_inbox_are_noticed: UnreadEventsOvertaken,
    g11_evictions_that_stop_activities_are_noticed: EvictionCancels,
    g13_evictions_that_forget_wake_times_are_noticed: EvictionForgetsWakes,
    e15_cancelled_waits_that_take_their_event_along_are_noticed: EatenEvents,
    i8_events_that_are_lost_because_nobody_waits_yet_are_noticed: EarlyEventsLost,
    g2_messages_that_reach_the_next_instance_with_their_id_are_noticed: IdsConfused,
    s4_an_inbox_that_is_read_by_cursor_is_noticed: InboxByCursor,
    g8_leases_that_count_from_the_answer_are_noticed: LeaseFromAnswer,
    g7_unknown_commits_that_are_taken_for_durable_are_noticed: DoubtTakenForDone,
    g25_children_that_forget_their_parents_are_noticed: ParentsForgotten,
    g16_keys_that_do_not_cross_continue_as_new_are_noticed: KeysForgotten,
    i11_turns_that_go_back_in_time_are_noticed: TimeGoesBack,
    g12_wake_times_that_are_stored_too_late_are_noticed: WakesStoredLate,
    g17_waiters_that_do_not_hear_of_the_end_are_noticed: WaitersForgotten,
}

#[test]
fn every_planted_flaw_is_stated_once_and_has_a_test() {
    let names =
        |flaws: &mut dyn Iterator<Item = Flaw>| flaws.map(|flaw| format!("{flaw:?}")).collect::<Vec<_>>();
    let all: BTreeSet<String> = names(&mut Flaw::ALL.into_iter()).into_iter().collect();
    for listed in [names(&mut PLANTED.iter().map(|planted| planted.flaw)), names(&mut TESTED.iter().copied())]
    {
        assert_eq!(listed.len(), Flaw::ALL.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), all);
    }
}

#[test]
fn g22_a_storm_of_kills_alone_blames_nobody() {
    for seed in 0..3 {
        Simulation::new(seed).with_storm_of_kills().run().unwrap_or_else(|mishap| panic!("{mishap}"));
    }
}

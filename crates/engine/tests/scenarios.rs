//! Scenario files: what goes into one engine and what must come out, readable by a person. Each file is a test of its name.
//! `tests/scenario/mod.rs` says how to read and to renew them.
#![allow(missing_docs, unreachable_pub, clippy::missing_panics_doc, reason = "a test")]

mod scenario;

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                scenario::scenario(stringify!($name));
            }
        )*

        /// Every file in the folder is run.
        #[test]
        fn no_scenario_is_forgotten() {
            let names = [$(stringify!($name)),*];
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
            for entry in std::fs::read_dir(folder).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let known = name == "common" || names.iter().any(|known| name == format!("{known}.txt"));
                assert!(known, "{name} is not listed in scenarios.rs");
            }
        }
    };
}

scenarios! {
    r18_a_damaged_member_that_follows_a_primary_that_is_gone_takes_a_word
    r18_what_was_shown_and_lost_to_damage_stops_whom_a_word_leads_elsewhere
    r18_what_was_shown_stops_whom_a_word_leads_that_has_trimmed_beyond
    r18_what_was_released_and_given_up_is_told_and_behind_with_a_checkpoint_beyond
    r18_what_was_released_and_shown_since_the_opening_stops_whom_a_word_leads_elsewhere
    r18_a_late_repeated_offer_lowers_no_mark
    r18_who_lacks_nothing_and_takes_anothers_log_by_a_word_is_not_damaged_by_it
    a_tenure_that_can_not_start_is_given_up
    a_backup_tells_at_once_that_it_has_parsed_into_another_segment
    a_newer_request_is_taken_up_once_the_one_at_work_is_done
    membership_who_was_told_that_it_never_was_a_member_is_told_that_it_has_left
    kind_48_who_has_trimmed_and_is_too_far_behind_has_given_up_nothing
    kind_55_who_is_first_met_later_is_named_by_a_later_change
    kind_55_who_joined_later_refuses_another_disk_than_the_configuration_names
    kind_55_where_another_disk_was_taken_before_one_was_named_neither_is_taken
    what_was_durable_in_a_line_given_up_is_not_told_of_the_next
    r14_a_cut_tells_that_replicated_was_revoked
    membership_the_heir_of_a_leaver_campaigns_though_it_knows_that_it_has_left
    a_checkpoint_is_kept_until_it_can_be_used
    a_broken_connection_is_another_session
    a_candidate_at_work_draws_no_rivals
    a_failed_flush_is_final
    a_member_that_was_away_for_long_keeps_its_first_session
    a_minority_with_a_higher_promise
    a_sleeper_looks_again
    an_unread_notice_is_told_again
    campaign_when_handed_over
    damage_found_while_running
    a_pre_vote_that_nobody_answers
    a_checkpoint_that_came_before_it_was_asked_for
    a_checkpoint_waits_for_a_candidacy
    a_newer_offer_is_asked_for_each_time
    an_offer_that_is_not_answered_is_made_again
    r15_what_is_pending
    r18_a_checkpoint_below_what_was_published
    a_batch_that_was_just_sent_is_not_told_again
    a_candidate_that_nobody_answers
    a_fetch_that_nobody_answers
    r18_a_damaged_member_waits_before_it_says_so
    r18_a_loss_is_accepted_behind_what_was_published
    r18_a_loss_is_not_accepted_where_it_was_published
    checkpoints_that_do_not_fit
    a_grant_whose_connection_breaks
    a_handover_takes_its_time
    a_small_batch_waits_for_the_one_before
    damage_found_while_promising
    membership_a_learner_waits_for_the_tenures_first_commit
    membership_a_member_that_left_and_is_away_is_told
    membership_a_member_that_left_is_written_to_until_it_knows
    promise_and_adoption_wait_for_their_own_saves
    r15_a_drain_that_stands_still_is_no_progress
    r18_what_a_scan_finds_of_what_was_flushed
    sessions_late_and_untrue_answers
    trimmed_at_what_all_have
    membership_a_primary_has_not_left_because_somebody_says_so
    membership_what_is_said_of_having_left
    a_lost_connection_is_told_by_the_backup
    adopted_again_until_something_was_written
    bytes_that_never_parse_are_sent_again
    credits_are_given_back_in_bulk
    windows_move_with_the_tail
    adopt_offers_that_can_not_be_true
    damage_elsewhere_is_no_damage
    flushed_once_there_is_much
    membership_a_change_out_of_reach_is_refused
    r15_signs_of_life_of_others
    signs_of_life_of_a_candidate
    suspected_while_it_is_at_work
    fence_a_promise_is_given_once
    fence_asked_again_late_or_by_another
    fence_promises_that_can_not_be_true
    fence_rejected
    fetch_a_range_that_is_not_whole
    fetch_late_answers_change_nothing
    campaign_asked_of_a_primary
    fetch_asked_by_the_promised_candidate_alone
    fetch_asked_of_a_primary
    vote_asked
    vote_asked_of_a_primary
    handover
    kind_48_snapshot_at_the_backup
    kind_49_a_new_primary_is_told_of_a_checkpoint_on_its_way
    kind_49_the_log_is_kept_behind_a_checkpoint_on_its_way
    kind_50_a_stopped_backup_neither_blocks_nor_fills
    kind_52_a_checkpoint_of_another_line
    kind_52_a_fork_below_the_trim_point
    kind_55_another_disk_under_an_old_name
    kind_55_an_operators_word_is_not_taken_by_a_member_that_nobody_has_led
    kind_55_an_operators_word_is_taken_by_a_member_with_an_empty_log_of_an_epoch
    a_stream_does_not_wait_for_answers
    large_batches_end_on_record_ends
    membership_a_configuration_of_a_fetch_that_failed_counts_for_nothing_r20
    membership_a_member_that_has_left_is_told_by_number
    membership_who_leads_learns_that_its_configuration_is_committed_r20
    membership_who_has_left_follows_one_that_does_not_know_it_and_leads_nothing
    membership_who_never_was_a_member_is_told_that
    membership_one_founded_otherwise_never_was_a_member
    membership_a_committed_configuration_stays_known_r20
    membership_a_cut_brings_the_former_configuration_back
    membership_a_learner_catches_up_and_votes
    membership_a_learner_is_handed_nothing
    membership_a_learner_waits_while_the_log_is_full
    membership_a_new_member_at_a_checkpoint_has_not_left
    membership_a_new_member_leads_nothing_before_it_votes
    membership_a_primary_that_leaves_hands_over
    membership_a_removed_member_disturbs_nobody
    membership_promises_are_counted_over_the_chosen_log_r20
    quorums_of_three_and_one
    quorums_of_two_and_four
    r13_credits_and_batching
    r14_levels_and_the_start_record
    r14_what_is_sent_from_cold_segments_is_placed_once_it_is_parsed
    r15_pending_work_that_stands_still_is_silence
    r15_the_age_of_pending_work
    r16_a_primary_seals_before_it_promises
    r17_a_history_without_bytes_ranks_nothing
    r18_damage_found_while_windows_are_granted
    r18_a_loss_accepted_and_a_crash_before_the_tenure_is_still_a_loss
    r18_a_loss_accepted_ends_where_more_is_found_damaged
    r18_a_loss_accepted_ends_with_a_primary
    r18_a_loss_is_accepted_by_nobody_that_has_stopped
    r18_a_loss_accepted_below_a_committed_configuration_takes_the_next_change_r20
    r18_a_configuration_whose_place_a_word_gave_up_counts_at_all_r20
    r18_a_loss_accepted_leads_with_what_another_knows_to_be_committed_r20
    r18_a_candidate_takes_the_configuration_that_has_no_record_in_the_log_it_takes_r20
    r18_a_loss_accepted_below_what_the_best_log_has_released_names_its_member
    r20_a_lost_configuration_is_known_until_it_is_had_again
    r20_a_loss_accepted_waits_for_the_voters_of_a_lost_configuration
    r18_a_loss_accepted_over_anothers_log_is_given_up_by_leading
    r18_a_loss_is_accepted_by_an_operator
    r18_a_damaged_member_neither_leads_nor_counts
    r18_a_valid_log_is_not_taken_for_an_acknowledgement
    r18_what_is_whole_behind_damage_is_not_sent_again
    r18_what_is_whole_behind_damage_is_worth_a_session_where_it_is_more_than_a_batch
    r18_two_damaged_members_that_know_their_marks_count
    r18_what_is_adopted_lowers_a_known_mark
    r18_where_all_are_damaged_they_say_so
    r18_a_witness_knows_what_was_acknowledged
    r18_the_choice_waits_for_what_was_acknowledged
    r19_caught_up
    r19_memory_lost
    r19_a_word_for_lost_memory_leads_over_the_configuration_that_is_committed_r20
    r19_a_word_for_lost_memory_waits_for_enough_of_one_configuration_and_says_so_r20
    r19_a_word_for_lost_memory_is_not_taken_while_a_primary_is_heard
    r19_a_word_for_lost_memory_gives_up_no_damage_r18
    r19_a_word_for_lost_memory_where_the_best_log_is_out_of_reach_names_its_member
    r18_a_loss_accepted_where_the_best_log_has_no_vote_for_it_names_who_has_r20
    r19_memory_lost_all_answered
    r9_a_stuck_reservation_ends_the_tenure
    rejoin_of_a_deposed_primary
    step_down_without_a_quorum
    takeover_with_a_fetch
    the_best_log_is_out_of_reach
    the_owner_of_the_best_log_dies
}

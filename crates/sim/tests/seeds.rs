//! Some seeds in the ordinary tests, those that failed once, and that a seed is a run. `cargo xtask sim` runs more.

use windlass_sim::coverage::Mark;
use windlass_sim::fabric::{Device, FabricFaults};
use windlass_sim::setting::{ControlFaults, Excess, Hands, SEGMENT_BYTES, Setting, Strike};
use windlass_sim::{Report, run, run_with};

/// Seeds that failed once, with what they found. Each stays here for ever.
const REGRESSIONS: &str = include_str!("regressions.txt");

fn check(report: &Report) {
    if let Some(violation) = &report.violation {
        let from = report.lines.len().saturating_sub(40);
        let lines = report.lines[from..].join("\n");
        panic!("{lines}\nseed {}: {violation}\ncargo xtask sim --seed {}", report.seed, report.seed);
    }
}

#[test]
fn seeds_keep_every_promise_and_come_back_to_life() {
    for seed in 1..=5 {
        let report = run(seed, true);
        check(&report);
        // A run that does nothing proves nothing.
        assert!(!report.is_thin(), "seed {seed}: {}", report.minimum);
    }
}

#[test]
fn seeds_that_failed_once_pass() {
    let lines = REGRESSIONS.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    for line in lines {
        let seed = line.split_whitespace().next().and_then(|seed| seed.parse().ok());
        check(&run(seed.expect("a line begins with its seed"), true));
    }
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    let (one, two, other) = (run(3, true), run(3, true), run(4, true));
    assert!(one.lines.len() > 10 && one.events > 10_000);
    assert_eq!(one.lines, two.lines);
    // The digest has every turn of every driver in it.
    assert_eq!((one.digest, one.events, one.minimum), (two.digest, two.events, two.minimum));
    assert_ne!(one.digest, other.digest);
    // Nor does it matter whether the lines are kept.
    assert_eq!(run(3, false).digest, one.digest);
}

fn without_faults(seed: u64) -> Setting {
    let fabric = FabricFaults::default();
    let control = ControlFaults::default();
    Setting {
        fabric,
        control,
        process: Vec::new(),
        held_ns: 0,
        leaked: 0,
        leaks_at_the_end: false,
        hands: None,
        ..Setting::of(seed)
    }
}

/// More than the group survives is lost at the end of otherwise sound runs, and an operator gives its word: what each kind has to show.
#[test]
fn by_an_operators_word_a_group_goes_on_with_what_is_left_and_nothing_else_is_given_up() {
    let kinds = [
        (Excess::DisksEmptied, false, Mark::WordWithoutQuorum),
        (Excess::RotEverywhere, false, Mark::WordGaveUp),
        (Excess::RotOfMajority, false, Mark::WordGaveUp),
        (Excess::MemoryLost, true, Mark::MemoryWordCarriedOut),
    ];
    for (excess, replicated_allowed, mark) in kinds {
        let mut met = 0;
        for seed in 1..=6 {
            let hands = Hands {
                deed_ns: 1 << 40,
                gives_words: false,
                excess: Some(excess),
                in_changes: false,
                changes_before_loss: false,
            };
            let setting = Setting {
                hands: Some(hands),
                replicated_allowed,
                spares: 0,
                change_ns: 0,
                ..without_faults(seed)
            };
            let report = run_with(seed, setting, true);
            check(&report);
            met += report.coverage.count(mark);
        }
        assert!(met > 0, "{excess:?}: no seed has met: {}", mark.name());
    }
}

/// The record of the newest configuration goes with what a majority loses, and a voter of it is away: it is waited for, and where it never comes nobody leads.
#[test]
fn by_an_operators_word_nobody_leads_beside_a_configuration_that_was_lost_r20() {
    let mut met = [0; 3];
    for seed in 1..=8 {
        let hands = Hands {
            deed_ns: 1 << 40,
            gives_words: false,
            excess: Some(Excess::RotOfMajority),
            in_changes: true,
            changes_before_loss: true,
        };
        let mut setting = Setting { hands: Some(hands), spares: 4, ..without_faults(seed) };
        setting.devices.resize(usize::from(setting.all()), Device::Any);
        let report = run_with(seed, setting, true);
        check(&report);
        let marks = [Mark::WordConfigurationLost, Mark::WordConfigurationBack, Mark::WordConfigurationGone];
        for (met, mark) in met.iter_mut().zip(marks) {
            *met += report.coverage.count(mark);
        }
    }
    assert!(met.iter().all(|met| *met > 0), "waited for, came back, never came: {met:?}");
}

/// The word at the end, once more is lost than the group survives, is left out: it may meet an open configuration, too.
#[test]
fn words_in_a_group_that_changes_can_be_switched_off() {
    let marks = [Mark::WordRefusedNoVoter, Mark::WordWhileOpen, Mark::WordLedOpen];
    let mut met = 0;
    for seed in [11, 19, 29, 43, 51, 61] {
        let mut setting = Setting::of(seed);
        assert!(setting.hands.is_some_and(|hands| hands.in_changes) && setting.change_ns > 0);
        let report = run_with(seed, setting.clone(), true);
        met += marks.iter().map(|mark| report.coverage.count(*mark)).sum::<u64>();
        assert!(setting.switch_off("WordsInChanges"));
        let _ = setting.switch_off("ChangeBeforeLoss");
        setting.hands = setting.hands.map(|hands| Hands { excess: None, ..hands });
        let report = run_with(seed, setting, true);
        check(&report);
        assert!(marks.iter().all(|mark| report.coverage.count(*mark) == 0), "seed {seed}");
    }
    assert!(met > 0, "no seed has met any with the switch on");
}

/// What a member lacks is released everywhere: its checkpoint comes in pieces, at each of which either end may die, stand still or be cut off, and the others go on trimming.
#[test]
fn a_checkpoint_in_pieces_begins_again_until_it_is_taken() {
    let kinds = [Mark::StreamTaken, Mark::StreamAgain, Mark::StreamTrimmedMeanwhile];
    let mut met = [0; 3];
    for seed in [4, 8, 15, 36, 47, 68] {
        let setting = Setting::of(seed);
        assert!(setting.streams, "seed {seed}");
        let report = run_with(seed, setting, true);
        check(&report);
        for (met, kind) in met.iter_mut().zip(kinds) {
            *met += report.coverage.count(kind);
        }
    }
    assert!(met.iter().all(|met| *met > 0), "taken, begun again, trimmed meanwhile: {met:?}");
    let mut setting = Setting::of(4);
    assert!(setting.switch_off("stream.cut") && setting.switch_off("stream.deaths"));
    assert!(setting.switch_off("Streams"));
    let report = run_with(4, setting, true);
    check(&report);
    assert_eq!(report.coverage.count(Mark::StreamBegun), 0);
}

/// Applications that keep their newest checkpoint alone: what was held when its member started is given, though nobody has told that member yet that it is committed.
#[test]
fn what_an_application_held_before_a_restart_is_given_without_an_older_one() {
    let mut given = 0;
    for seed in [360, 580, 836] {
        let mut setting = Setting::of(seed);
        assert!(setting.newest_alone, "seed {seed}");
        let report = run_with(seed, setting.clone(), true);
        check(&report);
        given += report.coverage.count(Mark::StreamOfHeld);
        assert!(setting.switch_off("NewestAlone"));
        let report = run_with(seed, setting, true);
        check(&report);
        assert_eq!(report.coverage.count(Mark::StreamOfHeld), 0, "seed {seed}");
    }
    assert!(given > 0, "no seed has met it");
}

#[test]
fn an_operators_hands_can_be_switched_off() {
    let mut setting = Setting::of(10);
    assert!(setting.hands.is_some() && setting.switch_off("Hands"));
    let report = run_with(10, setting, true);
    check(&report);
    let marks = [Mark::HandedToChosen, Mark::PromotedAlone, Mark::WordRefusedLed, Mark::WordCarriedOut];
    assert!(marks.iter().all(|mark| report.coverage.count(*mark) == 0));
}

#[test]
fn without_faults_one_tenure_lasts_and_nothing_is_unknown() {
    // Of those that 4 divides with 3 left over the group changes, and a primary that is removed hands over.
    for seed in [1, 2, 4] {
        let report = run_with(seed, without_faults(seed), true);
        check(&report);
        assert_eq!((report.minimum.tenures, report.unknown), (1, 0), "seed {seed}");
        assert!(report.minimum.acknowledged > 500);
    }
}

#[test]
fn a_lost_completion_costs_a_session_at_most() {
    for seed in 1..=3 {
        let fabric = FabricFaults { completion_lost: 5_000, ..FabricFaults::default() };
        let report = run_with(seed, Setting { fabric, ..without_faults(seed) }, true);
        check(&report);
        assert!(report.minimum.acknowledged > 500);
    }
}

#[test]
fn lost_completions_of_receives_cost_a_session_at_most() {
    for seed in 1..=3 {
        let fabric = FabricFaults { receive_lost: 20_000, ..FabricFaults::default() };
        let report = run_with(seed, Setting { fabric, ..without_faults(seed) }, true);
        check(&report);
        assert!(report.coverage.count(Mark::ReceiveLost) > 0);
    }
}

#[test]
fn a_member_that_stops_cleanly_over_a_hole_in_what_arrived_opens_again() {
    for seed in 1..=12 {
        let fabric = FabricFaults { landed_in_pieces: 500_000, broken: 5_000, ..FabricFaults::default() };
        let process = vec![(Strike::Stop, 1), (Strike::BreakConnection, 1)];
        let setting =
            Setting { fabric, process, fault_ns: 10_000_000, held_ns: 0, leaked: 0, ..without_faults(seed) };
        let report = run_with(seed, setting, true);
        check(&report);
        assert!(report.coverage.count(Mark::StoppedCleanly) > 0);
    }
}

#[test]
fn what_was_fetched_in_pieces_out_of_images_is_taken_at_the_first_try() {
    for seed in 1..=6 {
        let ordinary = without_faults(seed);
        let process = vec![(Strike::Promote, 3), (Strike::CutOff, 2), (Strike::Mend, 4)];
        let limits = windlass::engine::Limits { fetch_bytes: 4096, ..ordinary.limits };
        let devices = vec![Device::Staged; ordinary.devices.len()];
        let report =
            run_with(seed, Setting { process, limits, devices, fault_ns: 30_000_000, ..ordinary }, true);
        check(&report);
        let refused = report.lines.iter().find(|line| line.contains("what was fetched is not valid"));
        assert_eq!(refused, None, "seed {seed}");
    }
}

#[test]
fn a_log_at_its_cap_is_taken_over_and_trimmed() {
    for seed in 1..=8 {
        let ordinary = without_faults(seed);
        let limits = windlass::engine::Limits { retention_bytes: 2 * SEGMENT_BYTES, ..ordinary.limits };
        let process = vec![(Strike::Promote, 4), (Strike::KillPrimary, 2)];
        let setting = Setting {
            process,
            limits,
            retention_bytes: SEGMENT_BYTES,
            append_ns: 100_000,
            append_most: 16,
            fault_ns: 20_000_000,
            ..ordinary
        };
        let report = run_with(seed, setting, true);
        check(&report);
        assert!(report.coverage.count(Mark::AppendRefused) > 0);
    }
}

#[test]
fn what_is_whole_behind_damage_is_written_again_before_it_counts_r11() {
    let mut repaired = 0;
    for seed in 1..=24 {
        let ordinary = without_faults(seed);
        let process = vec![(Strike::FlushFails, 4), (Strike::RotWhileDown, 3), (Strike::Kill, 1)];
        let setting = Setting { process, replicated_allowed: false, fault_ns: 20_000_000, ..ordinary };
        let report = run_with(seed, setting, true);
        check(&report);
        repaired += report.coverage.count(Mark::DamageRepaired);
    }
    assert!(repaired > 0, "nothing was damaged and repaired");
}

#[test]
fn the_number_of_an_immediate_matters_to_nobody() {
    for seed in 1..=3 {
        let mut settings = [Setting::of(seed), Setting::of(seed)];
        (settings[0].fabric.immediates_garbled, settings[1].fabric.immediates_garbled) = (false, true);
        let [sent, garbled] = settings.map(|setting| run_with(seed, setting, true));
        check(&garbled);
        assert!(garbled.coverage.count(Mark::ImmediateGarbled) > 0);
        assert_eq!(sent.coverage.count(Mark::ImmediateGarbled), 0);
        assert_eq!((sent.digest, sent.events), (garbled.digest, garbled.events));
    }
}

#[test]
fn a_group_that_changes_keeps_every_promise_and_settles() {
    let kinds = [
        Mark::MemberAdded,
        Mark::MemberReplaced,
        Mark::QuorumsChanged,
        Mark::LearnerVotes,
        Mark::NotAMember,
        Mark::TakenOverOpen,
    ];
    let mut met = Vec::new();
    for seed in [3, 7, 11, 15, 19, 27] {
        let mut setting = Setting::of(seed);
        (setting.spares, setting.change_ns, setting.changes_sizes) = (4, 15_000_000, true);
        setting.devices.resize(usize::from(setting.all()), Device::Any);
        let report = run_with(seed, setting, true);
        check(&report);
        met.extend(kinds.into_iter().filter(|kind| report.coverage.count(*kind) > 0));
    }
    for kind in kinds {
        assert!(met.contains(&kind), "no seed has met: {}", kind.name());
    }
}

#[test]
fn a_member_that_comes_back_with_an_empty_disk_is_replaced_by_another() {
    let mut replaced = 0;
    for seed in 1..=6 {
        let mut setting = without_faults(seed);
        (setting.spares, setting.change_ns) = (4, 10_000_000);
        setting.devices.resize(usize::from(setting.all()), Device::Any);
        (setting.process, setting.fault_ns) = (vec![(Strike::DiskEmptied, 1)], 20_000_000);
        setting.faulty_ns = setting.faulty_ns.max(400_000_000);
        let report = run_with(seed, setting, true);
        check(&report);
        replaced += report.coverage.count(Mark::EmptiedReplaced);
    }
    assert!(replaced > 0, "nobody was replaced");
}

#[test]
fn a_switch_leaves_the_group_as_it_was_founded() {
    let mut setting = Setting::of(3);
    assert!(setting.change_ns > 0 && setting.switch_off("Change") && setting.switch_off("Quorums"));
    let report = run_with(3, setting, true);
    check(&report);
    let changes = [Mark::MemberAdded, Mark::MemberRemoved, Mark::PrimaryRemoved, Mark::QuorumsChanged];
    assert!(changes.iter().all(|mark| report.coverage.count(*mark) == 0));
}

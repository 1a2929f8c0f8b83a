//! Small worlds, each gone through whole: every order of every event within its bounds (`world/mod.rs`, DESIGN.md section 8.10).
//! `cargo xtask worlds --help` runs larger ones.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm,
    reason = "a test"
)]

#[allow(dead_code, reason = "of the scenarios only the words are needed")]
mod scenario;
mod world;

use world::Setting;
use world::explore::walk::{Beginning, Walked, walk};
use world::explore::{Report, Violation, explore};

/// All of it, without a violation; orders that come to the same once.
fn whole(name: &str, setting: Setting) -> Report {
    let report = explore(&Setting { reduced: true, ..setting.clone() }, None);
    println!("{name}: {report}");
    if let Some(Violation { what, trace }) = &report.violation {
        panic!("{name}: {what}\n{setting:?}\n{trace}");
    }
    assert!(report.is_complete, "{name}: {report}");
    report
}

/// All of it, in every order and once more without those that come to the same: what is seen of the members and by the oracle is
/// the same, and so is what does not hold. The two reports.
fn both_ways(name: &str, setting: Setting) -> [Report; 2] {
    let [every, fewer] = [false, true].map(|reduced| {
        let report = explore(&Setting { reduced, lists_reached: true, ..setting.clone() }, None);
        println!("{name}, {}: {report}", if reduced { "reduced" } else { "every order" });
        assert!(report.is_complete && report.violation.is_none(), "{name}: {report} {:?}", report.violation);
        report
    });
    assert!(every.reached == fewer.reached, "{name}: {} and {}", every.reached.len(), fewer.reached.len());
    assert_eq!(every.violations, fewer.violations, "{name}");
    assert!(every.states > fewer.states && fewer.absorbed > 0, "{name}: nothing is left out");
    [every, fewer]
}

/// `both_ways`, where nothing may be wrong.
fn whole_both_ways(name: &str, setting: Setting) -> Report {
    let [every, _] = both_ways(name, setting);
    assert!(every.violations.is_empty(), "{name}: {:?}", every.violations);
    every
}

#[test]
fn three_records_through_a_takeover() {
    let report = whole("three records", Setting { records: 3, ..Setting::default() });
    // A world in which nothing happens proves nothing.
    assert!(report.states > 300_000 && report.tenures > 20, "{report}");
}

#[test]
fn a_record_and_a_death_at_any_step() {
    let report = whole("a death", Setting { records: 1, crashes: 1, ..Setting::default() });
    assert!(report.states > 300_000, "{report}");
    whole_both_ways("a death, no record", Setting { records: 0, crashes: 1, ..Setting::default() });
}

#[test]
fn two_takeovers_in_any_order() {
    let report = whole_both_ways("three epochs", Setting { epochs: 3, records: 0, ..Setting::default() });
    assert!(report.states > 50_000 && report.tenures > 20, "{report}");
}

#[test]
fn notices_completions_and_flushes_that_take_their_time() {
    let apart =
        Setting { flush_apart: true, completions_apart: true, notices_apart: true, ..Setting::default() };
    whole_both_ways("all apart", apart.clone());
    whole("all apart, replicated", Setting { replicated: true, ..apart });
}

#[test]
fn every_operation_of_the_store_by_itself() {
    whole_both_ways("store in steps", Setting { store_in_steps: true, ..Setting::default() });
}

#[test]
fn power_lost_with_any_part_of_what_was_not_flushed() {
    whole_both_ways(
        "power",
        Setting { records: 0, power_losses: 1, flush_apart: true, ..Setting::default() },
    );
}

#[test]
fn connections_that_break_and_are_cut() {
    whole_both_ways("a break", Setting { breaks: 1, ..Setting::default() });
    whole_both_ways("a cut", Setting { records: 0, cuts: 1, ..Setting::default() });
}

#[test]
fn a_group_begins() {
    whole("genesis", Setting { epochs: 2, records: 1, from_genesis: true, ..Setting::default() });
}

#[test]
fn the_group_changes_through_the_log_r20() {
    let change = Setting { epochs: 1, records: 0, changes: 1, ..Setting::default() };
    let spare = Setting { members: 4, spares: 1, ..change.clone() };
    // One that learns, and then one that votes.
    let report = whole_both_ways("added", Setting { adds: true, ..spare.clone() });
    assert_eq!(report.configuration, 2, "{report}");
    let report = whole("replaced", Setting { replaces: true, ..spare });
    assert_eq!(report.configuration, 2, "{report}");
    let report = whole_both_ways("removed", Setting { epochs: 2, removes: true, ..change });
    assert!(report.configuration == 1 && report.tenures > 4, "{report}");
}

#[test]
fn an_arrival_that_is_taken_for_one_without_effect_is_found() {
    let setting = Setting { store_in_steps: true, ..Setting::default() };
    let wrong = Setting { reduced: true, absorbs_too_much: true, ..setting };
    let report = explore(&wrong, None);
    let Violation { what, .. } = report.violation.expect("an offer is answered once a cut is done");
    assert!(what.starts_with("not sound: ") && !report.is_complete, "{what}");
}

#[test]
fn a_property_that_does_not_hold_is_found_and_its_trace_reads_as_a_scenario() {
    let nobody_promises_again = |facts: &[&world::Facts]| {
        let again = facts.iter().find(|facts| facts.promised.counter() > 1);
        again.map_or(Ok(()), |facts| Err(format!("{} is promised", facts.promised)))
    };
    let report = explore(&Setting::default(), Some(nobody_promises_again));
    let Violation { what, trace } = report.violation.expect("somebody promises the second epoch");
    assert!(what.ends_with("is promised"), "{what}");
    let inputs: Vec<&str> = trace.lines().filter(|line| line.starts_with('<')).collect();
    assert!(inputs.contains(&"< suspect") && inputs.iter().any(|line| line.contains("saved t")), "{trace}");
    inputs.into_iter().for_each(scenario::reads);
    assert!(trace.lines().any(|line| line.starts_with("> send m1 fence ")), "{trace}");
    assert!(trace.trim_end().lines().next_back().unwrap().starts_with("# VIOLATION "), "{trace}");
}

#[test]
fn a_broken_commit_rule_is_found() {
    let broken = Setting { placed_is_durable: true, flush_apart: true, ..Setting::default() };
    let setting = Setting { epochs: 1, from_genesis: true, ..broken };
    let report = explore(&setting, None);
    let Violation { what, trace } = report.violation.expect("what is placed is not durable");
    assert!(what.starts_with("I-2: "), "{what}");
    assert!(trace.contains("> committed "), "{trace}");
    let [every, _] = both_ways("commit by placed", setting);
    assert!(every.violations.iter().any(|what| what.starts_with("I-2: ")), "{:?}", every.violations);
}

/// A rule taken away from the engine, and a world that is wide enough to need it.
#[cfg(planted)]
#[test]
fn planted_bugs_of_the_engine_are_found() {
    use windlass_log::planted::{Bug, plant};
    let genesis = Setting { epochs: 1, from_genesis: true, flush_apart: true, ..Setting::default() };
    let takeover = Setting { flush_apart: true, ..Setting::default() };
    let power = Setting { replicated: true, power_losses: 1, flush_apart: true, ..Setting::default() };
    let spare = Setting { members: 4, spares: 1, changes: 1, reduced: true, ..Setting::default() };
    for (bug, setting) in [
        (Bug::LearnerCounted, Setting { epochs: 1, adds: true, flush_apart: true, ..spare.clone() }),
        (Bug::PredecessorForgotten, Setting { records: 0, replaces: true, ..spare }),
        (Bug::CommitByPlaced, genesis),
        (Bug::R16, takeover.clone()),
        (Bug::R20, takeover),
        (
            Bug::R17,
            Setting { epochs: 3, records: 2, reduced: true, states_max: 20_000_000, ..Setting::default() },
        ),
        (Bug::R19, power),
    ] {
        plant(bug);
        let report = explore(&setting, None);
        plant(Bug::None);
        let violation = report.violation.as_ref().map(|violation| &violation.what[..]);
        println!("{}: {report}: {violation:?}", bug.name());
        assert!(violation.is_some(), "{} is not found in {setting:?}", bug.name());
    }
}

/// Each is found in the same ways where orders that come to the same are gone through once.
#[cfg(planted)]
#[test]
fn planted_bugs_do_the_same_wrong_both_ways() {
    use windlass_log::planted::{Bug, plant};
    let genesis = Setting { epochs: 1, from_genesis: true, flush_apart: true, ..Setting::default() };
    let takeover = Setting { flush_apart: true, ..Setting::default() };
    for (bug, setting) in [(Bug::CommitByPlaced, genesis), (Bug::R16, takeover.clone()), (Bug::R20, takeover)]
    {
        plant(bug);
        let [every, _] = both_ways(bug.name(), setting);
        plant(Bug::None);
        println!("{}: {} kinds of violations", bug.name(), every.violations.len());
        assert!(!every.violations.is_empty(), "{} does nothing wrong", bug.name());
    }
}

/// What a walk's input might be.
fn choices(seed: u64) -> Vec<u8> {
    let mut random = seed;
    let choices = (0..800).map(|_| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) as u8
    });
    choices.collect()
}

#[test]
fn ways_through_a_wide_world_hold_and_get_somewhere() {
    let beginning = Beginning::new(&Setting { members: 5, ..Setting::wide() });
    let mut total = Walked::default();
    for seed in 0..60_u64 {
        let walked = match walk(&beginning, &choices(seed)) {
            Ok(walked) => walked,
            Err(Violation { what, trace }) => panic!("seed {seed}: {what}\n{trace}"),
        };
        total.steps += walked.steps;
        total.tenures += walked.tenures;
        total.deaths += walked.deaths;
        total.acknowledged += walked.acknowledged;
    }
    println!("{total:?}");
    assert!(total.tenures > 60 && total.deaths > 60 && total.acknowledged > 60, "{total:?}");
}

#[test]
fn a_way_to_what_does_not_hold_is_found_and_shown() {
    let setting = Setting { placed_is_durable: true, from_genesis: true, ..Setting::wide() };
    let beginning = Beginning::new(&setting);
    let found = (0..60).find_map(|seed| walk(&beginning, &choices(seed)).err());
    let Violation { what, trace } = found.expect("a broken commit rule is found");
    assert!(what.starts_with("I-2"), "{what}");
    assert!(trace.contains(&format!("# VIOLATION {what}")), "{trace}");
}

#[test]
fn every_token_is_known_to_the_canonical_form() {
    // Those that it does not know would make engines that are equal look different, or be answered in vain.
    let report = explore(
        &Setting { crashes: 1, handovers: 1, records: 0, counts_tokens: true, ..Setting::default() },
        None,
    );
    assert!(report.violation.is_none(), "{:?}", report.violation);
}

#[test]
#[ignore = "by hand: cargo xtask worlds"]
fn by_hand() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let small = |name: &str, default: u8| number(name).map_or(default, |n| u8::try_from(n).expect("small"));
    let flag = |name: &str| small(name, 0) > 0;
    let setting = Setting {
        members: small("WORLD_MEMBERS", 3),
        epochs: small("WORLD_EPOCHS", 2),
        records: small("WORLD_RECORDS", 1),
        crashes: small("WORLD_CRASHES", 0),
        power_losses: small("WORLD_POWER_LOSSES", 0),
        breaks: small("WORLD_BREAKS", 0),
        cuts: small("WORLD_CUTS", 0),
        beats: small("WORLD_BEATS", 0),
        resigns: small("WORLD_RESIGNS", 0),
        handovers: small("WORLD_HANDOVERS", 0),
        spares: small("WORLD_SPARES", 0),
        changes: small("WORLD_CHANGES", 0),
        adds: flag("WORLD_ADDS"),
        removes: flag("WORLD_REMOVES"),
        replaces: flag("WORLD_REPLACES"),
        replicated: flag("WORLD_REPLICATED"),
        store_in_steps: flag("WORLD_STORE_IN_STEPS"),
        flush_apart: flag("WORLD_FLUSH_APART"),
        completions_apart: flag("WORLD_COMPLETIONS_APART"),
        notices_apart: flag("WORLD_NOTICES_APART"),
        from_genesis: flag("WORLD_FROM_GENESIS"),
        placed_is_durable: flag("WORLD_PLACED_IS_DURABLE"),
        states_max: number("WORLD_STATES").map_or(usize::MAX, |n| usize::try_from(n).expect("fits")),
        says_how_far: true,
        reduced: flag("WORLD_REDUCED"),
        ..Setting::default()
    };
    let report = explore(&setting, None);
    println!("{setting:?}\n{report}");
    if let Some(Violation { what, trace }) = report.violation {
        panic!("{what}\n{trace}");
    }
}

//! The table over every combination of facts, and against DESIGN.md.

use std::collections::HashSet;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::*;

const SUPERBLOCKS: [Superblocks; 6] = [
    Superblocks::Absent,
    Superblocks::AbsentBesideSegments,
    Superblocks::Damaged,
    Superblocks::Foreign,
    Superblocks::OtherLog,
    Superblocks::Usable,
];
const HOLDERS: [Holder; 2] = [Holder::Lone, Holder::Member];
const PLACES: [Place; 3] = [Place::Own, Place::Copy, Place::CopyToTakeOver];
const OLDER: [Older; 4] = [Older::Whole, Older::Missing, Older::BadHeader, Older::Foreign];
const FOUND: [Found; 10] = [
    Found::Blank,
    Found::Leftover,
    Found::Begun,
    Found::NoSegment,
    Found::BadSegmentHeader,
    Found::ForeignSegment,
    Found::LaterRecord,
    Found::WrongChain,
    Found::NoEpoch,
    Found::NoEpochs,
];
const CLEAN: [CleanMark; 3] = [CleanMark::Absent, CleanMark::AtStop, CleanMark::BelowStop];
const MODES: [OpenMode; 3] = [OpenMode::Strict, OpenMode::Tail, OpenMode::Salvage];

fn all_facts() -> Vec<Facts> {
    let mut all = vec![Facts::SOUND];
    /// Each of the facts so far with each value of one more.
    fn with<T: Copy>(all: Vec<Facts>, values: &[T], set: impl Fn(&mut Facts, T)) -> Vec<Facts> {
        let each = all.into_iter().flat_map(|facts| values.iter().map(move |value| (facts, *value)));
        each.map(|(mut facts, value)| {
            set(&mut facts, value);
            facts
        })
        .collect()
    }
    let both = [false, true];
    all = with(all, &SUPERBLOCKS, |facts, value| facts.superblocks = value);
    all = with(all, &HOLDERS, |facts, value| facts.holder = value);
    all = with(all, &PLACES, |facts, value| facts.place = value);
    all = with(all, &both, |facts, value| facts.misfit = value);
    all = with(all, &both, |facts, value| facts.newer = value);
    all = with(all, &OLDER, |facts, value| facts.older = value);
    all = with(all, &FOUND, |facts, value| facts.found = value);
    all = with(all, &CLEAN, |facts, value| facts.clean = value);
    all = with(all, &both, |facts, value| facts.flushed = value);
    all = with(all, &both, |facts, value| facts.behind = value);
    with(all, &both, |facts, value| facts.missed = value)
}

#[test]
fn exactly_one_row_matches_any_combination_of_facts() {
    let all = all_facts();
    assert_eq!(all.len(), 6 * 2 * 3 * 2 * 2 * 4 * 10 * 3 * 8);
    let mut seen = HashSet::new();
    for facts in &all {
        let rows = table::TABLE.iter().filter(|rule| rule.matches(facts)).count();
        assert_eq!(rows, 1, "{facts:?}");
        seen.insert(facts.row());
    }
    assert_eq!(seen.len(), Row::all().len(), "every row is some combination's");
    let mut onward = HashSet::new();
    for holder in HOLDERS {
        for bits in 0_u8..8 {
            let (clean, copied, chain) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
            onward.insert(Going { holder, clean, copied, chain }.row());
        }
    }
    assert_eq!(onward.len(), Onward::all().len());
}

#[test]
fn a_row_of_an_earlier_step_matches_whatever_later_steps_would_have_found() {
    for facts in all_facts() {
        let Facts { superblocks, holder, place, misfit, newer, older, .. } = facts;
        let steps = [
            Facts { superblocks, holder, ..Facts::SOUND },
            Facts { superblocks, holder, place, ..Facts::SOUND },
            Facts { superblocks, holder, place, misfit, ..Facts::SOUND },
            Facts { superblocks, holder, place, misfit, newer, ..Facts::SOUND },
            Facts { superblocks, holder, place, misfit, newer, older, ..Facts::SOUND },
        ];
        let sound = Facts::SOUND.row();
        if let Some(early) = steps.iter().map(Facts::row).find(|row| *row != sound) {
            assert_eq!(facts.row(), early, "{facts:?}");
        }
    }
}

#[test]
fn what_was_flushed_is_never_cut_and_only_the_peers_of_a_member_mend_it() {
    for facts in all_facts() {
        let row = facts.row();
        for mode in MODES {
            let action = facts.action(mode);
            assert_eq!(action == Action::Open, row.class() == Class::End && mode != OpenMode::Salvage);
            assert_eq!(action == Action::Cut, row.class() == Class::Torn && mode == OpenMode::Tail);
            assert!(action != Action::Cut || !facts.flushed, "{facts:?}");
            assert!(action != Action::Open || !facts.flushed, "{facts:?}");
            if action == Action::Repair {
                assert_eq!(
                    (facts.holder, row.class(), mode),
                    (Holder::Member, Class::Damage, OpenMode::Tail)
                );
                let is_of_this_log = facts.superblocks == Superblocks::Usable && !facts.newer;
                assert!(is_of_this_log, "what a superblock says nobody else has");
            }
        }
    }
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Open => "open",
        Action::Cut => "cut, open",
        Action::Repair => "repair",
        Action::Refuse => "refuse",
        Action::ReadOnly => "read",
    }
}

fn class(row: Row) -> &'static str {
    match row.class() {
        Class::End => "end",
        Class::Torn => "torn",
        Class::Damage => "damage",
        Class::Foreign => "foreign",
    }
}

/// The table as DESIGN.md section 6.1 must have it, line by line.
fn page() -> Vec<String> {
    let mut lines = Vec::new();
    for row in Row::all() {
        let lone = word(row.action(OpenMode::Tail, Holder::Lone));
        let member = word(row.action(OpenMode::Tail, Holder::Member));
        let tail =
            if lone == member { String::from(lone) } else { std::format!("{lone}; a member: {member}") };
        let strict = word(row.action(OpenMode::Strict, Holder::Lone));
        assert_eq!(strict, word(row.action(OpenMode::Strict, Holder::Member)));
        let salvage = word(row.action(OpenMode::Salvage, Holder::Lone));
        let (label, when, class) = (row.label(), row.when(), class(row));
        lines
            .push(std::format!("| {label} | `{row:?}` | {when} | {class} | {strict} | {tail} | {salvage} |"));
    }
    for row in Onward::all() {
        let rewrite = match row.rewrite() {
            Rewrite::Nothing => "nothing",
            Rewrite::FromMark => "from the persisted mark",
            Rewrite::FromTrim => "from the trim point",
        };
        let superblock = match (row.settles(), row.reincarnates()) {
            (false, _) => "as it is",
            (true, false) => "mark, boot id",
            (true, true) => "mark, boot id, place, incarnation",
        };
        let epoch = match (row.begins_epoch(), row) {
            (true, _) => "a new one at the tail",
            (false, Onward::Closed) => "the last one",
            (false, _) => "its primary's",
        };
        lines.push(std::format!(
            "| {} | `{row:?}` | {} | {rewrite} | {superblock} | {epoch} |",
            row.label(),
            row.when()
        ));
    }
    lines
}

#[test]
fn the_table_in_design_md_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../DESIGN.md");
    let design = std::fs::read_to_string(path).expect("DESIGN.md lies at the workspace's top");
    let found: Vec<&str> = design.lines().filter(|line| line.starts_with("| D-")).collect();
    let expected = page();
    assert!(
        found == expected,
        "DESIGN.md section 6.1 must have exactly these lines:\n{}",
        expected.join("\n")
    );
}

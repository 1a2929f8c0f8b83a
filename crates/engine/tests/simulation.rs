//! Three and five engines over a network that delays, loses and cuts, with members that crash, lose power, sleep and rot, on
//! virtual time. A hundred seeds run in the ordinary test, and every seed that ever failed.
//!
//! * `WINDLASS_SEEDS=5000 cargo test -p windlass-engine --release --test simulation` runs more; `WINDLASS_SEED_FIRST` says
//!   from where.
//! * `WINDLASS_SEED=17 WINDLASS_TRACE=1 cargo test -p windlass-engine --test simulation one_seed -- --nocapture` shows one.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "a test")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use windlass_engine::{Input, Limits, Quorums};
use windlass_log::{Geometry, Lsn, MemberId};

mod sim;

use sim::world::{MS, Setting, World};

/// Seeds that failed once. Each stays here for ever.
const REGRESSIONS: &str = include_str!("simulation_regressions.txt");

fn setting(seed: u64) -> Setting {
    let mut rng = sim::rng::Rng::new(seed ^ 0x5eed);
    let members = if seed % 3 == 2 { 5 } else { 3 };
    let replicated_allowed = rng.chance(50);
    let limits = Limits {
        batch_bytes: [4096, 5000, 64 << 10][rng.index(3)],
        batches_in_flight: [1, 1, 3][rng.index(3)],
        stream_bytes: if seed.is_multiple_of(2) { 1 << 10 } else { 64 << 10 },
        stream_batches_in_flight: 4,
        notice_slots: [1, 2, 16][rng.index(3)],
        segments_ahead: [1, 2][rng.index(2)],
        retention_bytes: [64 << 10, 256 << 10, 1 << 30][rng.index(3)],
        fetch_bytes: [4096, 64 << 10][rng.index(2)],
        flush_lag_bytes: [4096, 1 << 20][rng.index(2)],
    };
    let geometry = Geometry::new(64 << 10).unwrap();
    let misplace = !replicated_allowed && rng.chance(20);
    // Half of the runs with majorities, the others with sizes of their own. A write quorum of one would promise nothing where a medium is lost.
    let sizes: &[(u8, u8)] = if members == 3 {
        &[(3, 1), (2, 2), (2, 3), (3, 2)]
    } else {
        &[(2, 4), (4, 2), (3, 3), (5, 1), (3, 4)]
    };
    let (write, takeover) = sizes[rng.index(sizes.len())];
    let quorums = if rng.chance(50) { Quorums::Majority } else { Quorums::Sizes { write, takeover } };
    let spares = if rng.chance(60) { 4 } else { 0 };
    Setting { members, spares, replicated_allowed, quorums, limits, geometry, misplace }
}

struct Outcome {
    acknowledged: usize,
    takeovers: u64,
    replicated_commits: u64,
    snapshots: u64,
    words_refused: u64,
    unknown: u64,
    changes: u64,
    configurations: u64,
    trace: Option<u64>,
}

fn member(at: usize) -> MemberId {
    MemberId(u8::try_from(at).unwrap())
}

/// Faults for a while, then healing, then the world must work again.
fn run(seed: u64) -> Outcome {
    run_traced(seed, None)
}

fn run_traced(seed: u64, trace: Option<u64>) -> Outcome {
    let mut world = World::new(seed, setting(seed));
    world.trace = trace;
    let count = world.nodes.len();
    let quorum = count / 2 + 1;
    let start = world.now;
    let faulty_until = start + 2_500 * MS;
    let mut next_fault = start + world.rng.range(150 * MS, 500 * MS);
    let mut down_until = vec![0; count];
    while world.now < faulty_until {
        let until = world.now + world.rng.range(MS / 10, 4 * MS);
        world.run(until);
        (0..count).for_each(|at| world.give_words_where_nothing_is(at));
        load(&mut world);
        for (at, until) in down_until.iter().enumerate() {
            let is_down = world.nodes[at].engine.is_none() && world.nodes[at].has_joined;
            if is_down && world.now >= *until {
                world.start(at);
            }
        }
        if world.now >= next_fault {
            next_fault = world.now + world.rng.range(20 * MS, 250 * MS);
            fault(&mut world, &mut down_until, quorum);
        }
    }
    // Healing: everything comes back, and stays.
    world.heal();
    for at in 0..count {
        if !world.nodes[at].has_joined {
            continue;
        }
        if world.nodes[at].engine.is_none() {
            world.start(at);
        }
        world.nodes[at].flush_ns = 200_000;
        if world.nodes[at].stalled || world.status(at).is_some_and(|status| status.stopped.is_some()) {
            world.crash(at);
            world.start(at);
        }
    }
    let healed = world.now;
    let mut probes = 0;
    while world.now < healed + 4_000 * MS {
        let until = world.now + 5 * MS;
        world.run(until);
        if world.now > healed + 500 * MS && probes < 20 {
            for at in world.primaries() {
                probes += usize::from(world.append(at, 100, true));
            }
        }
        let Some(settled) = world.settled() else { continue };
        let members: Vec<usize> = settled.voters().map(|voter| usize::from(voter.0)).collect();
        let statuses: Vec<_> = members.iter().filter_map(|at| world.status(*at)).collect();
        let end = world.oracle.committed_end();
        let whole = statuses.iter().all(|s| s.durable == end && s.tail == end && !s.damaged);
        if probes >= 20 && whole && world.primaries().len() == 1 {
            break;
        }
    }
    let settled = world.settled().expect("after healing nobody goes on learning");
    let members: Vec<usize> = settled.voters().map(|voter| usize::from(voter.0)).collect();
    let statuses: Vec<_> = members.iter().map(|at| world.status(*at).unwrap()).collect();
    let primaries = world.primaries();
    assert_eq!(primaries.len(), 1, "after healing one member leads: {statuses:#?}");
    let end = world.oracle.committed_end();
    for (at, status) in members.iter().copied().zip(&statuses) {
        assert!(
            status.durable == end && status.tail == end && !status.damaged,
            "m{at} did not catch up with {end}: {statuses:#?}"
        );
        let node = &world.nodes[at];
        let state = &node.superblock;
        let engine = node.engine.as_ref().unwrap();
        assert_eq!(engine.configuration(), &settled, "m{at} has another configuration");
        assert!(
            engine.is_configuration_committed(),
            "m{at} does not know that its configuration is committed"
        );
        world.oracle.finish(member(at), &node.image, &state.history, state.trimmed, status.durable);
    }
    assert!(probes >= 20, "no appends after healing: {statuses:#?}");
    Outcome {
        acknowledged: world.oracle.acknowledged_count(),
        takeovers: world.oracle.takeovers,
        replicated_commits: world.replicated_commits,
        snapshots: world.snapshots,
        words_refused: world.words_refused,
        unknown: world.unknown,
        changes: world.changes,
        configurations: settled.number(),
        trace: world.trace,
    }
}

fn load(world: &mut World) {
    for at in world.primaries() {
        for _ in 0..world.rng.range(0, 4) {
            let payload = match world.rng.range(0, 20) {
                0 => world.rng.range(2000, 12_000),
                1 => 0,
                _ => world.rng.range(1, 300),
            };
            let wants_durable = world.rng.chance(60);
            world.append(at, usize::try_from(payload).unwrap(), wants_durable);
        }
        if world.rng.chance(2) {
            let to = world.status(at).map_or(Lsn(0), |status| status.durable);
            world.tell(at, Input::Trim { to });
        }
    }
}

fn fault(world: &mut World, down_until: &mut [u64], quorum: usize) {
    let count = world.nodes.len();
    let at = world.rng.index(count);
    let now = world.now;
    let up = world.nodes.iter().filter(|node| node.engine.is_some()).count();
    match world.rng.range(0, if world.setting.spares > 0 { 21 } else { 16 }) {
        16.. => world.change_something(),
        0..=2 if world.nodes[at].engine.is_some() && (up > quorum || world.rng.chance(30)) => {
            world.crash(at);
            down_until[at] = now + world.rng.range(MS, 400 * MS);
        }
        3 if world.nodes[at].engine.is_some() => {
            // Whoever leads dies.
            if let Some(at) = world.primaries().first().copied() {
                world.crash(at);
                down_until[at] = now + world.rng.range(MS, 300 * MS);
            }
        }
        4 | 5 if world.nodes[at].engine.is_some() => {
            // A loss of memory beyond a minority at once is outside what `Replicated` promises.
            let lost = (0..count).filter(|n| *n != at && has_lost_memory(world, *n)).count();
            if lost == 0 || !world.setting.replicated_allowed {
                world.lose_power(at);
                down_until[at] = now + world.rng.range(MS, 300 * MS);
                if world.rng.chance(25) && is_alone_damaged(world, at) {
                    world.rot(at);
                }
            }
        }
        6 if !world.setting.replicated_allowed => {
            // Power loss everywhere.
            for (at, until) in down_until.iter_mut().enumerate() {
                if world.nodes[at].engine.is_some() {
                    world.lose_power(at);
                    *until = now + world.rng.range(MS, 150 * MS);
                }
            }
        }
        7 | 8 => {
            let to = world.rng.index(count);
            if to != at {
                world.cut(at, to);
                if world.rng.chance(50) {
                    world.cut(to, at);
                }
            }
        }
        9 => {
            for other in 0..count {
                if other != at {
                    world.cut(at, other);
                    if world.rng.chance(80) {
                        world.cut(other, at);
                    }
                }
            }
        }
        10 | 11 => world.heal(),
        12 => world.nodes[at].paused_until = now + world.rng.range(5 * MS, 250 * MS),
        13 => world.nodes[at].flush_ns = [200_000, 5 * MS, 30 * MS][world.rng.index(3)],
        14 => {
            let to = world.rng.index(count);
            if to != at {
                world.tell(at, Input::Handover { to: member(to) });
            }
        }
        15 if world.rng.chance(30) => world.tell(at, Input::Suspect),
        15 if world.rng.chance(30) => world.stall(at),
        _ => {}
    }
}

fn has_lost_memory(world: &World, at: usize) -> bool {
    world.nodes[at].memory_lost && world.nodes[at].engine.is_none() || world.nodes[at].superblock.memory_lost
}

fn is_alone_damaged(world: &World, at: usize) -> bool {
    (0..world.nodes.len()).filter(|n| *n != at).all(|n| {
        let node = &world.nodes[n];
        let damaged = world.status(n).is_some_and(|status| status.damaged);
        !damaged && node.superblock.mark.0 != Lsn(u64::MAX) && node.engine.is_some()
    })
}

fn check(seeds: impl IntoIterator<Item = u64>) -> (u64, Outcome) {
    let mut failed = Vec::new();
    let mut total = Outcome {
        acknowledged: 0,
        takeovers: 0,
        replicated_commits: 0,
        snapshots: 0,
        words_refused: 0,
        unknown: 0,
        changes: 0,
        configurations: 0,
        trace: None,
    };
    let mut runs = 0;
    for seed in seeds {
        runs += 1;
        match catch_unwind(AssertUnwindSafe(|| run(seed))) {
            Ok(outcome) => {
                total.acknowledged += outcome.acknowledged;
                total.takeovers += outcome.takeovers;
                total.replicated_commits += outcome.replicated_commits;
                total.snapshots += outcome.snapshots;
                total.words_refused += outcome.words_refused;
                total.unknown += outcome.unknown;
                total.changes += outcome.changes;
                total.configurations += outcome.configurations;
            }
            Err(_) => {
                eprintln!("seed {seed} failed");
                failed.push(seed);
            }
        }
    }
    assert!(failed.is_empty(), "of {runs} seeds these failed: {failed:?}");
    (runs, total)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn seeds_keep_every_promise_and_come_back_to_life() {
    let first = number("WINDLASS_SEED_FIRST").unwrap_or(1);
    let (runs, total) = check(first..first + number("WINDLASS_SEEDS").unwrap_or(100));
    println!(
        "{runs} seeds: {} acknowledged ({} of them at Replicated first), {} tenures, {} snapshots, {} unknown, \
         {} changes of the group asked for, {} made",
        total.acknowledged,
        total.replicated_commits,
        total.takeovers,
        total.snapshots,
        total.unknown,
        total.changes,
        total.configurations
    );
    // A run that does nothing proves nothing.
    assert!(total.takeovers >= 3 * runs, "too few takeovers: {}", total.takeovers);
    assert!(total.acknowledged as u64 >= 200 * runs, "too few appends: {}", total.acknowledged);
    assert!(total.replicated_commits > runs && total.unknown > runs);
    assert!(runs < 100 || total.snapshots > 0, "no member ever needed a snapshot");
    assert!(total.words_refused > 0, "no word was given to a member whose log is empty");
    assert!(total.configurations >= runs, "too few changes of the group: {}", total.configurations);
}

#[test]
fn seeds_that_failed_once_pass() {
    let seeds = REGRESSIONS.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    check(seeds.map(|line| line.split_whitespace().next().unwrap().parse().expect("a seed")));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [1, 2, 3, 5] {
        let traces = [(); 2].map(|()| run_traced(seed, Some(0)).trace);
        assert_eq!(traces[0], traces[1], "seed {seed}");
        assert_ne!(traces[0], Some(0), "nothing was traced");
    }
}

#[test]
fn one_seed() {
    if let Some(seed) = number("WINDLASS_SEED") {
        let outcome = run(seed);
        println!("{} acknowledged, {} tenures", outcome.acknowledged, outcome.takeovers);
    }
}

//! The head of a page that a member's log begins in, where devices move whole pages: it is sent as the peer has it.

use windlass_store::disk::Disk as _;

use super::damage_cases::{Rotten, file, goes_on, rest_inside_a_page, starts};
use super::*;

/// The bytes of the page that `tail` lies in, up to there.
fn head(sim: &Sim, at: usize, tail: Lsn) -> Vec<u8> {
    let (offset, length) = (tail.0 % SEGMENT_BYTES / 4096 * 4096, tail.0 % 4096);
    let mut bytes = vec![0; usize::try_from(length).unwrap()];
    let file = sim.members[at].disk.open(&file(tail), Access::Read).unwrap();
    assert_eq!(file.read_at(&mut bytes, offset).unwrap(), bytes.len());
    bytes
}

/// More is appended than is kept for who is away, and trimmed; then nobody appends any more, and the log ends inside a page that a record begins in. That end.
fn leave_behind(sim: &mut Sim, away: usize) -> Lsn {
    let running = |sim: &Sim| {
        (0..MEMBERS)
            .filter(|at| *at != away)
            .map(|at| sim.members[at].driver.as_ref().unwrap().status())
            .collect::<Vec<_>>()
    };
    let left = sim.driver(sim.primary().unwrap()).status().tail;
    let payload = vec![0xa5; 20 << 10];
    sim.is_idle = true;
    for _ in 0..4000 {
        let Some(log) = sim.primary().and_then(|at| sim.members[at].log.clone()) else { break };
        let info = log.info();
        if info.trimmed > left {
            break;
        }
        if info.tail.0 < info.durable.0 + SEGMENT_BYTES {
            let _ = log.append(&payload);
        }
        let _ = log.trim(Lsn(info.durable.0.saturating_sub(4 * SEGMENT_BYTES)));
        sim.round();
    }
    for _ in 0..40 {
        sim.is_idle = true;
        sim.until("all of two is flushed", |sim| {
            let all = running(sim);
            all.iter().all(|status| {
                (status.tail, status.durable, status.persisted.0) == (all[0].tail, all[0].tail, all[0].tail)
            })
        });
        let primary = sim.primary().unwrap();
        let (tail, last) = (sim.driver(primary).status().tail, *starts(sim, primary).last().unwrap());
        if last.0 / 4096 == (tail.0 - 1) / 4096 && !tail.0.is_multiple_of(4096) {
            assert!(sim.driver(primary).store().trimmed() > left);
            return tail;
        }
        sim.is_idle = false;
        let enough = sim.acknowledged.len() + 1;
        sim.until("one more", |sim| sim.acknowledged.len() >= enough);
    }
    panic!("no log ends so");
}

/// The application of a member that is behind has a checkpoint up to there, and its log begins there.
fn begin_at(sim: &mut Sim, at: usize, tail: Lsn, epoch: Epoch) {
    sim.open(at, 1);
    sim.until("it needs a checkpoint", |sim| {
        sim.members[at].driver.as_ref().unwrap().snapshot_need().is_some()
    });
    sim.driver(at).ask(Input::SnapshotInstalled { at: tail, epoch });
    sim.until("its log begins there", |sim| {
        let driver = sim.members[at].driver.as_ref().unwrap();
        (driver.store().trimmed(), driver.status().tail, driver.status().durable) == (tail, tail, tail)
    });
}

/// All have the log, trimmed alike: only then are logs compared.
fn trimmed_alike(sim: &mut Sim) {
    sim.idle_until_all_have_all();
    let log = sim.members[sim.primary().unwrap()].log.clone().unwrap();
    log.trim(log.info().durable).unwrap();
    sim.until("all are trimmed", |sim| {
        let mut all = sim.members.iter().map(|member| member.driver.as_ref().unwrap().store().trimmed());
        all.all(|trimmed| trimmed == log.info().durable)
    });
    sim.acknowledged.clear();
}

/// Found by the simulator, seed 10000719: a log that began at a checkpoint in the middle of a page has nothing of that page's head. As primary its member sent what it had there over what
/// a backup had flushed, whose log ends in the same page. Also where something of that head has rotted at the backup: that stays its own, to be found there.
#[test]
fn the_head_of_a_page_that_a_log_began_in_is_sent_as_the_peer_has_it_r18() {
    let mut leads = [0, 0];
    for seed in 50..58 {
        let world = if seed % 4 < 2 { World::stepped } else { World::without_windows };
        let (mut sim, primary) = led_over(seed, world(Files::WholePages));
        let (at, peer) = ((primary + 1) % MEMBERS, (primary + 2) % MEMBERS);
        sim.kill(at, None);
        let tail = leave_behind(&mut sim, at);
        let hurt = *starts(&mut sim, peer).last().unwrap();
        let epoch = sim.driver(peer).store().superblock().history.epoch_at(Lsn(tail.0 - 1)).unwrap();
        begin_at(&mut sim, at, tail, epoch);
        assert!(sim.driver(peer).store().trimmed() <= hurt, "the others have what lies before");
        let rotten = seed % 2 == 1;
        if rotten {
            Rotten::new(&sim, peer, hurt);
        }
        let heads = [at, peer].map(|member| head(&sim, member, tail));
        assert!(heads[0] != heads[1], "its member has nothing of it");
        let away = sim.primary().unwrap();
        sim.kill(away, None);
        if away == peer {
            continue;
        }
        sim.driver(at).ask(Input::Suspect);
        sim.until("one leads", |sim| sim.primary().is_some_and(|leads| leads != away));
        if sim.primary() != Some(at) {
            continue;
        }
        leads[usize::from(rotten)] += 1;
        sim.is_idle = false;
        let enough = sim.acknowledged.len() + 20;
        sim.until("acknowledgements", |sim| {
            assert!(head(sim, peer, tail) == heads[1], "seed {seed}: it was written over");
            assert!(head(sim, at, tail) == heads[0], "seed {seed}: it came into another log");
            sim.acknowledged.len() >= enough
        });
        let end = sim.driver(peer).status().tail;
        assert!(end.0 / 4096 > tail.0 / 4096, "the log has left the page");
        sim.open(away, 1);
        trimmed_alike(&mut sim);
        goes_on(&mut sim);
    }
    assert!(leads.iter().all(|leads| *leads > 0), "{leads:?}");
}

/// What has rotted below its own trim point a primary does not look at: nor does it send it, at the start of a session.
#[test]
fn the_head_of_a_page_that_rots_below_the_trim_point_is_not_sent_at_a_sessions_start_r18() {
    for seed in [70, 71, 72] {
        let (mut sim, primary) = led_over(seed, World::stepped(Files::WholePages));
        let at = (primary + 1) % MEMBERS;
        let hurt = rest_inside_a_page(&mut sim, primary);
        sim.kill(at, None);
        let rotten = trim_and_rot(&mut sim, primary, hurt);
        let tail = sim.driver(primary).status().tail;
        sim.open(at, 1);
        sim.is_idle = false;
        sim.until("its log goes on", |sim| {
            assert_ne!(rotten.read(sim, at), rotten.byte, "rot was sent to {at}");
            sim.members[at].driver.as_ref().unwrap().status().tail.0 > tail.0 + 4096
        });
        trimmed_alike(&mut sim);
        goes_on(&mut sim);
    }
}

/// Nor in the midst of one, which ends; the next one goes on.
#[test]
fn the_head_of_a_page_that_rots_below_the_trim_point_is_not_sent_in_the_midst_of_a_session_r18() {
    for seed in [80, 81, 82] {
        let (mut sim, primary) = led_over(seed, World::stepped(Files::WholePages));
        let hurt = rest_inside_a_page(&mut sim, primary);
        let tail = sim.driver(primary).status().tail;
        let rotten = trim_and_rot(&mut sim, primary, hurt);
        let broken = sim.driver(primary).group_metrics().sessions_broken;
        sim.is_idle = false;
        sim.until("their logs go on", |sim| {
            let mut others = (0..MEMBERS).filter(|at| *at != primary);
            others.all(|at| {
                assert_ne!(rotten.read(sim, at), rotten.byte, "rot was sent to {at}");
                sim.members[at].driver.as_ref().unwrap().status().tail.0 > tail.0 + 4096
            })
        });
        assert_eq!(sim.primary(), Some(primary), "it lacks nothing");
        assert!(sim.driver(primary).group_metrics().sessions_broken >= broken + 2, "seed {seed}");
        trimmed_alike(&mut sim);
        goes_on(&mut sim);
    }
}

/// The primary's log is trimmed up to its end, and one byte of the record at `lsn`, below that, rots.
fn trim_and_rot(sim: &mut Sim, primary: usize, lsn: Lsn) -> Rotten {
    let log = sim.members[primary].log.clone().unwrap();
    let tail = log.info().tail;
    log.trim(tail).unwrap();
    sim.until("it is trimmed", |sim| sim.members[primary].driver.as_ref().unwrap().store().trimmed() == tail);
    Rotten::new(sim, primary, lsn)
}

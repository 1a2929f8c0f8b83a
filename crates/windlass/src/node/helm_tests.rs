use std::sync::Arc;

use windlass_engine::{Config, Identity, Limits, Timing};
use windlass_log::{Geometry, LogId, MemberId};
use windlass_store::{Founding, Options, Store, UnsafeFilesystem};
use windlass_tcp::TcpFabric;
use windlass_tcp::auth::Secret;

use super::*;
use crate::clock::MonotonicClock;
use crate::commit::Level;
use crate::control::{ControlEvent, Frame};
use crate::driver::{DriverOptions, Parts, state};

/// A control plane without anybody.
struct Nobody;

impl ControlPlane for Nobody {
    fn set_members(&mut self, _: u64, _: &[windlass_engine::MemberEntry]) {}

    fn poll(&mut self) -> Option<ControlEvent> {
        None
    }

    fn send(&mut self, _peer: MemberId, _frame: Frame) {}
}

type TestHelm = Helm<TcpFabric, MonotonicClock, Nobody>;

const SEGMENT_BYTES: u64 = 64 << 10;

/// The helm of a group of one, which nobody steps yet.
fn helm(folder: &std::path::Path) -> Arc<TestHelm> {
    let around = crate::log::random_surroundings().unwrap();
    let (me, log_id) = (MemberId(1), LogId([3; 16]));
    let founding = Founding {
        log_id,
        member: me,
        incarnation: around.incarnation,
        segment_bytes: SEGMENT_BYTES,
        epoch: None,
        configuration: state::encode(&[], &[]),
    };
    let options = Options { unsafe_filesystem: UnsafeFilesystem::Use, ..Options::default() };
    let (store, opened) =
        Store::create(RealDisk::open(folder).unwrap(), &founding, &around, &options).unwrap();
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    let secret = Secret::new(b"of one test, and long enough for it").unwrap();
    let fabric = TcpFabric::open(windlass_tcp::Options::new(secret, log_id.0), logger.clone()).unwrap();
    let config = Config {
        me,
        identity: Identity { incarnation: around.incarnation, opening: 1, nonce: 1 },
        founding: windlass_engine::Configuration::founding([me]),
        geometry: Geometry::new(SEGMENT_BYTES).unwrap(),
        replicated_allowed: false,
        seed: 5,
        timing: Timing::default(),
        limits: Limits::default(),
    };
    let store = Arc::new(store);
    let parts = Parts {
        fabric,
        store: Arc::clone(&store),
        opened,
        clock: MonotonicClock::new(),
        control: Nobody,
        executor: Threads::start("test", true, || {}).unwrap(),
        staging: None,
    };
    let options = DriverOptions {
        scrub_bytes_per_second: 0,
        config,
        level: Level::Durable,
        retention_bytes: 16 * SEGMENT_BYTES,
        reservation_limit: Duration::from_secs(60),
        full_disk_limit: Duration::from_secs(60),
        logger: logger.clone(),
    };
    let driver = Driver::new(parts, options).unwrap();
    let inner = Inner::of(&driver, store, folder.to_path_buf(), logger);
    let helm = Arc::new(Helm::new(driver, inner, true));
    helm.i_am_pump();
    helm
}

fn turns(helm: &TestHelm) -> u64 {
    helm.turns.load(Ordering::Relaxed)
}

/// Ends with the test's own time limit, and no clock of its own.
fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn kind_31_while_the_pump_is_in_a_long_flush_the_relief_steps() {
    let folder = tempfile::tempdir().unwrap();
    let helm = helm(folder.path());
    let of_relief = Arc::clone(&helm);
    let relief = std::thread::spawn(move || of_relief.relieve());
    wait_until(|| helm.relief.get().is_some());

    let mut seat = helm.claim().unwrap();
    helm.turn(seat.as_mut().unwrap()).unwrap();
    helm.leave_to_relief();
    drop(seat);
    // The flush takes and takes; the driver takes its turns all the same.
    let before = turns(&helm);
    wait_until(|| turns(&helm) > before + 3);

    // Back from it, the pump has the driver again, and the relief keeps its hands off.
    let seat = helm.claim().unwrap();
    helm.back();
    let before = turns(&helm);
    std::thread::sleep(RELIEF_LOOK * 4);
    assert_eq!(turns(&helm), before);
    drop(seat);
    drop(helm.take());
    relief.join().unwrap();
}

#[test]
fn a_committer_steps_where_nobody_does_and_asks_to_where_somebody_does() {
    let folder = tempfile::tempdir().unwrap();
    let helm = helm(folder.path());

    // Somebody steps: the committer leaves word that it would have, once.
    let seat = helm.claim().unwrap();
    let before = turns(&helm);
    assert!(!helm.step_until(&|| true));
    assert_eq!(turns(&helm), before);
    assert!(helm.may_stand_by(seat.as_ref().unwrap()));
    assert!(!helm.may_stand_by(seat.as_ref().unwrap()));

    // As often as it likes, but as the only one: what several append is posted together.
    let by_another = || std::thread::scope(|scope| scope.spawn(|| helm.step_until(&|| true)).join().unwrap());
    assert!(!helm.step_until(&|| true) && !helm.step_until(&|| true));
    assert!(helm.may_stand_by(seat.as_ref().unwrap()));
    assert!(!helm.step_until(&|| true) && !by_another());
    assert!(!helm.may_stand_by(seat.as_ref().unwrap()));
    assert!(!helm.step_until(&|| true));
    assert!(helm.may_stand_by(seat.as_ref().unwrap()));
    drop(seat);

    // Nobody does: it takes turns until it is done, and bounds how long it does another's work.
    assert!(helm.step_until(&|| true));
    assert!(turns(&helm) > before);
    assert!(helm.step_until(&|| false));

    // The node ends: nobody steps what is gone.
    drop(helm.take());
    assert!(!helm.step_until(&|| true));
}

#[test]
fn who_stands_by_is_called_by_a_wake_and_comes_by_itself_when_nobody_steps() {
    let folder = tempfile::tempdir().unwrap();
    let helm = helm(folder.path());
    let returns = Arc::new(AtomicU64::new(0));
    let (of_pump, counted) = (Arc::clone(&helm), Arc::clone(&returns));
    let pump = std::thread::spawn(move || {
        for _ in 0..3 {
            of_pump.stand_by();
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    // Nobody steps, and nobody wakes it.
    wait_until(|| returns.load(Ordering::SeqCst) == 3);
    pump.join().unwrap();

    // A wake that comes before it stands by is not lost.
    helm.woken();
    helm.stand_by();
    let seat = helm.claim().unwrap();
    assert!(helm.woken.load(Ordering::SeqCst), "the next turn takes it");
    drop(seat);
    drop(helm.take());
}

/// A committer that is covered need not have woken yet: the pump that would wait for that keeps the driver, and the next commit takes two hand-overs again. And
/// one that has asked need not sleep yet: the pump that stood by for it would leave what it asked for alone.
#[test]
fn a_lone_committer_is_waited_for_from_when_it_asks_until_it_is_covered_and_not_until_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let helm = helm(folder.path());
    let mut seat = helm.claim().unwrap();
    let driver = seat.as_mut().unwrap();
    let turn = |driver: &mut Steered<TcpFabric, MonotonicClock, Nobody>| {
        helm.turn(driver).unwrap();
        if let Some(errand) = driver.executor_mut().take_errand() {
            errand.run();
        }
    };
    driver.ask(windlass_engine::Input::Suspect);
    while helm.inner.log().is_none() {
        turn(driver);
        driver.wait(Duration::from_millis(1)).unwrap();
    }
    let log = helm.inner.log().clone().unwrap();
    let port = Arc::clone(driver.port());
    let attends: Arc<dyn Attend> = helm.clone();
    port.attend(Arc::downgrade(&attends));
    std::thread::scope(|scope| {
        let appended = log.append(b"of a lone committer").unwrap();
        let committer = scope.spawn(move || log.commit_blocking(appended.end, Level::Durable).unwrap());
        wait_until(|| helm.asker.load(Ordering::SeqCst) != NOBODY);
        // Whether or not it sleeps by now.
        assert!(!helm.may_stand_by(driver));
        while port.durable.value() < appended.end {
            turn(driver);
        }
        // Whether or not it has woken by now.
        assert!(helm.may_stand_by(driver));
        assert_eq!(committer.join().unwrap().end(), appended.end);
    });
    drop(seat);
    drop(helm.take());
}

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use windlass_engine::{Message, Session};
use windlass_log::Epoch;

use super::*;
use crate::lines::Lines;

const WAIT: Duration = Duration::from_secs(10);

struct Site {
    listener: Option<TcpListener>,
    member: Member,
}

fn sites(count: u8) -> Vec<Site> {
    (0..count)
        .map(|id| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let member = Member { id: MemberId(id), address: listener.local_addr().unwrap() };
            Site { listener: Some(listener), member }
        })
        .collect()
}

fn identity(incarnation: u64, opening: u64) -> Identity {
    Identity { incarnation, opening, nonce: incarnation * 1000 + opening }
}

fn options(sites: &mut [Site], me: usize) -> ControlOptions {
    ControlOptions {
        me: sites[me].member.id,
        members: sites.iter().map(|site| site.member).collect(),
        log_id: LogId([7; 16]),
        identity: identity(me as u64, 1),
        terms: Terms { segment_bytes: 1 << 20, replicated: false, notice_slots: 16 },
        secret: Secret::new(*b"a secret of the group").unwrap(),
        listener: sites[me].listener.take().unwrap(),
        logger: Logger::root(slog::Discard, slog::o!()),
    }
}

fn next(control: &mut TcpControl) -> ControlEvent {
    let start = Instant::now();
    loop {
        if let Some(event) = control.poll() {
            return event;
        }
        assert!(start.elapsed() < WAIT, "nothing happens");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn stays_silent(control: &mut TcpControl) {
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(control.poll(), None);
}

fn message(counter: u64) -> Frame {
    Frame::Engine(Box::new(Message::PreVote { epoch: Epoch::new(counter, MemberId(1)), configuration: 0 }))
}

#[test]
fn two_members_meet_exchange_frames_in_order_and_see_the_end() {
    let mut sites = sites(2);
    let mut a = TcpControl::start(options(&mut sites, 0), || {}).unwrap();
    let mut b = TcpControl::start(options(&mut sites, 1), || {}).unwrap();
    assert_eq!(next(&mut a), ControlEvent::Up { peer: MemberId(1), identity: identity(1, 1) });
    assert_eq!(next(&mut b), ControlEvent::Up { peer: MemberId(0), identity: identity(0, 1) });
    for counter in 1..100 {
        a.send(MemberId(1), message(counter));
    }
    for counter in 1..100 {
        assert_eq!(next(&mut b), ControlEvent::Frame { peer: MemberId(0), frame: message(counter) });
    }
    let session = Session { epoch: Epoch::new(1, MemberId(1)), attempt: 1 };
    let offer = Frame::Offer { session, purpose: super::super::Purpose::Fetch, endpoint: vec![5; 200] };
    b.send(MemberId(0), offer.clone());
    assert_eq!(next(&mut a), ControlEvent::Frame { peer: MemberId(1), frame: offer });
    drop(a);
    assert_eq!(next(&mut b), ControlEvent::Down { peer: MemberId(0) });
}

#[test]
fn a_member_that_comes_back_is_dialled_again() {
    let mut sites = sites(2);
    let mut b = TcpControl::start(options(&mut sites, 1), || {}).unwrap();
    let a = TcpControl::start(options(&mut sites, 0), || {}).unwrap();
    assert_eq!(next(&mut b), ControlEvent::Up { peer: MemberId(0), identity: identity(0, 1) });
    drop(a);
    assert_eq!(next(&mut b), ControlEvent::Down { peer: MemberId(0) });
    sites[0].listener = Some(TcpListener::bind(sites[0].member.address).unwrap());
    let mut again = options(&mut sites, 0);
    again.identity = identity(0, 2);
    let _a = TcpControl::start(again, || {}).unwrap();
    assert_eq!(next(&mut b), ControlEvent::Up { peer: MemberId(0), identity: identity(0, 2) });
}

#[test]
fn a_wrong_secret_a_wrong_log_and_a_stranger_stay_out() {
    type Change = fn(&mut ControlOptions);
    let changes: [Change; 3] = [
        |options| options.secret = Secret::new(*b"another secret altogether").unwrap(),
        |options| options.log_id = LogId([8; 16]),
        // Its number is none of the group's.
        |_| {},
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut sites = sites(3);
        let mut known = options(&mut sites, 0);
        known.members.retain(|member| at != 2 || member.id != MemberId(1));
        let mut a = TcpControl::start(known, || {}).unwrap();
        let mut bad = options(&mut sites, 1);
        change(&mut bad);
        let mut b = TcpControl::start(bad, || {}).unwrap();
        stays_silent(&mut a);
        if at == 2 {
            assert_eq!(next(&mut b), ControlEvent::Outside { by: MemberId(0) });
        }
        stays_silent(&mut b);
    }
}

/// A member that was away while another one was added does not know that one's number, which is above all before it. It lets it in; the engine judges
/// what it says.
#[test]
fn a_member_that_is_added_dials_those_that_have_not_heard_of_it() {
    let mut sites = sites(2);
    let mut away = options(&mut sites, 0);
    away.members.retain(|member| member.id == MemberId(0));
    let mut away = TcpControl::start(away, || {}).unwrap();
    let mut alone = options(&mut sites, 1);
    alone.members.retain(|member| member.id == MemberId(1));
    let mut added = TcpControl::start(alone, || {}).unwrap();
    stays_silent(&mut away);
    let (id, address) = (MemberId(0), Some(sites[0].member.address));
    let standing = windlass_engine::Standing::Voter;
    added.set_members(1, &[MemberEntry { id, standing, incarnation: 0, address }]);
    assert_eq!(next(&mut added), ControlEvent::Up { peer: MemberId(0), identity: identity(0, 1) });
    assert_eq!(next(&mut away), ControlEvent::Up { peer: MemberId(1), identity: identity(1, 1) });
}

/// A member that joins reads one old configuration after the other, which lack members that came later, until it is at the newest that has them all:
/// it dials each of them once, however often they were left out between.
#[test]
fn members_left_out_and_taken_in_again_while_connected_are_not_dialled_twice() {
    let mut sites = sites(5);
    let standing = windlass_engine::Standing::Voter;
    let entries: Vec<MemberEntry> = sites
        .iter()
        .map(|site| MemberEntry {
            id: site.member.id,
            standing,
            incarnation: 0,
            address: Some(site.member.address),
        })
        .collect();
    let mut controls: Vec<_> =
        (0..5).map(|me| TcpControl::start(options(&mut sites, me), || {}).unwrap()).collect();
    let mut joins = controls.pop().unwrap();
    let mut up: Vec<_> = (0..4).map(|_| next(&mut joins)).collect();
    up.sort_by_key(|event| match event {
        ControlEvent::Up { peer, .. }
        | ControlEvent::Down { peer }
        | ControlEvent::Outside { by: peer }
        | ControlEvent::Frame { peer, .. } => *peer,
    });
    let each = |peer: u8| ControlEvent::Up { peer: MemberId(peer), identity: identity(u64::from(peer), 1) };
    assert_eq!(up, (0..4).map(each).collect::<Vec<_>>());
    for first in 0..4 {
        joins.set_members(1, &entries[..first]);
        joins.set_members(2, &entries);
    }
    stays_silent(&mut joins);
    for control in &mut controls {
        while let Some(event) = control.poll() {
            assert!(matches!(event, ControlEvent::Up { .. }), "{event:?}");
        }
        stays_silent(control);
    }
    // One that is left out and goes is dialled no more, and again from when it is taken in.
    joins.set_members(3, &entries[1..]);
    drop(controls.remove(0));
    assert_eq!(next(&mut joins), ControlEvent::Down { peer: MemberId(0) });
    sites[0].listener = Some(TcpListener::bind(sites[0].member.address).unwrap());
    let mut again = options(&mut sites, 0);
    again.identity = identity(0, 2);
    let _again = TcpControl::start(again, || {}).unwrap();
    let start = Instant::now();
    while joins.shared.state().dialled.contains(&sites[0].member) {
        assert!(start.elapsed() < WAIT, "it is dialled for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    while joins.poll().is_some() {}
    joins.set_members(4, &entries);
    let back = ControlEvent::Up { peer: MemberId(0), identity: identity(0, 2) };
    assert_eq!(next(&mut joins), back);
    stays_silent(&mut joins);
}

/// A member that was away, as one that is killed while it learns, knows nobody who was added behind the end of its log, and would dial that one: whom it dials tells it
/// where that is, also when it hears of it later, and never with less than is known already.
#[test]
fn who_is_dialled_tells_where_the_members_of_a_newer_configuration_are() {
    let entry = |site: &Site| MemberEntry {
        id: site.member.id,
        standing: windlass_engine::Standing::Voter,
        incarnation: 0,
        address: Some(site.member.address),
    };
    let up = |peer: u8| ControlEvent::Up { peer: MemberId(peer), identity: identity(u64::from(peer), 1) };
    let mut sites = sites(4);
    let entries: Vec<MemberEntry> = sites.iter().map(entry).collect();
    let mut start = |me: usize, known: &[usize]| {
        let mut options = options(&mut sites, me);
        options.members.retain(|member| known.contains(&usize::from(member.id.0)));
        TcpControl::start(options, || {}).unwrap()
    };
    let mut told = start(0, &[0, 1, 3]);
    let mut later = start(2, &[2]);
    let mut behind = start(3, &[0, 3]);
    assert_eq!(next(&mut behind), up(0));
    assert_eq!(next(&mut told), up(3));
    // It is connected already.
    let mut leads = start(1, &[0, 1]);
    told.set_members(5, &[entries[1], entries[3]]);
    assert_eq!(next(&mut behind), up(1));
    let in_any_order = |control: &mut TcpControl, wanted: [u8; 2]| {
        let mut met = [next(control), next(control)];
        met.sort_by_key(|event| *event != up(wanted[0]));
        assert_eq!(met, wanted.map(up));
    };
    in_any_order(&mut leads, [0, 3]);
    assert_eq!(next(&mut told), up(1));
    // What is older says nothing, nor does what its own log has already.
    told.set_members(4, &[entries[2], entries[3]]);
    stays_silent(&mut behind);
    behind.set_members(6, &[entries[0]]);
    told.set_members(6, &[entries[1], entries[2], entries[3]]);
    stays_silent(&mut behind);
    assert_eq!(later.poll(), None);
    told.set_members(7, &[entries[1], entries[2], entries[3]]);
    assert_eq!(next(&mut behind), up(2));
    assert_eq!(next(&mut later), up(3));
    // Started again it is told by the first that it reaches.
    drop(behind);
    sites[3].listener = Some(TcpListener::bind(sites[3].member.address).unwrap());
    let mut again = options(&mut sites, 3);
    again.members.retain(|member| [0, 3].contains(&member.id.0));
    again.identity = identity(3, 2);
    let mut again = TcpControl::start(again, || {}).unwrap();
    assert_eq!(next(&mut again), up(0));
    in_any_order(&mut again, [1, 2]);
}

/// Who has left is dialled by nobody, and one with the lowest number dials nobody: it asks. One with a higher number is told when it dials.
#[test]
fn a_member_that_has_left_is_told_whether_it_dials_or_not() {
    for left in [0, 2] {
        let mut sites = sites(3);
        let mut stays = options(&mut sites, 1);
        stays.members.retain(|member| usize::from(member.id.0) != left);
        // A number above all that are known may be one that was added meanwhile; here all of them are.
        stays.members.push(Member { id: MemberId(9), address: sites[1].member.address });
        let mut stays = TcpControl::start(stays, || {}).unwrap();
        let mut gone = options(&mut sites, left);
        let lines = Lines::default();
        gone.logger = lines.logger();
        let mut gone = TcpControl::start(gone, || {}).unwrap();
        let (start, told) = (Instant::now(), Refused::Outside { by: MemberId(1) }.to_string());
        while !lines.have(&told) {
            assert!(start.elapsed() < 6 * WAIT, "m{left} is not told");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(stays.poll(), None, "it was not let in");
        assert_eq!(next(&mut gone), ControlEvent::Outside { by: MemberId(1) });
        stays_silent(&mut gone);
    }
}

#[test]
fn a_clone_of_a_connected_member_stays_out_and_harms_nobody() {
    let mut sites = sites(2);
    let mut a = TcpControl::start(options(&mut sites, 0), || {}).unwrap();
    let mut b = TcpControl::start(options(&mut sites, 1), || {}).unwrap();
    next(&mut a);
    next(&mut b);
    sites[1].listener = Some(TcpListener::bind("127.0.0.1:0").unwrap());
    let mut copy = options(&mut sites, 1);
    copy.identity.nonce += 1;
    let mut clone = TcpControl::start(copy, || {}).unwrap();
    stays_silent(&mut clone);
    stays_silent(&mut a);
    b.send(MemberId(0), message(1));
    assert_eq!(next(&mut a), ControlEvent::Frame { peer: MemberId(1), frame: message(1) });
}

#[test]
fn garbage_before_or_after_the_proof_closes_the_connection_and_nothing_else() {
    let mut sites = sites(2);
    let mut a = TcpControl::start(options(&mut sites, 0), || {}).unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: none\r\n\r\n"[..], &[0xff; 4096], &[]]
    {
        let mut stream = std::net::TcpStream::connect(sites[0].member.address).unwrap();
        let _ = stream.write_all(garbage);
        if garbage.is_empty() {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        stream.set_read_timeout(Some(WAIT)).unwrap();
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        assert!(
            all.len() <= OPENING_BYTES,
            "only the opening is told to a stranger, not {} bytes",
            all.len()
        );
    }
    // A dialler that knows the secret and then announces a frame of 4 GiB.
    let options_b = options(&mut sites, 1);
    let mut stream = std::net::TcpStream::connect(sites[0].member.address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let ours = auth::opening(Kind::Control, [3; 32]);
    stream.write_all(&ours).unwrap();
    let mut theirs = [0; OPENING_BYTES];
    stream.read_exact(&mut theirs).unwrap();
    stream.write_all(&auth::prove(&options_b.secret, End::Dialler, &ours, &theirs)).unwrap();
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).unwrap();
    assert!(auth::proves(&options_b.secret, End::Listener, &ours, &theirs, &proof));
    let hello = Hello::new(options_b.log_id, MemberId(1), MemberId(0), identity(1, 1), options_b.terms);
    stream.write_all(&hello.encode()).unwrap();
    let mut answer = [0; HELLO_BYTES + 1];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[HELLO_BYTES], WELCOME);
    assert_eq!(next(&mut a), ControlEvent::Up { peer: MemberId(1), identity: identity(1, 1) });
    stream.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let mut end = Vec::new();
    let _ = stream.read_to_end(&mut end);
    assert_eq!(next(&mut a), ControlEvent::Down { peer: MemberId(1) });
    // The real member still gets in.
    let mut b = TcpControl::start(options_b, || {}).unwrap();
    assert!(matches!(next(&mut b), ControlEvent::Up { peer: MemberId(0), .. }));
}

#[test]
fn silent_strangers_in_any_number_keep_no_member_out() {
    let mut sites = sites(2);
    let mut a = TcpControl::start(options(&mut sites, 0), || {}).unwrap();
    let strangers: Vec<_> = (0..3 * HANDSHAKES_MAX)
        .map(|_| std::net::TcpStream::connect(sites[0].member.address).unwrap())
        .collect();
    let start = Instant::now();
    let _b = TcpControl::start(options(&mut sites, 1), || {}).unwrap();
    assert!(matches!(next(&mut a), ControlEvent::Up { peer: MemberId(1), .. }));
    assert!(start.elapsed() < HANDSHAKE / 2, "the member waited {:?} behind strangers", start.elapsed());
    // All but the last few were told to go before their time was up.
    let mut closed = 0;
    for mut stream in strangers {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        closed += usize::from(stream.read_to_end(&mut Vec::new()).is_ok());
    }
    assert!(closed >= 2 * HANDSHAKES_MAX, "only {closed} made room");
}

/// The listener's last word is one byte. Whoever proves all and then keeps it back is dialled again after the handshake's time.
#[test]
fn a_listener_that_never_welcomes_is_dialled_again() {
    let mut sites = sites(2);
    let ControlOptions { me, members, log_id, identity, terms, secret, listener, logger } =
        options(&mut sites, 0);
    let mut b = TcpControl::start(options(&mut sites, 1), || {}).unwrap();
    let state = Mutex::new(State {
        peers: Peers::new(),
        events: VecDeque::new(),
        said: BTreeMap::new(),
        ration: windlass_tcp::Ration::default(),
        members: members.clone(),
        configuration: 0,
        hint: Hint::default(),
        dialled: Vec::new(),
        outside: BTreeSet::new(),
    });
    let wake = Box::new(|| {});
    let is_news = AtomicBool::new(false);
    let serve = OnceLock::new();
    let shared =
        Shared { me, given: members, log_id, identity, terms, secret, logger, wake, state, is_news, serve };
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let mut greeted = Vec::new();
        while greeted.len() < 2 {
            let (stream, _) = timeout(WAIT, listener.accept()).await.expect("dialled again").unwrap();
            // One that a busy machine was too slow for counts for nothing.
            greeted.extend(greet(&shared, stream, End::Listener, None).await);
        }
        (greeted.remove(0), greeted.remove(0))
    });
    assert_eq!((first.1.from, second.1.from), (MemberId(1), MemberId(1)));
    assert_eq!(b.poll(), None, "nobody was connected");
}

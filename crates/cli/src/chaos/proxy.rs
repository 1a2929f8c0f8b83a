//! Links between members that can be cut and slowed: each member is reached by the others through ports of this process.
//!
//! ```text
//!  member 1 ──▶ proxy of 2 ──▶ member 2        cut 1→2: what 1 sends is held, what 2 sends goes through
//! ```
//!
//! A held direction keeps its bytes, as a network does that may come back; a reset loses them and ends the connection. Who has dialled is found by the
//! socket of its process, since all ends have one address.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How often a held direction looks whether it may go on.
const LOOK: Duration = Duration::from_millis(2);
/// How long a read waits before it looks whether its connection was reset.
const READ_WAIT: Duration = Duration::from_millis(100);
/// How long the dialling end is looked for among the members' sockets.
const SEARCHES: u32 = 20;

/// One direction between two members.
#[derive(Default)]
struct Way {
    is_cut: AtomicBool,
    delay_us: AtomicU64,
    /// Connections that were made before this changed are ended.
    resets: AtomicU64,
}

/// All of them.
pub(super) struct Links {
    members: usize,
    ways: Vec<Way>,
    /// Of each member; 0 while it has none.
    processes: Vec<AtomicU32>,
    is_over: AtomicBool,
    /// Connections whose dialling end was not found; they are ended.
    strangers: AtomicU64,
}

impl Links {
    pub(super) fn new(members: usize) -> Arc<Links> {
        Arc::new(Links {
            members,
            ways: (0..members * members).map(|_| Way::default()).collect(),
            processes: (0..members).map(|_| AtomicU32::new(0)).collect(),
            is_over: AtomicBool::new(false),
            strangers: AtomicU64::new(0),
        })
    }

    fn way(&self, from: usize, to: usize) -> &Way {
        &self.ways[from * self.members + to]
    }

    /// Which process is this member's now.
    pub(super) fn is_process(&self, member: usize, process: u32) {
        self.processes[member].store(process, Ordering::SeqCst);
    }

    /// Nothing gets from one to the other, or does again.
    pub(super) fn cut(&self, from: usize, to: usize, is_cut: bool) {
        self.way(from, to).is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// Everything takes so much longer.
    pub(super) fn delay(&self, from: usize, to: usize, delay: Duration) {
        let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.way(from, to).delay_us.store(us, Ordering::SeqCst);
    }

    /// Ends every connection between the two.
    pub(super) fn reset(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.way(from, to).resets.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends everything.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Connections that no member was found to have made.
    pub(super) fn strangers(&self) -> u64 {
        self.strangers.load(Ordering::SeqCst)
    }

    /// Listens for who wants to reach `member`, at `target`. Where it is to be dialled instead.
    pub(super) fn listen(
        self: &Arc<Links>,
        member: usize,
        target: SocketAddr,
    ) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let links = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if links.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let links = Arc::clone(&links);
                std::thread::spawn(move || links.join(&stream, member, target));
            }
        });
        Ok(address)
    }

    /// Carries a connection until it ends.
    fn join(self: &Arc<Links>, dialled: &TcpStream, to: usize, target: SocketAddr) {
        let Some(from) = self.who(dialled, to) else {
            self.strangers.fetch_add(1, Ordering::SeqCst);
            return;
        };
        let Ok(reached) = TcpStream::connect_timeout(&target, Duration::from_secs(2)) else { return };
        for stream in [dialled, &reached] {
            if stream.set_nodelay(true).and(stream.set_read_timeout(Some(READ_WAIT))).is_err() {
                return;
            }
        }
        let (Ok(a), Ok(b)) = (dialled.try_clone(), reached.try_clone()) else { return };
        let links = Arc::clone(self);
        let there = std::thread::spawn(move || links.carry(&a, &b, from, to));
        self.carry(&reached, dialled, to, from);
        let _ = there.join();
    }

    /// One direction. A reset, or the end of all, ends both.
    fn carry(&self, source: &TcpStream, sink: &TcpStream, from: usize, to: usize) {
        let way = self.way(from, to);
        let resets = way.resets.load(Ordering::SeqCst);
        let is_ended = || way.resets.load(Ordering::SeqCst) != resets || self.is_over.load(Ordering::SeqCst);
        let (mut source_end, mut sink_end) = (source, sink);
        let mut bytes = vec![0; 64 << 10];
        loop {
            let read = match source_end.read(&mut bytes) {
                Ok(read) => read,
                Err(error) => {
                    let kind = error.kind();
                    let is_early = matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut) && !is_ended();
                    if is_early || kind == ErrorKind::Interrupted {
                        continue;
                    }
                    break;
                }
            };
            let delay = way.delay_us.load(Ordering::SeqCst);
            if delay > 0 {
                std::thread::sleep(Duration::from_micros(delay));
            }
            // The end of a connection does not get through a cut link either.
            while way.is_cut.load(Ordering::SeqCst) && !is_ended() {
                std::thread::sleep(LOOK);
            }
            if is_ended() {
                break;
            }
            if read == 0 {
                let _ = sink.shutdown(Shutdown::Write);
                return;
            }
            if sink_end.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = source.shutdown(Shutdown::Both);
        let _ = sink.shutdown(Shutdown::Both);
    }

    /// The member whose socket this is.
    fn who(&self, dialled: &TcpStream, to: usize) -> Option<usize> {
        let port = dialled.peer_addr().ok()?.port();
        for _ in 0..SEARCHES {
            if let Some(inode) = inode_of(port) {
                let found = (0..self.members).filter(|member| *member != to).find(|member| {
                    let process = self.processes[*member].load(Ordering::SeqCst);
                    process > 0 && has_socket(process, inode)
                });
                if found.is_some() {
                    return found;
                }
            }
            std::thread::sleep(LOOK);
        }
        None
    }
}

/// The inode of the socket with this local port on loopback (proc(5), /proc/net/tcp).
fn inode_of(port: u16) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let wanted = format!("0100007F:{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()? == wanted).then_some(())?;
        words.nth(7)?.parse().ok()
    })
}

fn has_socket(process: u32, inode: u64) -> bool {
    let wanted = format!("socket:[{inode}]");
    let files = std::fs::read_dir(format!("/proc/{process}/fd"));
    files
        .into_iter()
        .flatten()
        .flatten()
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|link| link.to_str() == Some(&wanted[..])))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Two members in this one process: what one sends passes, is held in one direction while that is cut, comes late in one that is slowed, and ends with
    /// a reset.
    #[test]
    fn a_link_passes_holds_slows_and_resets() {
        let links = Links::new(2);
        links.is_process(0, std::process::id());
        let target = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = links.listen(1, target.local_addr().unwrap()).unwrap();
        let mut near = TcpStream::connect(address).unwrap();
        let (mut far, _) = target.accept().unwrap();
        let mut found = [0; 5];
        near.write_all(b"there").unwrap();
        far.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"there");

        links.cut(0, 1, true);
        near.write_all(b"held!").unwrap();
        far.write_all(b"backs").unwrap();
        near.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"backs", "the other direction goes on");
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(far.read_exact(&mut found).is_err(), "nothing gets through");
        links.cut(0, 1, false);
        far.set_read_timeout(None).unwrap();
        far.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"held!", "what was held comes when the link is back");

        let delay = Duration::from_millis(60);
        links.delay(0, 1, delay);
        let sent = Instant::now();
        near.write_all(b"slow!").unwrap();
        far.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"slow!");
        assert!(sent.elapsed() >= delay, "it came after {:?}", sent.elapsed());
        let backs: Vec<Duration> = (0..5)
            .map(|_| {
                let sent = Instant::now();
                far.write_all(b"backs").unwrap();
                near.read_exact(&mut found).unwrap();
                sent.elapsed()
            })
            .collect();
        assert!(backs.iter().any(|took| *took < delay), "the other direction is as fast as ever: {backs:?}");
        links.delay(0, 1, Duration::ZERO);

        links.reset(0, 1);
        assert_eq!(near.read(&mut found).unwrap_or(0), 0, "a reset ends the connection");
        assert_eq!(links.strangers(), 0);
        links.end();
    }
}

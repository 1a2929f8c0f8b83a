//! What the four programs share: a line over which two ends tell each other what they must know before they can speak RDMA.
//!
//! Verbs have no names and no discovery. Before the first request each end has to learn two things from the other, by some other way:
//!
//! * its *endpoint* (over verbs: queue pair number, first packet number, GID; 32 bytes that nobody but the provider looks into), to connect;
//! * its *remote ranges* (address, length, key), to write to or to read from.
//!
//! Real programs use what they have for this: a control connection, a store of configuration, MPI. Here it is one TCP connection
//! ([`Line`]), and [`meet`] is the handshake over it.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use windlass_fabric::{
    Completion, CompletionQueue, Connection, ConnectionOptions, ConnectionState, Fabric, PostError,
};
use windlass_tcp::TcpFabric;
use windlass_tcp::auth::Secret;

/// What goes wrong in an example ends it, with the words of the error.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Nothing that an example waits for takes so long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Which fabric carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// In software, over TCP: anywhere.
    Tcp,
    /// Over libibverbs: a card, or Soft-RoCE. Needs a build with `--features verbs`.
    Verbs,
}

impl Kind {
    /// Whether this build has it: to be asked before anybody is waited for.
    ///
    /// # Errors
    /// Verbs in a build without them: the command that builds it with them.
    pub fn check(self) -> Result<(), Error> {
        if self == Kind::Verbs && !cfg!(feature = "verbs") {
            let build = "cargo run -p fabric-examples --features verbs --bin ...";
            let packages = "cmake pkg-config libclang-dev libnl-3-dev libnl-route-3-dev libibverbs-dev";
            return Err(
                format!("built without verbs; with them: {build} (on Debian that needs {packages})").into()
            );
        }
        Ok(())
    }
}

/// Opens the fabric in software, for peers that reach this machine at `here`.
///
/// # Errors
/// The provider's own.
pub fn tcp_fabric(here: IpAddr) -> Result<TcpFabric, Error> {
    // Whoever knows the secret can connect. A program that is no example has one of its own, and a number for its group.
    let secret = Secret::new(b"only for these examples")?;
    let options = windlass_tcp::Options {
        bind: SocketAddr::new(here, 0),
        ..windlass_tcp::Options::new(secret, *b"fabric examples\0")
    };
    Ok(TcpFabric::open(options, slog::Logger::root(slog::Discard, slog::o!()))?)
}

/// Opens the device that has the address `here`; where that is this machine's loopback, the first device.
///
/// # Errors
/// The provider's own: no library, no device, no port that is up, ...; each says what to do.
#[cfg(feature = "verbs")]
pub fn verbs_fabric(here: IpAddr) -> Result<windlass_verbs::VerbsFabric, Error> {
    let address = (!here.is_loopback()).then_some(here);
    let choice = windlass_verbs::DeviceChoice { address, ..Default::default() };
    let fabric = windlass_verbs::VerbsFabric::open(&choice.into())?;
    println!("{}", fabric.description());
    Ok(fabric)
}

/// This build has no verbs: the type is that of a fabric which is never there.
///
/// # Errors
/// Always: the command that builds it with verbs.
#[cfg(not(feature = "verbs"))]
pub fn verbs_fabric(_here: IpAddr) -> Result<TcpFabric, Error> {
    Err(Kind::Verbs.check().err().unwrap_or_else(|| "built without verbs".into()))
}

/// A TCP connection between two ends, on which they tell each other short messages.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
}

impl Line {
    /// Waits for the other end at `address`. Says on standard output where that is: with the port 0 the system chooses one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen(address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address)?;
        println!("listening on {}", listener.local_addr()?);
        Self::accept(&listener)
    }

    /// Takes the next connection of a listener.
    ///
    /// # Errors
    /// Those of the system.
    pub fn accept(listener: &TcpListener) -> Result<Self, Error> {
        Self::over(listener.accept()?.0)
    }

    /// Connects to the end that listens at `address`, or will do so in a moment.
    ///
    /// # Errors
    /// Nobody listens there for a minute.
    pub fn reach(address: SocketAddr) -> Result<Self, Error> {
        let end = Instant::now() + LIMIT;
        let mut is_told = false;
        loop {
            match TcpStream::connect(address) {
                Ok(stream) => return Self::over(stream),
                Err(error) if Instant::now() > end => return Err(format!("{address}: {error}").into()),
                Err(error) => {
                    if !is_told {
                        eprintln!("{address}: {error}; waiting for it, for a minute at most");
                        is_told = true;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn over(stream: TcpStream) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream })
    }

    /// The address of this end: the fabric's connections start from the same one.
    ///
    /// # Errors
    /// Those of the system.
    pub fn here(&self) -> Result<IpAddr, Error> {
        Ok(self.stream.local_addr()?.ip())
    }

    /// Tells the other end something of at most 255 bytes.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn say(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut framed = vec![u8::try_from(message.len())?];
        framed.extend_from_slice(message);
        Ok(self.stream.write_all(&framed)?)
    }

    /// Waits for what the other end says.
    ///
    /// # Errors
    /// It is gone, or silent for a minute.
    pub fn hear(&mut self) -> Result<Vec<u8>, Error> {
        let mut length = [0];
        self.stream.read_exact(&mut length)?;
        let mut message = vec![0; usize::from(length[0])];
        self.stream.read_exact(&mut message)?;
        Ok(message)
    }
}

/// Connects with the end at the other side of `line`, which calls this too.
///
/// ```text
///   make the queue pair, post receives        make the queue pair, post receives
///   own endpoint ───────────────────────────▶ connect to it
///   connect to it ◀────────────────────────── own endpoint
///   "ready" ────────────────────────────────▶ may post requests
///   may post requests ◀────────────────────── "ready"
/// ```
///
/// `receives` runs before the peer can send anything: what it posts is there in time. The word "ready" matters too: a request that arrives at a queue
/// pair which is not yet able to receive is dropped, and the sender's device retries in silence.
///
/// # Errors
/// Those of the fabric and of the line.
pub fn meet<F: Fabric>(
    fabric: &F,
    queue: &mut F::CompletionQueue,
    line: &mut Line,
    options: &ConnectionOptions,
    receives: impl FnOnce(&mut F::Connection) -> Result<(), PostError>,
) -> Result<F::Connection, Error> {
    let mut connection = fabric.connection(queue, options)?;
    receives(&mut connection)?;
    line.say(connection.endpoint())?;
    let peer = line.hear()?;
    connection.connect(&peer)?;
    loop {
        match connection.state() {
            ConnectionState::Ready => break,
            // Over TCP connecting takes a few round trips, which polling makes go on.
            ConnectionState::Connecting => {
                queue.poll(&mut [])?;
                queue.wait(Duration::from_millis(10))?;
            }
            state @ (ConnectionState::Initial | ConnectionState::Error(_)) => {
                return Err(format!("connecting: {state:?}").into());
            }
        }
    }
    line.say(b"ready")?;
    line.hear()?;
    Ok(connection)
}

/// The completion, if it is one of success. Look at every completion's status: one that failed says that its request, and all
/// behind it, may or may not have been done.
///
/// # Errors
/// It is not.
pub fn successful(completion: Completion) -> Result<Completion, Error> {
    if completion.status.is_success() {
        Ok(completion)
    } else {
        Err(format!("request {} ended as {:?}", completion.id, completion.status).into())
    }
}

/// The next completion, by polling without a pause: the shortest wait, and a processor that does nothing else.
///
/// # Errors
/// The queue's own, or none within a minute.
pub fn poll_next<Q: CompletionQueue>(queue: &mut Q) -> Result<Completion, Error> {
    let end = Instant::now() + LIMIT;
    let mut one = [Completion::BLANK];
    // Polling answers how many completions there were. Until it says 1, `one` holds nothing.
    while queue.poll(&mut one)? == 0 {
        if Instant::now() > end {
            return Err("no completion within a minute".into());
        }
        std::hint::spin_loop();
    }
    Ok(one[0])
}

//! A peer in plain sockets, which can do what a real one never would; and a logger that keeps its lines.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slog::{Drain, KV, Level, Logger, Never, OwnedKVList, Record, Serializer};
use windlass_tcp::auth::{Role, Secret, Transcript};

// The protocol's constants once more: were they changed, these tests would have to be, and the version with them.
const MAGIC: &[u8; 4] = b"WLT\x01";
const PURPOSE: &[u8] = b"windlass fabric over tcp, version 1";
pub(crate) const GROUP: [u8; 16] = [1; 16];

pub(crate) fn secret() -> Secret {
    Secret::new(b"the secret of the hostile tests").expect("long enough")
}

/// An end's address and token, out of its endpoint.
pub(crate) fn endpoint_of(bytes: &[u8]) -> (SocketAddr, [u8; 16]) {
    assert_eq!((bytes.len(), &bytes[..4], bytes[4]), (40, &MAGIC[..], 4));
    let ip = Ipv4Addr::new(bytes[8], bytes[9], bytes[10], bytes[11]);
    let port = u16::from_le_bytes([bytes[6], bytes[7]]);
    (SocketAddr::new(IpAddr::V4(ip), port), bytes[24..].try_into().expect("16 bytes"))
}

pub(crate) fn endpoint(address: SocketAddr, token: [u8; 16]) -> Vec<u8> {
    let IpAddr::V4(ip) = address.ip() else { panic!("loopback is {address}") };
    let mut bytes = vec![0; 40];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4] = 4;
    bytes[6..8].copy_from_slice(&address.port().to_le_bytes());
    bytes[8..12].copy_from_slice(&ip.octets());
    bytes[24..].copy_from_slice(&token);
    bytes
}

pub(crate) fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the fabric listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    stream.set_nodelay(true).expect("nodelay");
    stream
}

pub(crate) fn greeting(nonce: [u8; 32]) -> Vec<u8> {
    [&MAGIC[..], &nonce].concat()
}

fn receive<const N: usize>(stream: &mut TcpStream) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn nonce_of(greeting: [u8; 36]) -> [u8; 32] {
    assert_eq!(greeting[..4], MAGIC[..]);
    greeting[4..].try_into().expect("32 bytes")
}

/// The dialer's proof message for this challenge.
pub(crate) fn proof(
    secret: &Secret,
    group: [u8; 16],
    nonces: ([u8; 32], [u8; 32]),
    target: [u8; 16],
    source: [u8; 16],
) -> Vec<u8> {
    let context = [target, source].concat();
    let transcript = Transcript {
        purpose: PURPOSE,
        group,
        dialer_nonce: nonces.0,
        acceptor_nonce: nonces.1,
        context: &context,
    };
    [&context[..], &transcript.prove(secret, Role::Dialer)].concat()
}

/// Says hello and hears the challenge.
pub(crate) fn challenged(stream: &mut TcpStream, own: [u8; 32]) -> [u8; 32] {
    stream.write_all(&greeting(own)).expect("to write");
    nonce_of(receive(stream).expect("a challenge"))
}

/// The whole handshake of a dialer that knows the secret.
pub(crate) fn enter(address: SocketAddr, target: [u8; 16], source: [u8; 16]) -> std::io::Result<TcpStream> {
    let mut stream = dial(address);
    let theirs = challenged(&mut stream, [5; 32]);
    let message = proof(&secret(), GROUP, ([5; 32], theirs), target, source);
    stream.write_all(&message)?;
    let accepted: [u8; 32] = receive(&mut stream)?;
    let context = [target, source].concat();
    let transcript = Transcript {
        purpose: PURPOSE,
        group: GROUP,
        dialer_nonce: [5; 32],
        acceptor_nonce: theirs,
        context: &context,
    };
    transcript.verify(&secret(), Role::Acceptor, &accepted).expect("the fabric proves itself too");
    Ok(stream)
}

/// The whole handshake of an acceptor that knows the secret.
pub(crate) fn admit(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("the fabric dials");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let dialer_nonce = nonce_of(receive(&mut stream).expect("a hello"));
    stream.write_all(&greeting([6; 32])).expect("to write");
    let message: [u8; 64] = receive(&mut stream).expect("a proof");
    let transcript = Transcript {
        purpose: PURPOSE,
        group: GROUP,
        dialer_nonce,
        acceptor_nonce: [6; 32],
        context: &message[..32],
    };
    let proof: [u8; 32] = message[32..].try_into().expect("32 bytes");
    transcript.verify(&secret(), Role::Dialer, &proof).expect("the fabric knows the secret");
    stream.write_all(&transcript.prove(&secret(), Role::Acceptor)).expect("to write");
    stream
}

/// Whether the other end closes the stream, without having sent more.
pub(crate) fn closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// A logger's lines, with level and all keys.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

impl Lines {
    pub(crate) fn logger(&self) -> Logger {
        Logger::root(self.clone().ignore_res(), slog::o!())
    }

    /// Lines of level warning or worse.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let lines = self.0.lock().expect("no panic holds it");
        let loud = lines.iter().filter(|(level, _)| level.is_at_least(Level::Warning));
        loud.map(|(_, line)| line.clone()).collect()
    }

    /// Waits for the first warning, and a little for a second one that is not to come.
    pub(crate) fn only_warning(&self) -> String {
        for _ in 0..2000 {
            if !self.warnings().is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(30));
        let warnings = self.warnings();
        assert_eq!(warnings.len(), 1, "just one line: {warnings:#?}");
        warnings[0].clone()
    }
}

struct Keys(String);

impl Serializer for Keys {
    fn emit_arguments(&mut self, key: slog::Key, value: &std::fmt::Arguments<'_>) -> slog::Result {
        self.0.push_str(&format!(" {key}={value}"));
        Ok(())
    }
}

impl Drain for Lines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, values: &OwnedKVList) -> Result<(), Never> {
        let mut keys = Keys(record.msg().to_string());
        record.kv().serialize(record, &mut keys).expect("a string takes everything");
        values.serialize(record, &mut keys).expect("a string takes everything");
        self.0.lock().expect("no panic holds it").push((record.level(), keys.0));
        Ok(())
    }
}

//! How a client talks to a member's process: frames over a Unix socket in the cluster's folder.
//!
//! ```text
//!  frame = length of the rest (4 bytes, little-endian), tag (1), body
//! ```
//!
//! The member speaks first, with a challenge; the client names its log and proves that it knows the group's secret, and is welcome. So a client with another
//! group's file, or an old one, is told so, whatever sockets that names. Nothing that follows is signed: the folder's access rights are what keeps
//! strangers out, so the socket never leaves the machine.
//!
//! Appends are answered in the order in which they were sent.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::control::{NONCE_BYTES, PROOF_BYTES, Secret};
use windlass::engine::{Change, Quorums};
use windlass::{LogId, MemberId};

use crate::view::View;

/// The longest payload a client can append through this connection: 1 MiB.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The longest frame: a payload and its fixed fields, or a line of text.
const FRAME_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64;

/// What makes a client, or a member, of the group.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) log_id: LogId,
    pub(crate) secret: Secret,
}

/// The member is of another group than the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stranger(pub(crate) String);

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Stranger {}

impl Stranger {
    /// Whether this is why a connection was not made.
    pub(crate) fn of(error: &io::Error) -> Option<&Stranger> {
        error.get_ref()?.downcast_ref()
    }
}

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Comes first: the client's log, and the answer to the challenge.
    Prove { log_id: LogId, proof: [u8; PROOF_BYTES] },
    /// Append this; answered once it is committed at the cluster's level.
    Append { sequence: u64, payload: Vec<u8> },
    /// Where the member stands.
    Status,
    /// Commit everything before this moment, and say up to where that is.
    Barrier,
    /// The records of `[from, to)`.
    Read { from: u64, to: u64 },
    /// End the member well.
    Close,
    /// As primary: give the tenure to this member.
    HandOver { to: u8 },
    /// Who belongs to the group, as the member knows.
    Members,
    /// As primary: change the group; answered once the configuration is committed.
    Change(Change),
    /// Lead with what is left; answered once the word is taken, not once it leads.
    AcceptLoss,
}

/// What a member answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// Comes first: what the client's proof is to be made for.
    Challenge([u8; NONCE_BYTES]),
    /// The client's proof holds.
    Welcome,
    /// The client is of another group: it gets nothing else.
    Stranger {
        why: String,
    },
    /// Committed at the cluster's level.
    Acknowledged {
        sequence: u64,
        start: u64,
        end: u64,
    },
    /// Not appended. `passes`: it may be appended later, here or at another member.
    Refused {
        sequence: u64,
        passes: bool,
        why: String,
    },
    /// Appended; whether it will be committed is unknown.
    Unknown {
        sequence: u64,
        why: String,
    },
    Status(Box<Standing>),
    Barrier {
        end: u64,
    },
    /// The barrier or the reading failed.
    Failed {
        why: String,
    },
    /// The barrier found no room in the log, which does not pass by itself.
    Full {
        why: String,
    },
    /// One record: its LSN, and where the next one begins.
    Record {
        start: u64,
        end: u64,
        payload: Vec<u8>,
    },
    /// All records of the range were sent.
    ReadEnd,
    /// The member has ended well; its process exits.
    Closed,
    /// The tenure was given up in the other member's favour.
    HandedOver,
    /// The member goes on with what is left, and gives up what it lacks itself: `[from, to)`, to `u64::MAX` if nobody can tell where it ends.
    LossAccepted {
        from: u64,
        to: u64,
    },
    Members(View),
    /// The change is committed, in the configuration of this number.
    Changed {
        number: u64,
    },
    /// The change is not known to be committed.
    NotChanged {
        what: NotChanged,
        why: String,
    },
}

/// What has become of a change that is not known to be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotChanged {
    /// It is not made.
    Refused,
    /// It is not made, and may be later, by this or another member, without anybody's doing.
    Passes,
    /// The group's members will tell.
    Unknown,
}

/// Where a member stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Who says so.
    pub(crate) by: u8,
    /// `primary`, `backup`, `candidate`, `sealing` or `stopped`.
    pub(crate) role: String,
    /// The highest epoch promised, as people read it.
    pub(crate) epoch: String,
    /// Everything below is persisted on a quorum, as far as this member knows.
    pub(crate) durable: u64,
    /// Where the log begins.
    pub(crate) trimmed: u64,
    /// Where this member's log ends.
    pub(crate) tail: u64,
    /// As primary: the longest payload that an append can have.
    pub(crate) payload_bytes_max: Option<u64>,
    /// Batches that its backups refused, or that were lost with their connection, since its process began.
    pub(crate) void_batches: u64,
    /// It lacks something that it may have acknowledged, and has it sent again by its peers.
    pub(crate) damaged: bool,
    /// Whom it follows as primary.
    pub(crate) follows: Option<u8>,
    /// What it is in the newest configuration that it knows: `voter`, `learner` or `outside`; the last also where its peers say so.
    pub(crate) standing: String,
    /// Why it is outside, and what to do, as far as it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside: Option<String>,
    /// Who votes in that, and how many of them a primary needs.
    pub(crate) voters: Vec<u8>,
    pub(crate) quorum: usize,
    /// By whom it is kept out of the group, why, and what to do.
    pub(crate) kept_out: Vec<String>,
    /// Why it has stopped, and what to do, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<String>,
    /// Where its log can't go on with the primary's: how far a checkpoint of the application has to reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_from: Option<u64>,
    /// What it counted of its windows since its process began.
    pub(crate) windows: Windows,
    /// What its batches cost since its process began.
    #[serde(default)]
    pub(crate) batches: Batches,
    /// Completions that it has thrown away since its process began, where it was told to (feature `faults`).
    #[serde(default, skip_serializing_if = "LostCompletions::is_none")]
    pub(crate) completions_lost: LostCompletions,
}

/// Completions that a member threw away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LostCompletions {
    pub(crate) requests: u64,
    pub(crate) receives: u64,
}

impl LostCompletions {
    pub(crate) fn is_none(&self) -> bool {
        *self == LostCompletions::default()
    }
}

/// Windows that opened a member's memory to primaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Windows {
    /// Times that one was bound.
    pub(crate) binds: u64,
    /// How many there were.
    pub(crate) allocated: u64,
    /// How many were given up because their keys would have repeated.
    pub(crate) used_up: u64,
}

/// What the batches cost that a member sent to its backups as primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batches {
    /// How many, one for each backup.
    pub(crate) sent: u64,
    /// Doorbells that were rung for them.
    pub(crate) doorbells: u64,
    /// Requests that they were made of.
    pub(crate) requests: u64,
    /// Those of them that asked for a completion.
    pub(crate) signalled: u64,
    /// Bytes that the processor copied to post them, beyond the one copy into the log.
    pub(crate) copied_bytes: u64,
}

impl Standing {
    /// Whether its peers keep it out, and not because it is no member: who is none is told what that takes.
    pub(crate) fn is_kept_out(&self) -> bool {
        self.outside.is_none() && !self.kept_out.is_empty()
    }
}

fn put(into: &mut Vec<u8>, tag: u8, fields: &[u64], bytes: &[u8]) {
    let length = 1 + 8 * fields.len() + bytes.len();
    assert!(length <= FRAME_BYTES_MAX, "a frame of {length} bytes");
    into.extend_from_slice(&u32::try_from(length).expect("bounded").to_le_bytes());
    into.push(tag);
    for field in fields {
        into.extend_from_slice(&field.to_le_bytes());
    }
    into.extend_from_slice(bytes);
}

/// Splits a frame's body into `N` numbers and the bytes behind them.
fn take<const N: usize>(body: &[u8]) -> Option<([u64; N], &[u8])> {
    let mut fields = [0; N];
    let (numbers, rest) = body.split_at_checked(8 * N)?;
    for (field, bytes) in fields.iter_mut().zip(numbers.chunks_exact(8)) {
        *field = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some((fields, rest))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A line of text that fits a frame.
fn short(why: &str) -> &[u8] {
    &why.as_bytes()[..why.len().min(4096)]
}

impl Request {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Request::Append { sequence, payload } => put(into, 1, &[*sequence], payload),
            Request::Status => put(into, 2, &[], &[]),
            Request::Barrier => put(into, 3, &[], &[]),
            Request::Read { from, to } => put(into, 4, &[*from, *to], &[]),
            Request::Close => put(into, 5, &[], &[]),
            Request::HandOver { to } => put(into, 6, &[u64::from(*to)], &[]),
            Request::Prove { log_id, proof } => put(into, 7, &[], &[&log_id.0[..], proof].concat()),
            Request::Members => put(into, 8, &[], &[]),
            Request::AcceptLoss => put(into, 10, &[], &[]),
            Request::Change(change) => {
                let (fields, address) = change_fields(change);
                let address = address.map(|address| address.to_string()).unwrap_or_default();
                put(into, 9, &fields, address.as_bytes());
            }
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Option<Request> {
        let (tag, body) = frame.split_first()?;
        Some(match tag {
            1 => {
                let ([sequence], payload) = take(body)?;
                Request::Append { sequence, payload: payload.to_vec() }
            }
            2 if body.is_empty() => Request::Status,
            3 if body.is_empty() => Request::Barrier,
            4 => {
                let ([from, to], []) = take(body)? else { return None };
                Request::Read { from, to }
            }
            5 if body.is_empty() => Request::Close,
            6 => {
                let ([to], []) = take(body)? else { return None };
                Request::HandOver { to: u8::try_from(to).ok()? }
            }
            7 => {
                let (log_id, proof) = body.split_first_chunk()?;
                Request::Prove { log_id: LogId(*log_id), proof: proof.try_into().ok()? }
            }
            8 if body.is_empty() => Request::Members,
            9 => {
                let (fields, address) = take(body)?;
                let address = match address {
                    [] => None,
                    text => Some(std::str::from_utf8(text).ok()?.parse().ok()?),
                };
                Request::Change(change_of(fields, address)?)
            }
            10 if body.is_empty() => Request::AcceptLoss,
            _ => return None,
        })
    }
}

/// A change as a request has it: which, its two numbers, and its address.
fn change_fields(change: &Change) -> ([u64; 3], Option<SocketAddr>) {
    match *change {
        Change::Add { member, address } => ([1, u64::from(member.0), 0], address),
        Change::Remove { member } => ([2, u64::from(member.0), 0], None),
        Change::Replace { old, new, address } => ([3, u64::from(old.0), u64::from(new.0)], address),
        Change::Quorums { quorums: Quorums::Majority } => ([4, 0, 0], None),
        Change::Quorums { quorums: Quorums::Sizes { write, takeover } } => {
            ([5, u64::from(write), u64::from(takeover)], None)
        }
    }
}

fn change_of([which, a, b]: [u64; 3], address: Option<SocketAddr>) -> Option<Change> {
    let member = |number: u64| u8::try_from(number).ok().map(MemberId);
    Some(match (which, address) {
        (1, address) if b == 0 => Change::Add { member: member(a)?, address },
        (2, None) if b == 0 => Change::Remove { member: member(a)? },
        (3, address) => Change::Replace { old: member(a)?, new: member(b)?, address },
        (4, None) if (a, b) == (0, 0) => Change::Quorums { quorums: Quorums::Majority },
        (5, None) => {
            let (write, takeover) = (u8::try_from(a).ok()?, u8::try_from(b).ok()?);
            Change::Quorums { quorums: Quorums::Sizes { write, takeover } }
        }
        _ => return None,
    })
}

impl Reply {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Reply::Acknowledged { sequence, start, end } => put(into, 1, &[*sequence, *start, *end], &[]),
            Reply::Refused { sequence, passes, why } => {
                put(into, 2, &[*sequence, u64::from(*passes)], short(why));
            }
            Reply::Unknown { sequence, why } => put(into, 3, &[*sequence], short(why)),
            Reply::Status(standing) => {
                let json = serde_json::to_vec(standing).expect("strings and a number");
                put(into, 4, &[], &json);
            }
            Reply::Barrier { end } => put(into, 5, &[*end], &[]),
            Reply::Failed { why } => put(into, 6, &[], short(why)),
            Reply::Record { start, end, payload } => put(into, 7, &[*start, *end], payload),
            Reply::ReadEnd => put(into, 8, &[], &[]),
            Reply::Closed => put(into, 9, &[], &[]),
            Reply::HandedOver => put(into, 10, &[], &[]),
            Reply::Challenge(nonce) => put(into, 11, &[], nonce),
            Reply::Welcome => put(into, 12, &[], &[]),
            Reply::Stranger { why } => put(into, 13, &[], short(why)),
            Reply::Members(view) => {
                let json = serde_json::to_vec(view).expect("strings and numbers");
                put(into, 14, &[], &json);
            }
            Reply::Changed { number } => put(into, 15, &[*number], &[]),
            Reply::Full { why } => put(into, 18, &[], short(why)),
            Reply::LossAccepted { from, to } => put(into, 17, &[*from, *to], &[]),
            Reply::NotChanged { what, why } => put(into, 16, &[*what as u64], short(why)),
        }
    }

    pub(crate) fn decode(frame: &[u8]) -> Option<Reply> {
        let (tag, body) = frame.split_first()?;
        Some(match tag {
            1 => {
                let ([sequence, start, end], []) = take(body)? else { return None };
                Reply::Acknowledged { sequence, start, end }
            }
            2 => {
                let ([sequence, passes @ (0 | 1)], why) = take(body)? else { return None };
                Reply::Refused { sequence, passes: passes == 1, why: text(why) }
            }
            3 => {
                let ([sequence], why) = take(body)?;
                Reply::Unknown { sequence, why: text(why) }
            }
            4 => Reply::Status(serde_json::from_slice(body).ok()?),
            5 => {
                let ([end], []) = take(body)? else { return None };
                Reply::Barrier { end }
            }
            6 => Reply::Failed { why: text(body) },
            7 => {
                let ([start, end], payload) = take(body)?;
                Reply::Record { start, end, payload: payload.to_vec() }
            }
            8 if body.is_empty() => Reply::ReadEnd,
            9 if body.is_empty() => Reply::Closed,
            10 if body.is_empty() => Reply::HandedOver,
            11 => Reply::Challenge(body.try_into().ok()?),
            12 if body.is_empty() => Reply::Welcome,
            13 => Reply::Stranger { why: text(body) },
            14 => Reply::Members(serde_json::from_slice(body).ok()?),
            15 => {
                let ([number], []) = take(body)? else { return None };
                Reply::Changed { number }
            }
            16 => {
                let ([what], why) = take(body)?;
                let kinds = [NotChanged::Refused, NotChanged::Passes, NotChanged::Unknown];
                let what = kinds.into_iter().find(|kind| *kind as u64 == what)?;
                Reply::NotChanged { what, why: text(why) }
            }
            17 => {
                let ([from, to], []) = take(body)? else { return None };
                Reply::LossAccepted { from, to }
            }
            18 => Reply::Full { why: text(body) },
            _ => return None,
        })
    }
}

/// Reads one frame into `frame`. `false` at the end of the stream, which may not fall inside a frame.
///
/// # Errors
///
/// The stream's; `InvalidData` for a frame longer than any can be.
pub(crate) fn read_frame(from: &mut impl BufRead, frame: &mut Vec<u8>) -> io::Result<bool> {
    frame.clear();
    if from.fill_buf()?.is_empty() {
        return Ok(false);
    }
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length == 0 || length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame of an impossible length"));
    }
    let read = from.take(length as u64).read_to_end(frame)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(true)
}

/// The next reply of a stream; the end of the stream is an error.
///
/// # Errors
///
/// The stream's; `InvalidData` for what is no reply.
pub(crate) fn next_reply(from: &mut BufReader<UnixStream>, frame: &mut Vec<u8>) -> std::io::Result<Reply> {
    if !read_frame(from, frame)? {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Reply::decode(frame).ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, "no reply"))
}

/// Writes what has been encoded and empties it.
///
/// # Errors
///
/// The stream's.
pub(crate) fn write_all(to: &mut impl io::Write, encoded: &mut Vec<u8>) -> io::Result<()> {
    to.write_all(encoded)?;
    encoded.clear();
    to.flush()
}

/// A connection to the member that listens on this socket, which takes us for one of its group; an answer that takes longer than `patience` is an error.
///
/// # Errors
///
/// The system's: nobody listens there, or no access. [`Stranger`] in one: the member is of another group.
pub(crate) fn connect(socket: &Path, pass: &Pass, patience: Duration) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    let unexpected = |reply: &Reply| io::Error::other(format!("an answer to something else: {reply:?}"));
    let mut frame = Vec::new();
    // Nothing comes behind these before it is asked for, so nothing is lost with the buffer.
    let mut from = BufReader::with_capacity(256, stream.try_clone()?);
    let first = next_reply(&mut from, &mut frame)?;
    // It takes nobody now, and says why.
    if let Reply::Failed { why } = first {
        return Err(io::Error::other(why));
    }
    let Reply::Challenge(challenge) = first else { return Err(unexpected(&first)) };
    let proof = pass.secret.prove_client(pass.log_id, challenge);
    frame.clear();
    Request::Prove { log_id: pass.log_id, proof }.encode(&mut frame);
    write_all(&mut stream, &mut frame)?;
    let second = next_reply(&mut from, &mut frame)?;
    if let Reply::Stranger { why } = second {
        return Err(io::Error::other(Stranger(why)));
    }
    if second == Reply::Welcome { Ok(stream) } else { Err(unexpected(&second)) }
}

/// Takes a client, which has to prove itself. `None`: it left, is of another group, or speaks something else.
///
/// # Errors
///
/// The stream's; the system has no random numbers.
pub(crate) fn admit(stream: &UnixStream, pass: &Pass, patience: Duration) -> io::Result<Option<Refusal>> {
    // No descriptor more: strangers are counted by their connections.
    let mut to = stream;
    let mut challenge = [0; NONCE_BYTES];
    getrandom::fill(&mut challenge).map_err(|error| io::Error::other(error.to_string()))?;
    let mut frame = Vec::new();
    Reply::Challenge(challenge).encode(&mut frame);
    let has_left = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    };
    match write_all(&mut to, &mut frame) {
        Ok(()) => {}
        Err(error) if has_left(&error) => return Ok(Some(Refusal::Left)),
        Err(error) => return Err(error),
    }
    stream.set_read_timeout(Some(patience))?;
    // A client that waits for its welcome sends nothing behind its proof.
    let mut from = BufReader::with_capacity(256, stream);
    match read_frame(&mut from, &mut frame) {
        Ok(true) => {}
        Ok(false) => return Ok(Some(Refusal::Left)),
        Err(error) if has_left(&error) => return Ok(Some(Refusal::Left)),
        Err(error) => return Err(error),
    }
    let request = Request::decode(&frame);
    stream.set_read_timeout(None)?;
    let refused = match request {
        Some(Request::Prove { log_id, .. }) if log_id != pass.log_id => Some(format!(
            "this member's log is {}, the client's file says {log_id}: use this group's file",
            pass.log_id
        )),
        Some(Request::Prove { log_id, proof }) if !pass.secret.proves_client(log_id, challenge, &proof) => {
            Some(String::from(
                "the client's file has another secret than this member's: use the file that the member was started with",
            ))
        }
        Some(Request::Prove { .. }) => None,
        Some(_) | None => return Ok(Some(Refusal::NoProof)),
    };
    frame.clear();
    let Some(why) = refused else {
        Reply::Welcome.encode(&mut frame);
        write_all(&mut to, &mut frame)?;
        return Ok(None);
    };
    Reply::Stranger { why: why.clone() }.encode(&mut frame);
    write_all(&mut to, &mut frame)?;
    Ok(Some(Refusal::Stranger(why)))
}

/// Why a client was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It has closed the connection.
    Left,
    /// It speaks something else.
    NoProof,
    /// It was told so.
    Stranger(String),
}

/// Asks a member one question over a connection of its own.
///
/// # Errors
///
/// As [`connect`] and [`next_reply`].
pub(crate) fn ask(socket: &Path, pass: &Pass, request: &Request, patience: Duration) -> io::Result<Reply> {
    let mut stream = connect(socket, pass, patience)?;
    let mut encoded = Vec::new();
    request.encode(&mut encoded);
    write_all(&mut stream, &mut encoded)?;
    next_reply(&mut BufReader::new(stream), &mut encoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::ViewMember;

    #[test]
    fn a_client_of_another_group_is_told_so_and_gets_nothing_else() {
        let pass = |log_id, secret: &str| Pass {
            log_id: LogId([log_id; 16]),
            secret: Secret::new(secret.as_bytes()).unwrap(),
        };
        let (folder, patience) = (tempfile::tempdir().unwrap(), Duration::from_secs(60));
        let socket = folder.path().join("m1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let admit_next = || {
            let (stream, _) = listener.accept().unwrap();
            admit(&stream, &pass(1, "the group's secret"), patience).unwrap()
        };
        for (client, words) in [
            (pass(1, "the group's secret"), None),
            (pass(2, "the group's secret"), Some("use this group's file")),
            (pass(1, "another group's secret"), Some("has another secret")),
        ] {
            let connected = std::thread::scope(|scope| {
                let connected = scope.spawn(|| connect(&socket, &client, patience));
                let refused = admit_next();
                assert_eq!(refused.is_some(), words.is_some(), "{refused:?}");
                connected.join().unwrap()
            });
            let why = connected.as_ref().err().map(|error| Stranger::of(error).unwrap().to_string());
            assert!(
                why.is_some() == words.is_some() && why.iter().all(|why| why.contains(words.unwrap())),
                "{why:?}"
            );
        }
        // Whoever asks without a proof gets no answer, and whoever leaves is gone.
        let mut rude = UnixStream::connect(&socket).unwrap();
        let mut asked = Vec::new();
        Request::Status.encode(&mut asked);
        write_all(&mut rude, &mut asked).unwrap();
        assert_eq!(admit_next(), Some(Refusal::NoProof));
        drop(UnixStream::connect(&socket).unwrap());
        assert_eq!(admit_next(), Some(Refusal::Left));
    }

    #[test]
    fn every_request_and_reply_comes_back_and_no_prefix_of_one_passes_for_another() {
        let requests = [
            Request::Append { sequence: 7, payload: b"bytes".to_vec() },
            Request::Append { sequence: u64::MAX, payload: vec![] },
            Request::Status,
            Request::Barrier,
            Request::Read { from: 1, to: 2 },
            Request::Close,
            Request::HandOver { to: 255 },
            Request::Prove { log_id: LogId([1; 16]), proof: [2; PROOF_BYTES] },
            Request::Members,
            Request::AcceptLoss,
            Request::Change(Change::Add { member: MemberId(4), address: None }),
            Request::Change(Change::Add {
                member: MemberId(255),
                address: Some("[::1]:65535".parse().unwrap()),
            }),
            Request::Change(Change::Remove { member: MemberId(0) }),
            Request::Change(Change::Replace {
                old: MemberId(1),
                new: MemberId(4),
                address: Some("10.0.0.4:7001".parse().unwrap()),
            }),
            Request::Change(Change::Quorums { quorums: Quorums::Majority }),
            Request::Change(Change::Quorums { quorums: Quorums::Sizes { write: 2, takeover: 4 } }),
        ];
        let view = View {
            by: 1,
            primary: Some(1),
            configuration: 3,
            committed: true,
            write_quorum: 2,
            takeover_quorum: 2,
            highest: 4,
            outside: None,
            members: vec![ViewMember {
                member: 4,
                standing: "learner".into(),
                replaces: Some(2),
                address: Some("10.0.0.4:7001".parse().unwrap()),
                follows: Some("streaming".into()),
            }],
        };
        let standing = Standing {
            by: 2,
            role: "primary".into(),
            epoch: "e1.m2".into(),
            durable: 4096,
            trimmed: 4096,
            tail: 5000,
            payload_bytes_max: Some(1 << 20),
            void_batches: 3,
            damaged: true,
            follows: Some(2),
            standing: "voter".into(),
            outside: Some("it has left".into()),
            voters: vec![1, 2, 3],
            quorum: 2,
            kept_out: vec!["by m1: because".into()],
            stopped: Some("asked".into()),
            checkpoint_from: Some(8008),
            windows: Windows { binds: 600, allocated: 4, used_up: 2 },
            batches: Batches { sent: 9, doorbells: 9, requests: 20, signalled: 8, copied_bytes: 936 },
            completions_lost: LostCompletions { requests: 5, receives: 0 },
        };
        let replies = [
            Reply::Acknowledged { sequence: 1, start: 2, end: 3 },
            Reply::Refused { sequence: 1, passes: true, why: "no".into() },
            Reply::Refused { sequence: 1, passes: false, why: String::new() },
            Reply::Challenge([7; NONCE_BYTES]),
            Reply::Welcome,
            Reply::Stranger { why: "whose?".into() },
            Reply::Unknown { sequence: 1, why: "perhaps".into() },
            Reply::Status(Box::new(standing)),
            Reply::Barrier { end: 9 },
            Reply::Failed { why: "gone".into() },
            Reply::Full { why: "no room".into() },
            Reply::Record { start: 5, end: 64, payload: vec![1, 2] },
            Reply::ReadEnd,
            Reply::Closed,
            Reply::HandedOver,
            Reply::LossAccepted { from: 4096, to: u64::MAX },
            Reply::Members(view),
            Reply::Changed { number: 9 },
            Reply::NotChanged { what: NotChanged::Refused, why: "no".into() },
            Reply::NotChanged { what: NotChanged::Passes, why: "later".into() },
            Reply::NotChanged { what: NotChanged::Unknown, why: String::new() },
        ];
        let mut stream = Vec::new();
        for request in &requests {
            request.encode(&mut stream);
        }
        for reply in &replies {
            reply.encode(&mut stream);
        }
        let (mut from, mut frame) = (&stream[..], Vec::new());
        for request in &requests {
            assert!(read_frame(&mut from, &mut frame).unwrap());
            assert_eq!(Request::decode(&frame).as_ref(), Some(request));
        }
        for reply in &replies {
            assert!(read_frame(&mut from, &mut frame).unwrap());
            assert_eq!(Reply::decode(&frame).as_ref(), Some(reply));
        }
        assert!(!read_frame(&mut from, &mut frame).unwrap());
    }

    #[test]
    fn impossible_lengths_and_torn_frames_are_errors() {
        let mut frame = Vec::new();
        for bad in [&[0, 0, 0, 0, 1][..], &[255, 255, 255, 255, 1], &[3, 0, 0, 0, 1], &[3, 0]] {
            assert!(read_frame(&mut { bad }, &mut frame).is_err(), "{bad:?}");
        }
        for bad in
            [&[][..], &[0], &[99], &[1, 2, 3], &[4, 0, 0], &[2, 0], &[7; 48], &[7; 50], &[9; 24], &[9; 26]]
        {
            assert_eq!(Request::decode(bad), None, "{bad:?}");
        }
        let no_flag = [&[2][..], &[0; 8], &[2, 0, 0, 0, 0, 0, 0, 0]].concat();
        for bad in [&[][..], &[0], &[1, 2], &[4, b'{'], &[9, 9], &[11; 32], &[11; 34], &no_flag] {
            assert_eq!(Reply::decode(bad), None, "{bad:?}");
        }
    }
}

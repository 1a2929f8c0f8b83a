//! Proof of the group's secret by challenge and response, before anything else is read from a connection.
//!
//! ```text
//!   dialler                                   listener
//!   opening: magic, version, nonce ─────────▶
//!           ◀───────────────────────────────  opening: magic, version, nonce
//!   proof("dialler", both openings) ────────▶ checks, closes if wrong
//!           ◀───────────────────────────────  proof("listener", both openings)
//!   checks, closes if wrong
//! ```
//!
//! The proofs are the `tcp` provider's ([`windlass_tcp::auth`]) with a purpose of their own, so that a proof for one is worthless for the
//! other. Fresh nonces on both sides make a recorded proof worthless; the role in it makes a reflected one worthless. The secret never
//! crosses the wire. What follows is neither encrypted nor signed: the network is trusted not to rewrite established connections
//! (DESIGN.md section 9.3).

use std::fmt;

use windlass_log::LogId;
pub use windlass_tcp::auth::{NONCE_BYTES, PROOF_BYTES};
use windlass_tcp::auth::{Role, SECRET_BYTES_MIN, Transcript};

/// Bytes of an opening.
pub(crate) const OPENING_BYTES: usize = 48;
/// The version of the control plane's framing.
pub(crate) const WIRE_VERSION: u16 = 1;

const MAGIC: [u8; 8] = *b"WINDLCTL";
const STREAM_MAGIC: [u8; 8] = *b"WINDLSTM";
const NONCE_AT: usize = OPENING_BYTES - NONCE_BYTES;
/// What the proofs speak of; the version is checked in the openings before.
const PURPOSE: &[u8] = b"windlass control";
const STREAM_PURPOSE: &[u8] = b"windlass stream";
const CLIENT_PURPOSE: &[u8] = b"windlass client";

/// The secret that all members of a group share; at least [`Secret::BYTES_MIN`] bytes. Not printed by `Debug`, overwritten
/// nowhere: keep its source as safe as the data.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// A secret too short to be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the group's secret has {bytes} bytes, it needs at least {}: take 32 from a random source",
    Secret::BYTES_MIN
)]
pub struct SecretTooShort {
    /// What was given.
    pub bytes: usize,
}

impl Secret {
    /// The fewest bytes of a secret.
    pub const BYTES_MIN: usize = SECRET_BYTES_MIN;

    /// The secret with these bytes.
    ///
    /// # Errors
    ///
    /// [`SecretTooShort`]: take at least 16 bytes, better 32, from a random source.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Secret, SecretTooShort> {
        let bytes = bytes.into();
        if bytes.len() < Secret::BYTES_MIN {
            return Err(SecretTooShort { bytes: bytes.len() });
        }
        Ok(Secret(bytes))
    }

    /// A client's proof that it knows the group: for one log, and for one challenge that the member has just made at random. A member's clients are its own
    /// machine's, and whoever may reach them is kept out by other means; this keeps clients from the wrong group.
    #[must_use]
    pub fn prove_client(&self, log_id: LogId, challenge: [u8; NONCE_BYTES]) -> [u8; PROOF_BYTES] {
        client_transcript(log_id, challenge).prove(&self.for_tcp(), Role::Dialer)
    }

    /// Whether `proof` is the one that [`Secret::prove_client`] makes. In constant time.
    #[must_use]
    pub fn proves_client(
        &self,
        log_id: LogId,
        challenge: [u8; NONCE_BYTES],
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        client_transcript(log_id, challenge).verify(&self.for_tcp(), Role::Dialer, proof).is_ok()
    }

    /// The secret as the `tcp` provider takes it.
    pub(crate) fn for_tcp(&self) -> windlass_tcp::auth::Secret {
        windlass_tcp::auth::Secret::new(&self.0).expect("its length was checked when it was made")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

fn client_transcript(log_id: LogId, challenge: [u8; NONCE_BYTES]) -> Transcript<'static> {
    Transcript {
        purpose: CLIENT_PURPOSE,
        group: log_id.0,
        dialer_nonce: [0; NONCE_BYTES],
        acceptor_nonce: challenge,
        context: &[],
    }
}

/// Which end of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Dialler,
    Listener,
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::Dialler => End::Listener,
            End::Listener => End::Dialler,
        }
    }
}

/// What a connection is for: its dialler says so in its opening, and both prove it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Frames of the drivers.
    Control,
    /// A checkpoint, one for each connection.
    Stream,
}

/// Why an opening was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpeningError {
    Magic,
    Version { found: u16 },
}

/// The opening with this nonce. A listener's is always of [`Kind::Control`].
pub(crate) fn opening(kind: Kind, nonce: [u8; NONCE_BYTES]) -> [u8; OPENING_BYTES] {
    let mut bytes = [0; OPENING_BYTES];
    bytes[..8].copy_from_slice(match kind {
        Kind::Control => &MAGIC,
        Kind::Stream => &STREAM_MAGIC,
    });
    bytes[8..10].copy_from_slice(&WIRE_VERSION.to_le_bytes());
    bytes[NONCE_AT..].copy_from_slice(&nonce);
    bytes
}

/// Checks a peer's opening; answers what the connection is for, by its word.
pub(crate) fn check_opening(bytes: &[u8; OPENING_BYTES]) -> Result<Kind, OpeningError> {
    let kind = match bytes[..8] {
        ref magic if *magic == MAGIC => Kind::Control,
        ref magic if *magic == STREAM_MAGIC => Kind::Stream,
        _ => return Err(OpeningError::Magic),
    };
    let found = u16::from_le_bytes([bytes[8], bytes[9]]);
    if found != WIRE_VERSION {
        return Err(OpeningError::Version { found });
    }
    Ok(kind)
}

/// What both ends prove over: the nonces of both openings. The log id is no part of it, so that a wrong one is told apart from a wrong secret.
fn transcript(dialler: &[u8; OPENING_BYTES], listener: &[u8; OPENING_BYTES]) -> Transcript<'static> {
    let nonce = |opening: &[u8; OPENING_BYTES]| {
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&opening[NONCE_AT..]);
        nonce
    };
    let purpose = if dialler[..8] == STREAM_MAGIC { STREAM_PURPOSE } else { PURPOSE };
    Transcript {
        purpose,
        group: [0; 16],
        dialer_nonce: nonce(dialler),
        acceptor_nonce: nonce(listener),
        context: &[],
    }
}

fn role(end: End) -> Role {
    match end {
        End::Dialler => Role::Dialer,
        End::Listener => Role::Acceptor,
    }
}

/// The proof that `end` gives over both openings.
pub(crate) fn prove(
    secret: &Secret,
    end: End,
    dialler: &[u8; OPENING_BYTES],
    listener: &[u8; OPENING_BYTES],
) -> [u8; PROOF_BYTES] {
    transcript(dialler, listener).prove(&secret.for_tcp(), role(end))
}

/// Whether `found` is the proof that `end` would give. In constant time.
pub(crate) fn proves(
    secret: &Secret,
    end: End,
    dialler: &[u8; OPENING_BYTES],
    listener: &[u8; OPENING_BYTES],
    found: &[u8; PROOF_BYTES],
) -> bool {
    transcript(dialler, listener).verify(&secret.for_tcp(), role(end), found).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_needs_the_secret_both_nonces_and_the_role() {
        let secret = Secret::new(*b"sixteen bytes ok").unwrap();
        let other = Secret::new(*b"sixteen bytes no").unwrap();
        let (a, b, c) = (
            opening(Kind::Control, [1; 32]),
            opening(Kind::Control, [2; 32]),
            opening(Kind::Control, [3; 32]),
        );
        let proof = prove(&secret, End::Dialler, &a, &b);
        assert!(proves(&secret, End::Dialler, &a, &b, &proof));
        assert!(!proves(&other, End::Dialler, &a, &b, &proof), "another secret");
        assert!(!proves(&secret, End::Listener, &a, &b, &proof), "reflected");
        assert!(!proves(&secret, End::Dialler, &a, &c, &proof), "replayed to another listener nonce");
        assert!(!proves(&secret, End::Dialler, &c, &b, &proof), "replayed under another dialler nonce");
        assert!(!proves(&secret, End::Dialler, &a, &b, &[0; 32]));
        let stream = opening(Kind::Stream, [1; 32]);
        assert!(!proves(&secret, End::Dialler, &stream, &b, &proof), "for another kind of connection");
    }

    #[test]
    fn a_clients_proof_is_of_one_secret_one_log_and_one_challenge() {
        let secret = Secret::new(*b"sixteen bytes ok").unwrap();
        let other = Secret::new(*b"sixteen bytes no").unwrap();
        let proof = secret.prove_client(LogId([1; 16]), [2; 32]);
        assert!(secret.proves_client(LogId([1; 16]), [2; 32], &proof));
        assert!(!other.proves_client(LogId([1; 16]), [2; 32], &proof));
        assert!(!secret.proves_client(LogId([3; 16]), [2; 32], &proof));
        assert!(!secret.proves_client(LogId([1; 16]), [4; 32], &proof));
        let (none, challenge) = (opening(Kind::Control, [0; 32]), opening(Kind::Control, [2; 32]));
        assert!(!proves(&secret, End::Dialler, &none, &challenge, &proof), "worthless among members");
    }

    #[test]
    fn openings_of_another_protocol_or_version_are_refused() {
        let good = opening(Kind::Control, [7; 32]);
        assert_eq!(check_opening(&good), Ok(Kind::Control));
        assert_eq!(check_opening(&opening(Kind::Stream, [7; 32])), Ok(Kind::Stream));
        let mut bad = good;
        bad[3] ^= 1;
        assert_eq!(check_opening(&bad), Err(OpeningError::Magic));
        let mut bad = good;
        bad[8] = 9;
        assert_eq!(check_opening(&bad), Err(OpeningError::Version { found: 9 }));
    }

    #[test]
    fn a_short_secret_is_refused_and_none_is_printed() {
        assert_eq!(Secret::new(*b"short"), Err(SecretTooShort { bytes: 5 }));
        assert_eq!(format!("{:?}", Secret::new([9; 32]).unwrap()), "Secret(..)");
    }
}

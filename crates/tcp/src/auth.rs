//! Proof, in both directions, that the two ends of a TCP connection know the group's secret. Pure functions, no IO.
//!
//! The dialer sends a nonce, the acceptor answers with one of its own, then each proves with an HMAC-SHA-256 over both nonces, its role,
//! the purpose and version of the protocol, the group, and what the connection is for. The dialer proves first: nobody gets an answer made with
//! the secret before they have shown that they know it. Fresh nonces make a recorded proof worthless, the role makes it worthless to
//! send a proof back to its maker.
//!
//! What this is not: encryption, or integrity of what follows. Who can change packets between the two machines can change what they
//! say afterwards. Keep the group's network private.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Shortest secret.
pub const SECRET_BYTES_MIN: usize = 16;

/// The group's secret. Never shown.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

/// A secret that is too short.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret of {bytes} bytes: at least {SECRET_BYTES_MIN} random bytes are needed")]
pub struct SecretError {
    /// How long it was.
    pub bytes: usize,
}

impl Secret {
    /// Takes the bytes as they are; they should be random.
    ///
    /// # Errors
    /// [`SecretError`]: fewer than [`SECRET_BYTES_MIN`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretError { bytes: bytes.len() });
        }
        Ok(Self(bytes.into()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Whose proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// The end that made the TCP connection.
    Dialer = 1,
    /// The end that took it.
    Acceptor = 2,
}

/// What both proofs speak of: the same bytes at both ends, or the proofs don't fit.
#[derive(Clone, Copy, Debug)]
pub struct Transcript<'a> {
    /// Which protocol follows, with its version: proofs for one are worthless for another.
    pub purpose: &'a [u8],
    /// The log id of the group.
    pub group: [u8; 16],
    /// The dialer's nonce.
    pub dialer_nonce: [u8; NONCE_BYTES],
    /// The acceptor's nonce.
    pub acceptor_nonce: [u8; NONCE_BYTES],
    /// What this connection is for, in that protocol's own terms.
    pub context: &'a [u8],
}

/// Shows that the peer has proved that it knows the secret. Only [`Transcript::verify`] makes one.
#[derive(Debug)]
pub struct Proven(());

/// The peer's proof does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer does not know the secret, or is of another group")]
pub struct NotProven;

impl Transcript<'_> {
    /// The proof of the end that is `role`.
    #[must_use]
    pub fn prove(&self, secret: &Secret, role: Role) -> [u8; PROOF_BYTES] {
        self.mac(secret, role).finalize().into_bytes().into()
    }

    /// Checks the proof of the end that is `role`, in time that does not depend on where it differs.
    ///
    /// # Errors
    /// [`NotProven`]: close the connection, say nothing.
    pub fn verify(
        &self,
        secret: &Secret,
        role: Role,
        proof: &[u8; PROOF_BYTES],
    ) -> Result<Proven, NotProven> {
        match self.mac(secret, role).verify_slice(proof) {
            Ok(()) => Ok(Proven(())),
            Err(_) => Err(NotProven),
        }
    }

    fn mac(&self, secret: &Secret, role: Role) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0).expect("HMAC takes keys of any length");
        mac.update(&[role as u8]);
        for part in [self.purpose, &self.group, &self.dialer_nonce, &self.acceptor_nonce, self.context] {
            mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

/// A fresh nonce from the system's random numbers.
///
/// # Errors
/// The system has none to give: don't connect.
pub fn nonce() -> Result<[u8; NONCE_BYTES], getrandom::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript() -> Transcript<'static> {
        Transcript {
            purpose: b"test 1",
            group: [7; 16],
            dialer_nonce: [1; NONCE_BYTES],
            acceptor_nonce: [2; NONCE_BYTES],
            context: b"for this",
        }
    }

    #[test]
    fn a_proof_fits_only_what_it_was_made_for() {
        let secret = Secret::new(b"sixteen or more bytes").unwrap();
        let whole = transcript();
        let proof = whole.prove(&secret, Role::Dialer);
        assert!(whole.verify(&secret, Role::Dialer, &proof).is_ok());

        let other = Secret::new(b"another sixteen bytes").unwrap();
        assert!(whole.verify(&other, Role::Dialer, &proof).is_err(), "another secret");
        assert!(whole.verify(&secret, Role::Acceptor, &proof).is_err(), "sent back to its maker");
        let changes: [(&str, Transcript<'_>); 6] = [
            ("purpose", Transcript { purpose: b"test 2", ..whole }),
            ("group", Transcript { group: [8; 16], ..whole }),
            ("dialer's nonce", Transcript { dialer_nonce: [3; NONCE_BYTES], ..whole }),
            ("acceptor's nonce", Transcript { acceptor_nonce: [3; NONCE_BYTES], ..whole }),
            ("context", Transcript { context: b"for that", ..whole }),
            (
                "the same bytes cut elsewhere",
                Transcript { purpose: b"test 1f", context: b"or this", ..whole },
            ),
        ];
        for (what, changed) in changes {
            assert!(changed.verify(&secret, Role::Dialer, &proof).is_err(), "{what}");
        }
        for bit in 0..PROOF_BYTES * 8 {
            let mut bent = proof;
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(whole.verify(&secret, Role::Dialer, &bent).is_err());
        }
    }

    #[test]
    fn a_short_secret_is_refused_and_none_is_shown() {
        assert_eq!(Secret::new(b"short").unwrap_err(), SecretError { bytes: 5 });
        let secret = Secret::new(b"sixteen or more bytes").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}

//! The login of a connection of RESP: the secret that its peer sends becomes a proof for the
//! session in memory.
//!
//! The session is a server of SCRAM like any other, so a user is proven and a failure is counted in
//! one place. The conversation is its client.

use crate::auth::{AuthMethod, AuthRequest, Challenge, Login};

use super::reply::Protocol;

/// The number of all frames of a login; no item ever has it.
const REQUEST_ID: u64 = u64::MAX - 1;
/// A hash of so many rounds takes a few microseconds.
const QUICK_ITERATIONS_MAX: u32 = 16;

/// What the peer is answered when a login is made.
#[derive(Debug)]
pub(super) enum Wanted {
    /// OK.
    Auth,
    /// The answer to HELLO.
    Hello {
        protocol: Option<Protocol>,
        name: Option<String>,
    },
}

/// How far a login is.
#[derive(Default)]
pub(super) enum Step {
    /// None is under way.
    #[default]
    None,
    /// That by the certificate of the connection, for which nobody has asked.
    Certificate,
    /// The session is to tell how to hash.
    Begun(Login, Wanted),
    /// The hash is under way; the challenge is here until somebody takes it.
    Hashed(Login, Wanted, Option<Challenge>),
    /// The session is to judge the proof.
    Proven(Login, Wanted),
    /// The session is to forget the user.
    Left,
}

/// The login of one connection.
pub(super) struct RespLogin {
    pub(super) may_carry_secrets: bool,
    /// The name in the certificate of the connection.
    pub(super) certificate: Option<String>,
    pub(super) is_in: bool,
    /// A secret has stood in the bytes of the peer that were taken last.
    pub(super) has_secret: bool,
    pub(super) step: Step,
    /// A frame for the session.
    outgoing: Vec<u8>,
    /// Logins that were begun: no two have one nonce.
    attempts: u64,
}

impl RespLogin {
    pub(super) fn new(may_carry_secrets: bool, certificate: Option<String>) -> Self {
        let mut login = RespLogin {
            may_carry_secrets,
            certificate,
            is_in: false,
            has_secret: false,
            step: Step::None,
            outgoing: Vec::new(),
            attempts: 0,
        };
        if login.certificate.is_some() {
            login.step = Step::Certificate;
            login.send(AuthMethod::Certificate, b"-");
        }
        login
    }

    /// Whether a user has logged in.
    pub(super) fn is_in(&self) -> bool {
        self.is_in
    }

    /// Whether commands wait until a login is over.
    pub(super) fn is_under_way(&self) -> bool {
        !matches!(self.step, Step::None)
    }

    /// The frame that is to be given to the session.
    pub(super) fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    pub(super) fn send(&mut self, method: AuthMethod, message: &[u8]) {
        AuthRequest { method, message }.write(&mut self.outgoing, REQUEST_ID);
    }

    /// Random bytes would add nothing: both ends stand in this process, and the session's part of
    /// the nonce is random.
    pub(super) fn next_nonce(&mut self) -> [u8; crate::auth::LOGIN_NONCE_BYTES] {
        self.attempts += 1;
        let mut nonce = [0; crate::auth::LOGIN_NONCE_BYTES];
        nonce[..8].copy_from_slice(&self.attempts.to_le_bytes());
        nonce
    }

    /// The session has told how to hash: at once if that is quick.
    pub(super) fn challenged(&mut self, login: Login, wanted: Wanted, challenge: Challenge) {
        match challenge.iterations() <= QUICK_ITERATIONS_MAX {
            true => self.prove(login, wanted, &challenge.salted()),
            false => self.step = Step::Hashed(login, wanted, Some(challenge)),
        }
    }

    /// The hash is there.
    pub(super) fn prove(&mut self, mut login: Login, wanted: Wanted, salted: &[u8; 32]) {
        let proof = login.prove(salted).expect("it was challenged");
        self.send(AuthMethod::Scram, proof.as_bytes());
        self.step = Step::Proven(login, wanted);
    }
}

/// Shows no secret.
impl std::fmt::Debug for RespLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RespLogin");
        shown.field("is_in", &self.is_in).finish_non_exhaustive()
    }
}

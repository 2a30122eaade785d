//! Who asks: SCRAM-SHA-256 on both sides, as pure machines. Bytes, nonces and time are arguments.
//!
//! ```text
//! Secret --salt, iterations--> Verifier      what a server keeps: nobody can log in with it
//!    |                            |
//! Login (client) <--messages--> Exchange (server)          Transport: what the connection proves
//! ```
//!
//! What must hold: nothing of a peer is stored before its length is checked, and secrets are
//! compared in constant time. The bytes stand in `AUTH.md`.

mod exchange;
mod fault;
mod frame;
mod login;
mod message;
mod secret;
mod transport;
mod verifier;

pub use exchange::{Credentials, Exchange, Proven};
pub use fault::{AuthFault, LoginFault};
pub use frame::{AuthMethod, AuthReply, AuthRequest};
pub use login::{Challenge, Identity, LOGIN_NONCE_BYTES, Login};
pub use message::{LOGIN_BYTES_MAX, MESSAGE_BYTES_MAX};
pub use secret::{KEY_BYTES, KEY_PREFIX, SECRET_BYTES_MAX, Secret, SecretFault, SecretKind};
pub use transport::{BINDING_BYTES, Transport};
pub use verifier::{
    ITERATIONS_MAX, KEY_ITERATIONS, PASSWORD_ITERATIONS, PASSWORD_ITERATIONS_MIN, SALT_BYTES,
    Verifier, VerifierFault, salted,
};

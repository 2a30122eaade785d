//! Why a login is refused, by either side.

use thiserror::Error;

use super::message::MESSAGE_BYTES_MAX;
use super::verifier::{ITERATIONS_MAX, PASSWORD_ITERATIONS_MIN};

/// Why a server refuses a login. On the wire all of them are status AUTH. No variant tells whether
/// a user exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AuthFault {
    /// Nothing but HELLO, AUTH and PING is taken before a login.
    #[error("log in first: this server takes HELLO, AUTH and PING before AUTH is answered")]
    Required,
    /// A login was made already.
    #[error("this connection is logged in already; another user takes another connection")]
    Repeated,
    /// The server knows no users.
    #[error("this server has no users, so nobody can log in: it takes requests without AUTH")]
    NoUsers,
    /// The body of an AUTH frame has another form.
    #[error(
        "the body of AUTH is u16 method, u16 0, u32 length and a message of 1 to {max} bytes with \
         zeros behind it: {what}",
        max = MESSAGE_BYTES_MAX
    )]
    Body {
        /// What is wrong.
        what: &'static str,
    },
    /// A method that the server does not have.
    #[error("method {0} of AUTH is not known: 1 is SCRAM-SHA-256, 2 the certificate")]
    Method(u16),
    /// A message of SCRAM has another form.
    #[error("no message of SCRAM-SHA-256: {what}")]
    Message {
        /// What is wrong.
        what: &'static str,
    },
    /// The client binds its proof to nothing, and the connection is encrypted.
    #[error(
        "this connection is encrypted: its logins are bound to it, so the first message begins \
         with p=tls-exporter,,"
    )]
    Unbound,
    /// The client binds its proof to an encrypted connection, and this one is plain.
    #[error(
        "this connection is not encrypted: nothing binds a login to it, so the first message \
         begins with n,,"
    )]
    Bound,
    /// The name, the secret or the connection is another one: which of them is not told.
    #[error("the name or the secret is wrong, or the proof is of another connection")]
    Wrong,
    /// No user has the certificate of this connection.
    #[error("this connection has no certificate, or its name is that of no user")]
    Certificate,
    /// Too many logins of this address have failed.
    #[error("too many logins from this address have failed: try again in {0} ms")]
    Delayed(u64),
}

/// Why a client does not log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LoginFault {
    /// The name is none.
    #[error(
        "the name of a login is 1 to {max} of the characters A-Z a-z 0-9 _ . - and / before the \
         name of a key",
        max = super::message::LOGIN_BYTES_MAX
    )]
    Name,
    /// A message of the server has another form.
    #[error("the server's message is none of SCRAM-SHA-256: {what}")]
    Message {
        /// What is wrong.
        what: &'static str,
    },
    /// The server's part of the nonce is missing, or the client's part is another one.
    #[error("the server answers another login: its nonce does not begin with that of this one")]
    Nonce,
    /// The server asks for a hash that protects a password too little, or costs too much.
    #[error(
        "the server asks for {0} iterations of the hash; a password has {min} to {max}",
        min = PASSWORD_ITERATIONS_MIN,
        max = ITERATIONS_MAX
    )]
    Iterations(u32),
    /// The server does not know the secret either.
    #[error("the server does not prove that it knows the user: it is not the one it claims to be")]
    Server,
    /// A message came that the state of the login does not allow.
    #[error("the server sends a message of a login that is not under way")]
    Order,
}

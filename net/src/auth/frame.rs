//! The bodies of AUTH frames.

use crate::batch::{padded, read_u16, read_u32};
use crate::frame::{Header, Opcode, write_frame};
use crate::level::AckLevel;
use crate::status::Status;

use super::fault::AuthFault;
use super::message::MESSAGE_BYTES_MAX;

const HEAD_BYTES: usize = 8;

/// How a client logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum AuthMethod {
    /// SCRAM-SHA-256, by two messages.
    Scram = 1,
    /// The name in the certificate of the connection; its message is one byte that nobody reads.
    Certificate = 2,
    /// To be nobody again. Of callers in the memory of the server alone.
    Leave = 3,
}

/// The body of an AUTH request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRequest<'a> {
    /// How.
    pub method: AuthMethod,
    /// The client's message.
    pub message: &'a [u8],
}

impl<'a> AuthRequest<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// [`AuthFault::Body`], [`AuthFault::Method`].
    pub fn read(body: &'a [u8]) -> Result<Self, AuthFault> {
        let (code, message, rest) = read_body(body)?;
        if !rest.is_empty() {
            return Err(AuthFault::Body {
                what: "more stands behind it",
            });
        }
        let method = match code {
            1 => AuthMethod::Scram,
            2 => AuthMethod::Certificate,
            3 => AuthMethod::Leave,
            _ => return Err(AuthFault::Method(code)),
        };
        Ok(AuthRequest { method, message })
    }

    /// Appends the frame of the request.
    ///
    /// # Panics
    /// If the message is empty or over the limit.
    pub fn write(&self, out: &mut Vec<u8>, request_id: u64) {
        let body = body_of(self.method as u16, self.message);
        let header = Header::request(Opcode::Auth, request_id, AckLevel::None, 0);
        write_frame(out, header, &body);
    }
}

/// The body of the answer OK to an AUTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthReply<'a> {
    /// The client is to send its next message.
    GoOn {
        /// The server's message.
        message: &'a [u8],
    },
    /// The client is logged in.
    Done {
        /// The server's message.
        message: &'a [u8],
        /// The body of HELLO's answer, of an open connection.
        hello: &'a [u8],
    },
}

impl<'a> AuthReply<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// [`AuthFault::Body`].
    pub fn read(body: &'a [u8]) -> Result<Self, AuthFault> {
        match read_body(body)? {
            (1, message, []) => Ok(AuthReply::GoOn { message }),
            (2, message, hello) => Ok(AuthReply::Done { message, hello }),
            _ => Err(AuthFault::Body {
                what: "its stage is 1, or 2 with HELLO behind it",
            }),
        }
    }

    /// Appends the frame of the answer of a shard.
    pub fn write(&self, out: &mut Vec<u8>, request_id: u64, shard: u16) {
        let body = match *self {
            AuthReply::GoOn { message } => body_of(1, message),
            AuthReply::Done { message, hello } => {
                let mut body = body_of(2, message);
                body.extend_from_slice(hello);
                body
            }
        };
        let header = Header::reply(Opcode::Auth as u8, request_id, Status::Ok, shard);
        write_frame(out, header, &body);
    }
}

fn body_of(code: u16, message: &[u8]) -> Vec<u8> {
    assert!(
        (1..=MESSAGE_BYTES_MAX).contains(&message.len()),
        "a message of the bounds"
    );
    let mut body = vec![0; HEAD_BYTES];
    body[0..2].copy_from_slice(&code.to_le_bytes());
    let len = u32::try_from(message.len()).expect("a short message");
    body[4..8].copy_from_slice(&len.to_le_bytes());
    body.extend_from_slice(message);
    body.resize(padded(body.len()), 0);
    body
}

/// The code, the message and what stands behind it.
fn read_body(body: &[u8]) -> Result<(u16, &[u8], &[u8]), AuthFault> {
    let wrong = |what| AuthFault::Body { what };
    if body.len() < HEAD_BYTES {
        return Err(wrong("it is too short"));
    }
    if read_u16(body, 2) != 0 {
        return Err(wrong("bytes 2 and 3 are not 0"));
    }
    let len = read_u32(body, 4) as usize;
    if !(1..=MESSAGE_BYTES_MAX).contains(&len) {
        return Err(wrong("its message is empty or too long"));
    }
    let end = HEAD_BYTES + len;
    let whole = padded(end);
    if body.len() < whole {
        return Err(wrong("its message is cut"));
    }
    if body[end..whole].iter().any(|&byte| byte != 0) {
        return Err(wrong("what stands behind its message is not 0"));
    }
    Ok((read_u16(body, 0), &body[HEAD_BYTES..end], &body[whole..]))
}

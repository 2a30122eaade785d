//! The messages of SCRAM-SHA-256 (RFC 5802, 7677), and what is computed of them.

use base64ct::{Base64, Base64Unpadded, Encoding};
use ctutils::CtEq;

use super::transport::BINDING_BYTES;
use super::verifier::{Bytes32, DIGEST_BYTES, SALT_BYTES, hmac, sha256};

/// Bytes of a message, at most.
pub const MESSAGE_BYTES_MAX: usize = 512;
/// Bytes of the name of a login, at most; at least 1.
pub const LOGIN_BYTES_MAX: usize = 96;
/// Characters of the client's part of the nonce.
pub(super) const NONCE_BYTES_MIN: usize = 16;
pub(super) const NONCE_BYTES_MAX: usize = 64;

/// What is wrong with a message.
pub(super) type Wrong = &'static str;

/// How a client binds its login to the connection: the begin of its first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// To nothing.
    None,
    /// `tls-exporter`.
    Exporter,
}

impl Binding {
    pub(super) fn header(self) -> &'static str {
        match self {
            Binding::None => "n,,",
            Binding::Exporter => "p=tls-exporter,,",
        }
    }
}

/// The client's first message.
pub(super) struct ClientFirst<'a> {
    pub(super) binding: Binding,
    /// The begin of the message, up to the part that the proof covers.
    pub(super) header: &'a str,
    /// The rest of it.
    pub(super) bare: &'a str,
    pub(super) login: &'a str,
    pub(super) nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Wrong> {
        let message = text(message)?;
        let (flag, rest) = message.split_once(',').ok_or("it has no header")?;
        let binding = match flag {
            // "y": the client could bind, and takes the server for one that cannot. On a plain
            // connection that is right.
            "n" | "y" => Binding::None,
            "p=tls-exporter" => Binding::Exporter,
            _ => return Err("its header is none of n, y and p=tls-exporter"),
        };
        let bare = rest
            .strip_prefix(',')
            .ok_or("it asks to act as another user")?;
        let (name, nonce) = bare.split_once(',').ok_or("it has no nonce")?;
        let login = name
            .strip_prefix("n=")
            .ok_or("its first field is not n, the name")?;
        let nonce = nonce
            .strip_prefix("r=")
            .ok_or("its second field is not r, the nonce")?;
        if !is_login(login) {
            return Err("its name is no name of a user");
        }
        if !(NONCE_BYTES_MIN..=NONCE_BYTES_MAX).contains(&nonce.len()) || !is_nonce(nonce) {
            return Err("its nonce is not 16 to 64 printable characters without a comma");
        }
        let header = &message[..message.len() - bare.len()];
        Ok(ClientFirst {
            binding,
            header,
            bare,
            login,
            nonce,
        })
    }
}

/// The server's first message.
pub(super) struct ServerFirst<'a> {
    pub(super) nonce: &'a str,
    pub(super) salt: [u8; SALT_BYTES],
    pub(super) iterations: u32,
}

impl<'a> ServerFirst<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Wrong> {
        let message = text(message)?;
        let (nonce, rest) = message.split_once(',').ok_or("it has one field")?;
        let (salt, rounds) = rest.split_once(',').ok_or("it has two fields")?;
        let nonce = nonce
            .strip_prefix("r=")
            .ok_or("its first field is not r, the nonce")?;
        let salt = salt
            .strip_prefix("s=")
            .ok_or("its second field is not s, the salt")?;
        let rounds = rounds
            .strip_prefix("i=")
            .ok_or("its third field is not i, the rounds")?;
        let is_number = rounds.bytes().all(|byte| byte.is_ascii_digit());
        let iterations = rounds
            .parse()
            .ok()
            .filter(|_| is_number && !rounds.starts_with('0'));
        Ok(ServerFirst {
            nonce,
            salt: bytes(salt).ok_or("its salt is not 16 bytes in base64")?,
            iterations: iterations.ok_or("its rounds are no number")?,
        })
    }

    pub(super) fn write(&self) -> String {
        let salt = Base64::encode_string(&self.salt);
        format!("r={},s={salt},i={}", self.nonce, self.iterations)
    }
}

/// The client's last message.
pub(super) struct ClientFinal<'a> {
    /// What the client thinks that it speaks by, in base64.
    pub(super) channel: &'a str,
    pub(super) nonce: &'a str,
    /// All but the proof.
    pub(super) without_proof: &'a str,
    pub(super) proof: Bytes32,
}

impl<'a> ClientFinal<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Wrong> {
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or("it has no proof")?;
        let (channel, nonce) = without_proof.split_once(',').ok_or("it has no nonce")?;
        Ok(ClientFinal {
            channel: channel
                .strip_prefix("c=")
                .ok_or("its first field is not c, the channel")?,
            nonce: nonce
                .strip_prefix("r=")
                .ok_or("its second field is not r, the nonce")?,
            without_proof,
            proof: bytes(proof).ok_or("its proof is not 32 bytes in base64")?,
        })
    }
}

/// The server's last message: its own proof.
pub(super) fn read_server_final(message: &[u8]) -> Result<Bytes32, Wrong> {
    let signature = text(message)?
        .strip_prefix("v=")
        .ok_or("it has no field v")?;
    bytes(signature).ok_or("its signature is not 32 bytes in base64")
}

pub(super) fn write_server_final(signature: &Bytes32) -> String {
    format!("v={}", Base64::encode_string(signature))
}

/// What the client's last message says of the connection, in base64.
pub(super) fn channel_of(header: &str, binding: Option<&[u8; BINDING_BYTES]>) -> String {
    let mut channel = header.as_bytes().to_vec();
    channel.extend(binding.into_iter().flatten());
    Base64::encode_string(&channel)
}

/// Random bytes as a nonce.
pub(super) fn nonce_text(random: &[u8]) -> String {
    Base64Unpadded::encode_string(random)
}

/// All of the messages that a proof covers.
pub(super) struct Transcript<'a> {
    pub(super) client_first_bare: &'a str,
    pub(super) server_first: &'a str,
    pub(super) client_final_without_proof: &'a str,
}

impl Transcript<'_> {
    /// The keyed digest of all messages.
    pub(super) fn signature(&self, key: &[u8]) -> Bytes32 {
        let parts: [&[u8]; 5] = [
            self.client_first_bare.as_bytes(),
            b",",
            self.server_first.as_bytes(),
            b",",
            self.client_final_without_proof.as_bytes(),
        ];
        hmac(key, &parts)
    }
}

/// Whether a proof is that of one who knows the secret behind `stored_key`.
pub(super) fn is_proven(stored_key: &Bytes32, signature: &Bytes32, proof: &Bytes32) -> bool {
    let client_key = xor(signature, proof);
    is_same(&sha256(&client_key), stored_key)
}

pub(super) fn xor(a: &Bytes32, b: &Bytes32) -> Bytes32 {
    let mut both = [0; DIGEST_BYTES];
    for (byte, (a, b)) in both.iter_mut().zip(a.iter().zip(b)) {
        *byte = a ^ b;
    }
    both
}

/// Compares in a time that depends on the lengths alone.
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).to_bool()
}

/// Whether a text may name a login.
pub(super) fn is_login(text: &str) -> bool {
    let is_part = |part: &str| {
        let may = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        !part.is_empty() && part.bytes().all(may)
    };
    let (user, key) = text.split_once('/').unwrap_or((text, "-"));
    text.len() <= LOGIN_BYTES_MAX && is_part(user) && is_part(key)
}

fn is_nonce(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b',')
}

fn text(message: &[u8]) -> Result<&str, Wrong> {
    let is_short = message.len() <= MESSAGE_BYTES_MAX;
    let is_plain = is_short && message.iter().all(u8::is_ascii_graphic);
    let text = std::str::from_utf8(message).ok().filter(|_| is_plain);
    text.ok_or("it is too long, or has bytes that are not printable")
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let len = Base64::decode(text, &mut bytes).ok()?.len();
    (len == N).then_some(bytes)
}

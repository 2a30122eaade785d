//! The server's side of a login.

use super::fault::AuthFault;
use super::message::{
    Binding, ClientFinal, ClientFirst, ServerFirst, Transcript, channel_of, is_proven, is_same,
    nonce_text, write_server_final,
};
use super::secret::SecretKind;
use super::transport::BINDING_BYTES;
use super::verifier::{KEY_ITERATIONS, KEY_SALT, PASSWORD_ITERATIONS, SALT_BYTES, Verifier, hmac};

/// Where the stored secrets stand.
pub trait Credentials {
    /// The stored secret of a login. A name with `/` is that of a key.
    fn verifier(&self, login: &str) -> Option<&Verifier>;

    /// Random bytes that never change and are the same on all nodes: what is told of a login that
    /// does not exist is made of them, so the answers to two tries are the same.
    fn decoy(&self) -> &[u8; 32];
}

/// Between the two messages of a client. A few hundred bytes.
pub struct Exchange {
    login: Box<str>,
    /// The stored secret that the challenge was made of; of an unknown login a decoy.
    verifier: Verifier,
    client_first_bare: Box<str>,
    server_first: Box<str>,
    nonce: Box<str>,
    /// What the client must say of the connection.
    channel: Box<str>,
}

/// A login that has proven itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Proven {
    /// Its name.
    pub login: Box<str>,
    /// The stored secret that was proven.
    pub verifier: Verifier,
    /// The server's last message.
    pub message: String,
}

impl Exchange {
    /// Takes the client's first message. Returns the server's first message, too.
    ///
    /// `binding` is that of the connection, `nonce` the random bytes of the connection, and
    /// `attempt` how many logins were begun on it: no two logins have one nonce.
    ///
    /// # Errors
    /// [`AuthFault`] for a message of another form or with another binding than the connection
    /// has. An unknown name is no error: it gets an answer like a known one.
    pub fn begin(
        message: &[u8],
        binding: Option<&[u8; BINDING_BYTES]>,
        (nonce, attempt): (&[u8; 32], u32),
        credentials: &dyn Credentials,
    ) -> Result<(Self, String), AuthFault> {
        let server_nonce = format!("{}.{attempt}", nonce_text(nonce));
        Self::begin_with(message, binding, &server_nonce, credentials)
    }

    fn begin_with(
        message: &[u8],
        binding: Option<&[u8; BINDING_BYTES]>,
        server_nonce: &str,
        credentials: &dyn Credentials,
    ) -> Result<(Self, String), AuthFault> {
        let first = ClientFirst::read(message).map_err(|what| AuthFault::Message { what })?;
        match (binding, first.binding) {
            (Some(_), Binding::None) => return Err(AuthFault::Unbound),
            (None, Binding::Exporter) => return Err(AuthFault::Bound),
            _ => {}
        }
        // Both are looked at for every name, so that the time does not tell whether it is known.
        let decoy = decoy_of(credentials.decoy(), first.login);
        let found = credentials.verifier(first.login);
        let verifier = found.unwrap_or(&decoy);
        let nonce = format!("{}{server_nonce}", first.nonce);
        let server_first = ServerFirst {
            nonce: &nonce,
            salt: verifier.salt,
            iterations: verifier.iterations,
        };
        let server_first = server_first.write();
        let exchange = Exchange {
            login: first.login.into(),
            verifier: verifier.clone(),
            client_first_bare: first.bare.into(),
            server_first: server_first.as_str().into(),
            nonce: nonce.into(),
            channel: channel_of(first.header, binding).into(),
        };
        Ok((exchange, server_first))
    }

    /// Takes the client's last message. `credentials` are those of now: who is gone or has another
    /// secret since the first message is refused like a wrong secret.
    ///
    /// # Errors
    /// [`AuthFault`]: nobody is logged in.
    pub fn finish(
        self,
        message: &[u8],
        credentials: &dyn Credentials,
    ) -> Result<Proven, AuthFault> {
        let last = ClientFinal::read(message).map_err(|what| AuthFault::Message { what })?;
        let transcript = Transcript {
            client_first_bare: &self.client_first_bare,
            server_first: &self.server_first,
            client_final_without_proof: last.without_proof,
        };
        let verifier = self.verifier;
        let signature = transcript.signature(&verifier.stored_key);
        let is_proven = is_proven(&verifier.stored_key, &signature, &last.proof);
        let is_here = is_same(last.channel.as_bytes(), self.channel.as_bytes());
        let is_now = is_same(last.nonce.as_bytes(), self.nonce.as_bytes());
        // An unknown login is compared, too, so that the time does not tell whether it is known.
        let known = credentials.verifier(&self.login);
        let is_known = known.is_some() & (known.unwrap_or(&verifier) == &verifier);
        let server_signature = transcript.signature(&verifier.server_key);
        match is_proven & is_here & is_now & is_known {
            true => Ok(Proven {
                login: self.login,
                verifier,
                message: write_server_final(&server_signature),
            }),
            false => Err(AuthFault::Wrong),
        }
    }

    /// Whose login it is.
    #[must_use]
    pub fn login(&self) -> &str {
        &self.login
    }
}

/// Shows whose login it is and nothing of what is kept of the secret.
impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({})", self.login)
    }
}

/// What is told of a login that does not exist.
fn decoy_of(key: &[u8; 32], login: &str) -> Verifier {
    let part = |label: &[u8]| hmac(key, &[label, login.as_bytes()]);
    let kind = match login.contains('/') {
        true => SecretKind::Key,
        false => SecretKind::Password,
    };
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&part(b"salt of ")[..SALT_BYTES]);
    let (salt, iterations) = match kind {
        SecretKind::Password => (salt, PASSWORD_ITERATIONS),
        SecretKind::Key => (KEY_SALT, KEY_ITERATIONS),
    };
    Verifier {
        salt,
        iterations,
        stored_key: part(b"stored key of "),
        server_key: part(b"server key of "),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

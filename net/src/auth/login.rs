//! The client's side of a login.

use std::sync::{Arc, Mutex, PoisonError};

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

use super::fault::LoginFault;
use super::message::{
    Binding, ServerFirst, Transcript, channel_of, is_login, is_same, nonce_text, read_server_final,
    xor,
};
use super::secret::{Secret, SecretKind};
use super::transport::BINDING_BYTES;
use super::verifier::{
    Bytes32, DIGEST_BYTES, ITERATIONS_MAX, PASSWORD_ITERATIONS_MIN, SALT_BYTES, hmac, salted,
    sha256,
};

/// Random bytes of the client's part of the nonce.
pub const LOGIN_NONCE_BYTES: usize = 24;

/// Who logs in, and with what. Copies share the last hash, so that a login which is made again
/// costs no more than one with a key.
#[derive(Clone)]
pub struct Identity {
    login: Arc<str>,
    secret: Arc<Secret>,
    hashed: Arc<Mutex<Option<Hashed>>>,
}

/// The hash of a secret, as a server asked for it last.
struct Hashed {
    salt: [u8; SALT_BYTES],
    iterations: u32,
    salted: Zeroizing<[u8; DIGEST_BYTES]>,
}

impl Identity {
    /// A user's name with a password, or `USER/KEY` with a key.
    ///
    /// # Errors
    /// [`LoginFault::Name`].
    pub fn new(login: &str, secret: Secret) -> Result<Self, LoginFault> {
        match is_login(login) {
            true => Ok(Identity {
                login: login.into(),
                secret: Arc::new(secret),
                hashed: Arc::default(),
            }),
            false => Err(LoginFault::Name),
        }
    }

    /// The name.
    #[must_use]
    pub fn login(&self) -> &str {
        &self.login
    }
}

/// Shows the name alone.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.login)
    }
}

/// One login of a client.
pub struct Login {
    identity: Identity,
    binding: Option<[u8; BINDING_BYTES]>,
    nonce: String,
    first_bare: String,
    state: State,
}

enum State {
    /// The server's first message is awaited.
    Begun,
    /// The slow hash is.
    Challenged {
        server_first: String,
        nonce: String,
    },
    /// The server's last message is.
    Proven {
        signature: Bytes32,
    },
    Over,
}

/// The slow hash that a server asks for.
pub struct Challenge {
    identity: Identity,
    salt: [u8; SALT_BYTES],
    iterations: u32,
}

impl Challenge {
    /// Rounds of the hash.
    #[must_use]
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Computes it, unless it is the same as the last time. It takes the core for some milliseconds
    /// if the rounds are those of a password.
    #[must_use]
    pub fn salted(&self) -> Zeroizing<[u8; DIGEST_BYTES]> {
        let hashed = self.identity.hashed.lock();
        let mut hashed = hashed.unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*hashed
            && (known.salt, known.iterations) == (self.salt, self.iterations)
        {
            return known.salted.clone();
        }
        let salted = salted(&self.identity.secret, &self.salt, self.iterations);
        *hashed = Some(Hashed {
            salt: self.salt,
            iterations: self.iterations,
            salted: salted.clone(),
        });
        salted
    }
}

impl Login {
    /// A login by a connection with this binding. `random` is new for each login.
    #[must_use]
    pub fn new(
        identity: &Identity,
        binding: Option<[u8; BINDING_BYTES]>,
        random: &[u8; LOGIN_NONCE_BYTES],
    ) -> Self {
        Self::with(identity, binding, nonce_text(random))
    }

    fn with(identity: &Identity, binding: Option<[u8; BINDING_BYTES]>, nonce: String) -> Self {
        Login {
            first_bare: format!("n={},r={nonce}", identity.login),
            identity: identity.clone(),
            binding,
            nonce,
            state: State::Begun,
        }
    }

    /// Whose login it is.
    #[must_use]
    pub fn name(&self) -> &str {
        self.identity.login()
    }

    fn header(&self) -> &'static str {
        // A client that can bind a login never offers less, so nobody can talk it into less.
        match self.binding {
            Some(_) => Binding::Exporter.header(),
            None => Binding::None.header(),
        }
    }

    /// The first message.
    #[must_use]
    pub fn first(&self) -> String {
        format!("{}{}", self.header(), self.first_bare)
    }

    /// Takes the server's first message.
    ///
    /// # Errors
    /// [`LoginFault`]: the server is not to be trusted with a proof.
    pub fn challenged(&mut self, message: &[u8]) -> Result<Challenge, LoginFault> {
        let State::Begun = self.state else {
            return Err(LoginFault::Order);
        };
        self.state = State::Over;
        let first = ServerFirst::read(message).map_err(|what| LoginFault::Message { what })?;
        let added = first.nonce.strip_prefix(self.nonce.as_str());
        if added.is_none_or(str::is_empty) {
            return Err(LoginFault::Nonce);
        }
        let least = match self.identity.secret.kind() {
            SecretKind::Password => PASSWORD_ITERATIONS_MIN,
            SecretKind::Key => 1,
        };
        if !(least..=ITERATIONS_MAX).contains(&first.iterations) {
            return Err(LoginFault::Iterations(first.iterations));
        }
        self.state = State::Challenged {
            server_first: String::from_utf8_lossy(message).into_owned(),
            nonce: first.nonce.to_string(),
        };
        Ok(Challenge {
            identity: self.identity.clone(),
            salt: first.salt,
            iterations: first.iterations,
        })
    }

    /// The last message, by the hash that the challenge asked for.
    ///
    /// # Errors
    /// [`LoginFault::Order`] before a challenge.
    pub fn prove(&mut self, salted: &[u8; DIGEST_BYTES]) -> Result<String, LoginFault> {
        let state = std::mem::replace(&mut self.state, State::Over);
        let State::Challenged {
            server_first,
            nonce,
        } = state
        else {
            return Err(LoginFault::Order);
        };
        let channel = channel_of(self.header(), self.binding.as_ref());
        let without_proof = format!("c={channel},r={nonce}");
        let transcript = Transcript {
            client_first_bare: &self.first_bare,
            server_first: &server_first,
            client_final_without_proof: &without_proof,
        };
        let client_key = Zeroizing::new(hmac(salted, &[b"Client Key"]));
        let server_key = Zeroizing::new(hmac(salted, &[b"Server Key"]));
        let signature = transcript.signature(&sha256(&client_key[..]));
        self.state = State::Proven {
            signature: transcript.signature(&server_key[..]),
        };
        let proof = Base64::encode_string(&xor(&client_key, &signature));
        Ok(format!("{without_proof},p={proof}"))
    }

    /// Takes the server's last message: whether it knows the user.
    ///
    /// # Errors
    /// [`LoginFault::Server`] if it does not.
    pub fn welcomed(&mut self, message: &[u8]) -> Result<(), LoginFault> {
        let state = std::mem::replace(&mut self.state, State::Over);
        let State::Proven { signature } = state else {
            return Err(LoginFault::Order);
        };
        let received = read_server_final(message).map_err(|what| LoginFault::Message { what })?;
        match is_same(&received, &signature) {
            true => Ok(()),
            false => Err(LoginFault::Server),
        }
    }
}

/// Shows whose login it is.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.identity.login)
    }
}

#[cfg(test)]
impl Login {
    /// With a nonce that a test chooses.
    pub(super) fn with_nonce(
        identity: &Identity,
        binding: Option<[u8; BINDING_BYTES]>,
        nonce: &str,
    ) -> Self {
        Self::with(identity, binding, nonce.to_string())
    }
}

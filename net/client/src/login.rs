//! The login of a connection, behind HELLO, for the client and for those who drive a connection
//! themselves.

use penstock_net::auth::{
    AuthMethod, AuthReply, AuthRequest, BINDING_BYTES, Identity, LOGIN_NONCE_BYTES, Login,
    LoginFault,
};
use penstock_net::frame::Header;
use penstock_net::hello::{AUTH_CERTIFICATE, AUTH_NONE, AUTH_SCRAM, AUTH_SCRAM_BOUND, ServerHello};
use penstock_net::reply::text_of;
use penstock_net::status::Status;

use crate::operation::{ClientError, Unfit};

/// The request id of all frames of a login.
const REQUEST_ID: u64 = u64::MAX;

/// Why a server and this client are not made for each other: nothing that is asked is sent.
#[derive(Clone, Debug)]
pub struct Unwelcome {
    error: Box<ClientError>,
    /// The server takes no login before so many milliseconds have passed.
    pub delay_ms: u16,
}

impl Unwelcome {
    fn by_client(text: impl ToString) -> Self {
        Unwelcome::at_once(ClientError::Protocol(text.to_string()))
    }

    fn at_once(error: ClientError) -> Self {
        Unwelcome {
            error: Box::new(error),
            delay_ms: 0,
        }
    }

    /// The answer to callers.
    #[must_use]
    pub fn error(&self) -> ClientError {
        (*self.error).clone()
    }
}

impl From<Unfit> for Unwelcome {
    fn from(unfit: Unfit) -> Self {
        Unwelcome::at_once(ClientError::Unfit(unfit))
    }
}

impl From<LoginFault> for Unwelcome {
    fn from(fault: LoginFault) -> Self {
        Unwelcome::by_client(fault)
    }
}

/// The login of one connection, if it has one.
#[derive(Debug)]
pub struct ConnectionLogin {
    login: Option<Login>,
    is_bound: bool,
    /// The certificate of the connection logs in.
    is_by_certificate: bool,
    /// An encrypted connection is open at a server without users, too.
    may_be_nobody: bool,
}

impl ConnectionLogin {
    /// Begins it right behind HELLO.
    ///
    /// # Errors
    /// [`ClientError::NotSent`] without random numbers.
    pub fn begin(
        identity: Option<&Identity>,
        binding: Option<[u8; BINDING_BYTES]>,
        out: &mut Vec<u8>,
    ) -> Result<Self, ClientError> {
        let login = match identity {
            None => None,
            Some(identity) => {
                let mut random = [0; LOGIN_NONCE_BYTES];
                getrandom::fill(&mut random).map_err(|error| {
                    ClientError::NotSent(format!("no random numbers for a login: {error}"))
                })?;
                let login = Login::new(identity, binding, &random);
                send(out, AuthMethod::Scram, &login.first());
                Some(login)
            }
        };
        Ok(ConnectionLogin {
            login,
            is_bound: binding.is_some(),
            is_by_certificate: false,
            may_be_nobody: false,
        })
    }

    /// Lets the client in at a server without users, too.
    #[must_use]
    pub fn where_nobody_must(self, may: bool) -> Self {
        ConnectionLogin {
            may_be_nobody: may && self.is_bound,
            ..self
        }
    }

    /// Judges what HELLO tells of logins. Returns whether the connection is open.
    ///
    /// # Errors
    /// [`Unwelcome`] if the server and the client do not go together.
    pub fn greeted(&mut self, hello: &ServerHello, out: &mut Vec<u8>) -> Result<bool, Unwelcome> {
        let needs_none = hello.auth_methods & AUTH_NONE != 0;
        let method = match self.is_bound {
            true => AUTH_SCRAM_BOUND,
            false => AUTH_SCRAM,
        };
        match &self.login {
            None if needs_none => Ok(true),
            None if hello.auth_methods & AUTH_CERTIFICATE != 0 => {
                self.is_by_certificate = true;
                send(out, AuthMethod::Certificate, "-");
                Ok(false)
            }
            None => Err(Unfit::NeedsIdentity.into()),
            Some(_) if needs_none && self.may_be_nobody => {
                self.login = None;
                Ok(true)
            }
            Some(_) if needs_none => Err(Unfit::HasNoUsers.into()),
            Some(_) if hello.auth_methods & method == 0 => Err(Unwelcome::by_client(
                "the server does not bind logins to this connection as the client does",
            )),
            Some(_) => Ok(false),
        }
    }

    /// Takes the answer to a message. Returns HELLO's body if the connection is open.
    ///
    /// # Errors
    /// [`Unwelcome`] if the login is refused, or the server is not the one that it claims to be.
    pub fn answered<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, Unwelcome> {
        let status = Status::from_code(header.level_or_status);
        if status != Some(Status::Ok) {
            let text = text_of(body).unwrap_or("a login is refused");
            let error = Box::new(match status {
                Some(_) => ClientError::of_frame(status, text),
                None => ClientError::Protocol(text.into()),
            });
            let delay_ms = header.deadline_or_retry_ms;
            return Err(Unwelcome { error, delay_ms });
        }
        match AuthReply::read(body).map_err(Unwelcome::by_client)? {
            AuthReply::Done { hello, .. } if self.is_by_certificate => Ok(Some(hello)),
            AuthReply::GoOn { message } => {
                let login = self.login.as_mut().ok_or(LoginFault::Order)?;
                let challenge = login.challenged(message)?;
                let proof = login.prove(&challenge.salted())?;
                send(out, AuthMethod::Scram, &proof);
                Ok(None)
            }
            AuthReply::Done { message, hello } => {
                let login = self.login.as_mut().ok_or(LoginFault::Order)?;
                login.welcomed(message)?;
                self.login = None;
                Ok(Some(hello))
            }
        }
    }
}

fn send(out: &mut Vec<u8>, method: AuthMethod, message: &str) {
    let request = AuthRequest {
        method,
        message: message.as_bytes(),
    };
    request.write(out, REQUEST_ID);
}

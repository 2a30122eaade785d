//! The connection to etcd: endpoints in turn, a login that is renewed, one call at a time.

use std::sync::Arc;
use std::time::Duration;

use penstock_client::tls::pem::{encoding_fault, key_fault};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, RootCerts, TlsConfig, parse_pem};
use zeroize::Zeroizing;

use super::EtcdAccess;
use super::answer::{
    AnswerError, BODY_BYTES_MAX, Range, Swap, is_login_off, login_request, range_request,
    read_login, read_range, read_swap, swap_request,
};
use crate::system::private_file::read_private;

/// One call, from the name of the endpoint to the last byte of the answer.
const CALL: Duration = Duration::from_millis(300);
/// A file of certificates, a key or a password is no longer than this.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Why a call brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    /// etcd has said that it did nothing. Otherwise it may have, if it was asked to.
    pub(crate) is_definite: bool,
    /// The endpoint and the cause.
    pub(crate) text: String,
}

/// An etcd, by its JSON gateway.
pub(crate) struct Gateway {
    access: EtcdAccess,
    agent: Agent,
    /// The endpoint that is asked next.
    next: usize,
    token: Option<String>,
}

impl Gateway {
    /// Reads the certificates; nobody is asked yet.
    ///
    /// # Errors
    /// What is wrong with a file, in one line.
    pub(crate) fn open(access: &EtcdAccess) -> Result<Gateway, String> {
        Ok(Gateway {
            agent: agent(access)?,
            access: access.clone(),
            next: 0,
            token: None,
        })
    }

    /// How many endpoints there are.
    pub(crate) fn endpoints(&self) -> usize {
        self.access.endpoints.len()
    }

    /// Asks the next endpoint for a key. One that does not answer is followed by the next one.
    ///
    /// # Errors
    /// [`CallError`].
    pub(crate) fn range(&mut self, key: &str, keys_only: bool) -> Result<Range, CallError> {
        self.ask("kv/range", &range_request(key, keys_only), read_range)
    }

    /// Asks the next endpoint for a swap, once.
    ///
    /// # Errors
    /// [`CallError`].
    pub(crate) fn swap(
        &mut self,
        key: &str,
        mod_revision: u64,
        value: &str,
    ) -> Result<Swap, CallError> {
        self.ask("kv/txn", &swap_request(key, mod_revision, value), read_swap)
    }

    /// Reads the certificates anew, for calls to come. Files with an error change nothing.
    pub(crate) fn read_files_anew(&mut self) {
        if self.access.ca.is_some()
            && let Ok(agent) = agent(&self.access)
        {
            self.agent = agent;
        }
    }

    fn ask<T>(
        &mut self,
        call: &str,
        request: &str,
        read: impl Fn(u16, &[u8]) -> Result<T, AnswerError>,
    ) -> Result<T, CallError> {
        let endpoint = self.access.endpoints[self.next].clone();
        let asked = self.ask_at(&endpoint, call, request, read);
        asked.map_err(|(is_definite, cause)| {
            self.next = (self.next + 1) % self.access.endpoints.len();
            CallError {
                is_definite,
                text: format!("{endpoint}: {cause}"),
            }
        })
    }

    fn ask_at<T>(
        &mut self,
        endpoint: &str,
        call: &str,
        request: &str,
        read: impl Fn(u16, &[u8]) -> Result<T, AnswerError>,
    ) -> Result<T, (bool, String)> {
        let is_fresh = self.token.is_none();
        if is_fresh {
            self.login(endpoint)?;
        }
        let answer = self.call(endpoint, call, request);
        let (status, body) = answer.map_err(|cause| (false, cause))?;
        match read(status, &body) {
            Err(AnswerError::Login(_)) if self.access.user.is_some() && !is_fresh => {}
            Err(error) => {
                self.forget_token(&error);
                return Err(judged(&error, self.access.user.is_some()));
            }
            Ok(answer) => return Ok(answer),
        }
        self.login(endpoint)?;
        let answer = self.call(endpoint, call, request);
        let (status, body) = answer.map_err(|cause| (false, cause))?;
        read(status, &body).map_err(|error| {
            self.forget_token(&error);
            judged(&error, true)
        })
    }

    fn forget_token(&mut self, error: &AnswerError) {
        if matches!(error, AnswerError::Login(_)) {
            self.token = None;
        }
    }

    /// Gets a token, if there is a user.
    fn login(&mut self, endpoint: &str) -> Result<(), (bool, String)> {
        self.token = None;
        let (Some(user), Some(file)) = (&self.access.user, &self.access.secret_file) else {
            return Ok(());
        };
        let named = |cause: String| format!("the login of {user:?}: {cause}");
        let password = read_private(file, FILE_BYTES_MAX).map(Zeroizing::new);
        let password = password.map_err(|it| (true, named(it.to_string())))?;
        let password = std::str::from_utf8(&password);
        let password = password.map_err(|_| (true, named("the password is no text".into())))?;
        let password = password.trim_end_matches(['\r', '\n']);
        let request = Zeroizing::new(login_request(user, password));
        let answer = self.call(endpoint, "auth/authenticate", &request);
        let (status, body) = answer.map_err(|cause| (false, named(cause)))?;
        match read_login(status, &body) {
            Ok(token) => self.token = Some(token),
            Err(error) if is_login_off(&error) => {}
            Err(error) => {
                let (is_definite, cause) = judged(&error, true);
                return Err((is_definite, named(cause)));
            }
        }
        Ok(())
    }

    /// Status and body of one call.
    fn call(&self, endpoint: &str, call: &str, request: &str) -> Result<(u16, Vec<u8>), String> {
        let mut asked = self.agent.post(format!("{endpoint}/v3/{call}"));
        asked = asked.header("Content-Type", "application/json");
        if let Some(token) = &self.token {
            asked = asked.header("Authorization", token);
        }
        let cause_of = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => format!("no answer in {} ms", CALL.as_millis()),
            ureq::Error::BodyExceedsLimit(_) => {
                format!("the answer has more than {BODY_BYTES_MAX} bytes")
            }
            other => other.to_string(),
        };
        let mut answer = asked.send(request).map_err(cause_of)?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config();
        let body = body.limit(BODY_BYTES_MAX as u64).read_to_vec();
        Ok((status, body.map_err(cause_of)?))
    }
}

fn judged(error: &AnswerError, has_user: bool) -> (bool, String) {
    let is_definite = matches!(error, AnswerError::Login(_) | AnswerError::Refused(_));
    let is_anonymous = !has_user && error.to_string().contains("user name is empty");
    let advice = match is_anonymous {
        true => ": it wants a login (etcd_user)",
        false => "",
    };
    (is_definite, format!("{error}{advice}"))
}

fn agent(access: &EtcdAccess) -> Result<Agent, String> {
    let config = Agent::config_builder()
        .timeout_global(Some(CALL))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        // That of the environment is for the web.
        .proxy(None)
        .user_agent(concat!("penstock/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls(access)?);
    Ok(config.build().new_agent())
}

fn tls(access: &EtcdAccess) -> Result<TlsConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider);
    if let Some(path) = &access.ca {
        let named = |cause: String| format!("etcd_ca: {}: {cause}", path.display());
        let pem = std::fs::read(path).map_err(|it| named(format!("cannot be read: {it}")))?;
        let roots = certificates(&pem).map_err(named)?;
        tls = tls.root_certs(RootCerts::new_with_certs(&roots));
    }
    if let (Some(chain), Some(key)) = (&access.cert, &access.key) {
        let named = |cause: String| format!("etcd_cert: {}: {cause}", chain.display());
        let pem = std::fs::read(chain).map_err(|it| named(format!("cannot be read: {it}")))?;
        let chain = certificates(&pem).map_err(named)?;
        let named = |cause: String| format!("etcd_key: {}: {cause}", key.display());
        let pem = read_private(key, FILE_BYTES_MAX).map_err(|it| named(it.cause()))?;
        let key = parse_pem(&pem).find_map(|item| match item {
            Ok(PemItem::PrivateKey(key)) => Some(key),
            _ => None,
        });
        let key = key.ok_or_else(|| {
            let known = encoding_fault(&pem).or_else(|| key_fault(&pem));
            named(known.unwrap_or("there is no private key in PEM").into())
        })?;
        tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
    }
    Ok(tls.build())
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    if let Some(fault) = encoding_fault(pem) {
        return Err(fault.into());
    }
    let mut all = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => all.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    match all.is_empty() {
        true => Err("there is no certificate in PEM (BEGIN CERTIFICATE)".into()),
        false => Ok(all),
    }
}

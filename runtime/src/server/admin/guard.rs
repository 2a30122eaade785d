//! Who may read the admin port, and who is told that they may not.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tracing::warn;

use super::token_file::{TokenFile, TokenFileError};
use crate::config::Config;
use crate::config::exposure::is_loopback;
use crate::server::audit::{Audit, Field};
use crate::server::health::Health;
use crate::system::lines::Lately;
use crate::tls::ServedTls;

/// Between two lines of the audit log about refusals.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// What those who come must show.
pub(crate) struct Guard {
    /// The port speaks TLS.
    tls: Option<Arc<ServedTls>>,
    tokens: Option<TokenFile>,
    takes_certificates: bool,
    audit: Audit,
    lately: Lately,
    /// When a refusal was told last, and how many were not since.
    reported_at: Option<Instant>,
    unreported: u64,
}

/// Why somebody has not proven to be anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unproven {
    /// It shows nothing.
    Nothing,
    /// Its token is none of the file's.
    WrongToken,
    /// It shows a token, and none is taken.
    NoTokens,
}

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unproven::Nothing => "it shows no token and no certificate",
            Unproven::WrongToken => "its token is not one of admin_token_file",
            Unproven::NoTokens => "it shows a token, and no token is in force",
        })
    }
}

impl Guard {
    /// As the configuration says. On loopback the port does not speak TLS.
    ///
    /// # Errors
    /// [`TokenFileError`], one line that names the file.
    pub(crate) fn of(
        config: &Config,
        tls: Option<&Arc<ServedTls>>,
        audit: &Audit,
    ) -> Result<Guard, TokenFileError> {
        let is_local = config
            .admin_listen
            .is_some_and(|address| is_loopback(address.ip()));
        let tls = tls.filter(|_| !is_local).cloned();
        let tokens = config.admin_token_file.as_deref().map(TokenFile::open);
        Ok(Guard {
            takes_certificates: tls.is_some() && config.tls_client_ca.is_some(),
            tls,
            tokens: tokens.transpose()?,
            audit: audit.clone(),
            lately: Lately::default(),
            reported_at: None,
            unreported: 0,
        })
    }

    /// Whether the port speaks TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What a new connection is given.
    pub(super) fn tls_config(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(|it| it.admin_config())
    }

    /// Judges what somebody shows.
    ///
    /// # Errors
    /// [`Unproven`].
    pub(super) fn judge(
        &mut self,
        has_certificate: bool,
        bearer: Option<&[u8]>,
    ) -> Result<(), Unproven> {
        if self.tokens.is_none() && !self.takes_certificates
            || self.takes_certificates && has_certificate
        {
            return Ok(());
        }
        let token = bearer.ok_or(Unproven::Nothing)?;
        let tokens = self.tokens.as_mut().ok_or(Unproven::NoTokens)?;
        tokens.reload();
        match tokens.is_empty() {
            true => Err(Unproven::NoTokens),
            false if tokens.has(token) => Ok(()),
            false => Err(Unproven::WrongToken),
        }
    }

    /// Counts and tells that somebody was refused.
    pub(super) fn refused(&mut self, health: &Health, peer: IpAddr, unproven: Unproven) {
        health.admin.refused.fetch_add(1, Ordering::Relaxed);
        let cause = unproven.to_string();
        let peer = peer.to_canonical().to_string();
        let now = Instant::now();
        self.unreported += 1;
        if self
            .reported_at
            .is_none_or(|reported_at| now - reported_at >= REPORT_EVERY)
        {
            self.reported_at = Some(now);
            let times = std::mem::take(&mut self.unreported);
            let fields = [
                ("peer", Field::Text(&peer)),
                ("cause", Field::Text(&cause)),
                ("times", Field::Number(times)),
            ];
            self.audit.report("admin_refused", &fields);
        }
        let text = format!("admin port: {peer} is refused: {cause}");
        self.warn_lately(&cause, &text);
    }

    /// Counts and tells that a connection through TLS came to nothing.
    pub(super) fn handshake_failed(&mut self, health: &Health, peer: IpAddr, cause: &str) {
        health
            .admin
            .handshakes_failed
            .fetch_add(1, Ordering::Relaxed);
        let peer = peer.to_canonical();
        let text = format!("admin port: a connection of {peer} through TLS ends: {cause}");
        self.warn_lately(cause, &text);
    }

    fn warn_lately(&mut self, about: &str, text: &str) {
        if let Some(text) = self.lately.line(about, text, Instant::now()) {
            warn!("{text}");
        }
    }
}

//! TLS 1.3 of a client: whom it trusts, what it shows, and the bytes of one connection.

pub mod pem;

use std::fmt;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, RootCertStore};

/// The label of `tls-exporter` (RFC 9266).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// Bytes of one read of a handshake, at most.
const READ_BYTES: usize = 16 << 10;

/// Whom a client trusts, and what it shows of itself.
#[derive(Clone)]
pub struct ClientTls {
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
    /// The name that the certificate of the server must have; `None`: that of its address.
    server_name: Option<ServerName<'static>>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// Why there is no connection through TLS, or why it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    text: String,
    is_lasting: bool,
}

impl TlsError {
    /// One that every further try would meet.
    fn lasting(text: String) -> TlsError {
        TlsError {
            text,
            is_lasting: true,
        }
    }

    /// One that a further try may not meet: the connection broke, or took too long.
    fn passing(text: String) -> TlsError {
        TlsError {
            text,
            is_lasting: false,
        }
    }

    /// Whether every further try with the same options would meet it.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.is_lasting
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TlsError {}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, error)
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
        TlsError::lasting(match &error {
            InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
                "the server speaks no TLS at this port".into()
            }
            InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => "the certificate of the server is not signed by the CA that is trusted, or the \
                 server does not show the certificates between"
                .into(),
            InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => format!("the certificate of the server is for another name: {error}"),
            InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => "the certificate of the server has ended".into(),
            AlertReceived(rustls::AlertDescription::CertificateRequired) => {
                "the server asks for a certificate of the client, and none was shown".into()
            }
            AlertReceived(alert) => format!("the server ended TLS with the alert {alert:?}"),
            other => format!("TLS: {other}"),
        })
    }
}

impl ClientTls {
    /// Trusts servers whose certificate is signed by one of these, which are PEM.
    ///
    /// # Errors
    /// [`TlsError`] if there is no certificate in `ca_pem`, or one that signs no others.
    pub fn trusting(ca_pem: &[u8]) -> Result<ClientTls, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_pem)? {
            let added = roots.add(certificate);
            added.map_err(|error| TlsError::lasting(format!("a CA cannot be trusted: {error}")))?;
        }
        let roots = Arc::new(roots);
        let config = builder(&roots).with_no_client_auth();
        Ok(ClientTls {
            roots,
            config: Arc::new(config),
            server_name: None,
        })
    }

    /// Shows a certificate to servers that ask for one: its chain and its private key, in PEM.
    ///
    /// # Errors
    /// [`TlsError`] if one cannot be read, or the key is not that of the certificate.
    pub fn with_certificate(self, chain_pem: &[u8], key_pem: &[u8]) -> Result<ClientTls, TlsError> {
        let chain = certificates(chain_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| {
            let known = pem::encoding_fault(key_pem).or_else(|| pem::key_fault(key_pem));
            let cause = known.map_or_else(|| error.to_string(), str::to_string);
            TlsError::lasting(format!("the private key cannot be read: {cause}"))
        })?;
        let config = builder(&self.roots).with_client_auth_cert(chain, key);
        let config = config.map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsError::lasting("the private key is not that of the certificate".into())
            }
            other => TlsError::lasting(format!("the private key cannot be used: {other}")),
        })?;
        Ok(ClientTls {
            config: Arc::new(config),
            ..self
        })
    }

    /// Wants this name in the certificate of the server, instead of that of its address.
    ///
    /// # Errors
    /// [`TlsError`] if `name` is neither a name of DNS nor an IP address.
    pub fn with_server_name(self, name: &str) -> Result<ClientTls, TlsError> {
        Ok(ClientTls {
            server_name: Some(server_name(name)?),
            ..self
        })
    }
}

fn builder(roots: &Arc<RootCertStore>) -> rustls::ConfigBuilder<ClientConfig, WantsCertificate> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has suites of TLS 1.3")
        .with_root_certificates(Arc::clone(roots))
}

type WantsCertificate = rustls::client::WantsClientCert;

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    if let Some(fault) = pem::encoding_fault(text) {
        return Err(TlsError::lasting(fault.into()));
    }
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match read {
        Ok(read) if read.is_empty() => {
            let text = "there is no certificate in PEM (BEGIN CERTIFICATE)";
            Err(TlsError::lasting(text.into()))
        }
        Ok(read) => Ok(read),
        Err(error) => Err(TlsError::lasting(format!(
            "a certificate is no PEM: {error}"
        ))),
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(name.to_string())
        .map_err(|_| TlsError::lasting(format!("{name:?} is no name that a certificate can have")))
}

/// The host of HOST:PORT.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The client's side of one TLS connection, without its socket: ciphertext in, plaintext out, and
/// the reverse.
pub struct TlsSession {
    state: ClientConnection,
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").finish_non_exhaustive()
    }
}

impl TlsSession {
    /// A connection to the server at `address`, HOST:PORT. Its first bytes are ready to be taken.
    ///
    /// # Errors
    /// [`TlsError`] if the address has no name that a certificate can have.
    pub fn begin(tls: &ClientTls, address: &str) -> Result<TlsSession, TlsError> {
        let name = match &tls.server_name {
            Some(name) => name.clone(),
            None => server_name(host_of(address))?,
        };
        let mut state = ClientConnection::new(Arc::clone(&tls.config), name)?;
        // What is sealed is taken at once.
        state.set_buffer_limit(None);
        Ok(TlsSession { state })
    }

    /// Shakes hands over a blocking stream, until `until` at the latest.
    ///
    /// # Errors
    /// [`TlsError`] if the server is not trusted, does not trust this client, speaks no TLS, is
    /// gone or is too slow.
    pub fn shake_hands(&mut self, mut stream: &TcpStream, until: Instant) -> Result<(), TlsError> {
        let broken =
            |error: io::Error| TlsError::passing(format!("the handshake of TLS broke: {error}"));
        let mut bytes = vec![0; READ_BYTES];
        let (mut output, mut plaintext) = (Vec::new(), Vec::new());
        loop {
            self.take_output(&mut output);
            stream.write_all(&output).map_err(broken)?;
            output.clear();
            if !self.state.is_handshaking() {
                // The server is silent until it is spoken to.
                return stream.set_read_timeout(None).map_err(broken);
            }
            let left = until.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left)).map_err(broken)?;
            let received = match stream.read(&mut bytes) {
                Ok(0) => Err(TlsError::passing("the server closed the connection".into())),
                Ok(read) => self.receive(&bytes[..read], &mut plaintext),
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
                Err(error) if is_late(&error) => Err(TlsError::passing(
                    "the handshake of TLS takes too long".into(),
                )),
                Err(error) => Err(broken(error)),
            };
            if let Err(error) = received {
                // The alert that says why.
                self.take_output(&mut output);
                let _ = stream.write_all(&output);
                return Err(error);
            }
        }
    }

    /// Takes bytes of the server and appends what they say to `plaintext`.
    ///
    /// # Errors
    /// [`TlsError`] if they cannot be read, or if they refuse this client.
    pub fn receive(
        &mut self,
        mut ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        while !ciphertext.is_empty() {
            let taken = self.state.read_tls(&mut ciphertext);
            if !matches!(taken, Ok(1..)) {
                // Behind the last word of the server.
                return Ok(());
            }
            let outcome = self.state.process_new_packets();
            let mut reader = self.state.reader();
            while let Ok(chunk @ [_, ..]) = reader.fill_buf() {
                plaintext.extend_from_slice(chunk);
                let bytes = chunk.len();
                reader.consume(bytes);
            }
            outcome?;
        }
        Ok(())
    }

    /// Encrypts bytes for the server and appends the records to `ciphertext`, behind all else that
    /// is to be said.
    pub fn seal(&mut self, plaintext: &[u8], ciphertext: &mut Vec<u8>) {
        // It fails when the connection has ended, which its reader tells.
        let _ = self.state.writer().write_all(plaintext);
        self.take_output(ciphertext);
    }

    /// Appends all that is to be said to `ciphertext`.
    pub fn take_output(&mut self, ciphertext: &mut Vec<u8>) {
        while self.state.wants_write() {
            let written = self.state.write_tls(ciphertext);
            written.expect("writing to memory does not fail");
        }
    }

    /// Whether something is to be said that is not of the caller.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.state.wants_write()
    }

    /// What both ends of this connection know, and those of no other: `tls-exporter` of RFC 9266.
    /// `None` while the handshake is under way.
    #[must_use]
    pub fn channel_binding(&self) -> Option<[u8; 32]> {
        self.state
            .export_keying_material([0; 32], BINDING_LABEL, Some(&[]))
            .ok()
    }
}

/// Whether the time to read was over.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A blocking stream through TLS, for a caller that sends and receives in turn.
#[derive(Debug)]
pub struct TlsStream {
    session: TlsSession,
    stream: TcpStream,
    /// Decrypted, and read up to `read`.
    plaintext: Vec<u8>,
    read: usize,
}

impl TlsStream {
    /// Shakes hands over a stream that was connected to `address`, HOST:PORT.
    ///
    /// # Errors
    /// As for [`TlsSession::begin`] and [`TlsSession::shake_hands`].
    pub fn connect(
        tls: &ClientTls,
        address: &str,
        stream: TcpStream,
        until: Instant,
    ) -> Result<TlsStream, TlsError> {
        let mut session = TlsSession::begin(tls, address)?;
        session.shake_hands(&stream, until)?;
        Ok(TlsStream {
            session,
            stream,
            plaintext: Vec::new(),
            read: 0,
        })
    }

    /// As [`TlsSession::channel_binding`].
    #[must_use]
    pub fn channel_binding(&self) -> Option<[u8; 32]> {
        self.session.channel_binding()
    }

    /// The stream beneath: its timeouts.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The state of TLS, for whoever sends and receives without this stream.
    #[must_use]
    pub fn into_session(self) -> (TlsSession, TcpStream) {
        (self.session, self.stream)
    }
}

impl Read for TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut bytes = [0; READ_BYTES];
        while self.read == self.plaintext.len() {
            self.plaintext.clear();
            self.read = 0;
            let read = self.stream.read(&mut bytes)?;
            if read == 0 {
                return Ok(0);
            }
            self.session.receive(&bytes[..read], &mut self.plaintext)?;
        }
        let bytes = into.len().min(self.plaintext.len() - self.read);
        into[..bytes].copy_from_slice(&self.plaintext[self.read..][..bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut ciphertext = Vec::new();
        self.session.seal(bytes, &mut ciphertext);
        self.stream.write_all(&ciphertext)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_server_is_the_host_of_its_address() {
        for (address, host) in [
            ("localhost:7411", "localhost"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:7411", "::1"),
        ] {
            assert_eq!(host_of(address), host);
            server_name(host).expect("a certificate can have it");
        }
        let message = server_name("no name").expect_err("a space").to_string();
        assert!(message.contains("\"no name\""), "{message}");
    }

    #[test]
    fn files_that_are_no_certificates_are_refused() {
        for text in [
            "",
            "text",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            ClientTls::trusting(text.as_bytes()).expect_err("no CA");
        }
        let refused = ClientTls::trusting(b"\xEF\xBB\xBF-----BEGIN CERTIFICATE-----");
        assert!(
            refused
                .expect_err("no CA")
                .to_string()
                .contains("byte order mark")
        );
    }
}

//! How commands reach a server through TLS: whom they trust, what they show, and a blocking stream.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use penstock_client::tls::{ClientTls, TlsError, TlsStream};

/// Whom a command trusts, and what it shows.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsArgs {
    /// Connect through TLS, to a server whose certificate is signed by one of this file (PEM)
    #[arg(long, value_name = "FILE", env = "PENSTOCK_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// With --tls-ca: the name in the certificate of the server, if not the host of its address
    #[arg(long, value_name = "NAME", env = "PENSTOCK_TLS_NAME")]
    tls_name: Option<String>,
    /// With --tls-ca: a certificate for servers that ask for one, with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// For servers that a file names: what the environment says.
    #[must_use]
    pub fn of_environment() -> TlsArgs {
        TlsArgs {
            tls_ca: std::env::var_os("PENSTOCK_TLS_CA").map(PathBuf::from),
            tls_name: std::env::var("PENSTOCK_TLS_NAME").ok(),
            ..TlsArgs::default()
        }
    }

    /// What a client is given; `None` for a connection without TLS.
    ///
    /// # Errors
    /// One line that names the flag and the file.
    pub fn client_tls(&self) -> Result<Option<ClientTls>, String> {
        let Some(ca) = &self.tls_ca else {
            return match (&self.tls_name, &self.tls_cert) {
                (None, None) => Ok(None),
                (Some(_), _) => Err("--tls-name is of a connection with --tls-ca".into()),
                _ => Err("--tls-cert is shown on a connection with --tls-ca".into()),
            };
        };
        let of_file = |flag: &str, path: &Path, error: &dyn std::fmt::Display| {
            format!("{flag} = {:?}: {error}", path.display().to_string())
        };
        let read =
            |flag, path: &Path| std::fs::read(path).map_err(|error| of_file(flag, path, &error));
        let mut tls = ClientTls::trusting(&read("--tls-ca", ca)?)
            .map_err(|error| of_file("--tls-ca", ca, &error))?;
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let mode = std::fs::metadata(key).map_or(0, |it| it.permissions().mode());
            if mode & 0o007 != 0 {
                let warning = "every user of this machine can use the key; chmod o= it";
                return Err(of_file("--tls-key", key, &warning));
            }
            let chain = read("--tls-cert", certificate)?;
            let loaded = tls.with_certificate(&chain, &read("--tls-key", key)?);
            tls = loaded.map_err(|error| of_file("--tls-cert", certificate, &error))?;
        }
        if let Some(name) = &self.tls_name {
            tls = tls
                .with_server_name(name)
                .map_err(|error| format!("--tls-name = {name:?}: {error}"))?;
        }
        Ok(Some(tls))
    }
}

/// A blocking stream, with TLS or without.
#[derive(Debug)]
pub enum Stream {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// Bytes go through TLS.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Over a stream that was connected to `address`, HOST:PORT; shakes hands within `time`.
    ///
    /// # Errors
    /// [`TlsError`] if the handshake comes to nothing.
    pub fn open(
        tls: Option<&ClientTls>,
        address: &str,
        stream: TcpStream,
        time: Duration,
    ) -> Result<Stream, TlsError> {
        let Some(tls) = tls else {
            return Ok(Stream::Plain(stream));
        };
        let stream = TlsStream::connect(tls, address, stream, Instant::now() + time)?;
        Ok(Stream::Tls(Box::new(stream)))
    }

    /// What both ends of a connection through TLS know, and those of no other.
    #[must_use]
    pub fn channel_binding(&self) -> Option<[u8; 32]> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.channel_binding(),
        }
    }

    /// The socket: its timeouts.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.stream(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! The files of a certificate, its key and those who sign certificates of the other side.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use penstock_net::link::NodeName;

use super::chain::{Defect, Source};
use super::identity::{Identity, Purpose};
use crate::config::Config;
use crate::system::file_stamp::FileStamp;
use crate::system::private_file::read_private;

/// A certificate file is no longer than this.
const FILE_BYTES_MAX: usize = 1 << 20;

/// Where the files are.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// Those who sign certificates of the other side.
    ca: Option<PathBuf>,
    purpose: Purpose,
}

/// What is wrong with a file, in one line that names it.
#[derive(Clone, Debug)]
pub struct TlsFileError {
    option: &'static str,
    path: PathBuf,
    defect: Defect,
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.path.display())?;
        if let Some(line) = self.defect.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.defect.cause)
    }
}

impl std::error::Error for TlsFileError {}

impl TlsFiles {
    /// Those that the configuration names; `None` if it names none.
    pub(crate) fn of(config: &Config) -> Option<TlsFiles> {
        let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else {
            return None;
        };
        Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            ca: config.tls_client_ca.clone(),
            purpose: Purpose::Clients {
                needs_certificate: config.users.is_none(),
            },
        })
    }

    /// Those that the configuration names for links of this node; `None` if it names none.
    pub(crate) fn of_links(config: &Config, name: NodeName) -> Option<TlsFiles> {
        let (Some(certificate), Some(key), Some(ca)) = (
            &config.cluster_tls_cert,
            &config.cluster_tls_key,
            &config.cluster_tls_ca,
        ) else {
            return None;
        };
        Some(TlsFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            ca: Some(ca.clone()),
            purpose: Purpose::Links(name),
        })
    }

    /// The file of the certificate.
    pub(crate) fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Reads and checks the files.
    pub(super) fn read(&self, now_unix_s: u64) -> Result<Identity, TlsFileError> {
        let refused = |source, cause| self.error(Defect::new(source, None, cause));
        let certificate = read(&self.certificate).map_err(|it| refused(Source::Certificate, it))?;
        let key = read_private(&self.key, FILE_BYTES_MAX)
            .map_err(|it| refused(Source::Key, it.cause()))?;
        let ca = match &self.ca {
            Some(path) => Some(read(path).map_err(|it| refused(Source::Ca, it))?),
            None => None,
        };
        let ca = ca.as_deref();
        Identity::read(&certificate, &key, ca, self.purpose, now_unix_s)
            .map_err(|defect| self.error(defect))
    }

    /// What tells that a file was changed; a missing file has none.
    pub(super) fn stamps(&self) -> [Option<FileStamp>; 3] {
        [
            FileStamp::of(&self.certificate),
            FileStamp::of(&self.key),
            self.ca.as_deref().and_then(FileStamp::of),
        ]
    }

    fn error(&self, defect: Defect) -> TlsFileError {
        let (path, of_clients, of_links) = match defect.source {
            Source::Certificate => (&self.certificate, "tls_cert", "cluster_tls_cert"),
            Source::Key => (&self.key, "tls_key", "cluster_tls_key"),
            Source::Ca => {
                let ca = self.ca.as_ref().expect("it was read");
                (ca, "tls_client_ca", "cluster_tls_ca")
            }
        };
        let option = match self.purpose {
            Purpose::Clients { .. } => of_clients,
            Purpose::Links(_) => of_links,
        };
        TlsFileError {
            option,
            path: path.clone(),
            defect,
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let bytes = fs::metadata(path)?.len();
        if bytes > FILE_BYTES_MAX as u64 {
            let text = format!("it has {bytes} bytes, and at most {FILE_BYTES_MAX} are read");
            return Err(io::Error::other(text));
        }
        fs::read(path)
    };
    read().map_err(|error| format!("cannot be read: {error}"))
}

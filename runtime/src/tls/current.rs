//! What is in force: the identity that new connections are given, read anew when its files change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::{ClientConfig, ServerConfig};
use tracing::{error, info};

use super::files::{TlsFileError, TlsFiles};
use super::identity::Identity;
use crate::system::file_stamp::FileStamp;

/// The identity of a server, shared by its cores.
pub(crate) struct ServedTls {
    files: TlsFiles,
    state: Mutex<State>,
}

struct State {
    identity: Identity,
    /// Of the files as they were looked at last.
    stamps: [Option<FileStamp>; 3],
    /// The files as they are now were refused.
    is_refused: bool,
}

/// The identities of a server, by the ports that show them.
#[derive(Clone, Default)]
pub(crate) struct ServedByPort {
    pub(crate) clients: Option<Arc<ServedTls>>,
    pub(crate) links: Option<Arc<ServedTls>>,
}

impl ServedByPort {
    /// Those that there are, with the names of their ports.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &ServedTls)> {
        let all = [("clients", &self.clients), ("links", &self.links)];
        all.into_iter()
            .filter_map(|(port, it)| Some((port, it.as_deref()?)))
    }
}

/// What came of reading files anew.
#[derive(Debug)]
pub(crate) enum Change {
    /// They are in force; one line for people.
    Taken(String),
    /// They are refused, and what was in force stays.
    Refused(String),
}

impl Change {
    /// Tells people: a refusal needs one of them.
    pub(crate) fn log(&self) {
        match self {
            Change::Taken(text) => info!("{text}"),
            Change::Refused(text) => error!("{text}"),
        }
    }
}

impl ServedTls {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// [`TlsFileError`], one line that names the file.
    pub(crate) fn open(files: TlsFiles) -> Result<ServedTls, TlsFileError> {
        let stamps = files.stamps();
        let identity = files.read(now_unix_s())?;
        Ok(ServedTls {
            files,
            state: Mutex::new(State {
                identity,
                stamps,
                is_refused: false,
            }),
        })
    }

    /// What a new connection is given.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state().identity.config)
    }

    /// What a new link to another node is given, of an identity for links.
    pub(crate) fn dialing(&self) -> Arc<ClientConfig> {
        let state = self.state();
        let dialing = state.identity.dialing.as_ref();
        Arc::clone(dialing.expect("the identity is one for links"))
    }

    /// What a new connection of the admin port is given.
    pub(crate) fn admin_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state().identity.admin)
    }

    /// When the certificate in force ends, in seconds since 1970.
    pub(crate) fn expires_unix_s(&self) -> u64 {
        self.state().identity.expires_unix_s
    }

    /// Whether the files are not those that are in force, because something is wrong with them.
    pub(crate) fn is_refused(&self) -> bool {
        self.state().is_refused
    }

    /// Reads the files if they were changed since they were looked at last.
    pub(crate) fn read_changed(&self) -> Option<Change> {
        let stamps = self.files.stamps();
        let is_changed = self.state().stamps != stamps;
        is_changed.then(|| self.read_anew())
    }

    /// Reads the files.
    pub(crate) fn read_anew(&self) -> Change {
        // Before they are read: a change meanwhile shows at the next look.
        let stamps = self.files.stamps();
        let read = self.files.read(now_unix_s());
        let mut state = self.state();
        state.stamps = stamps;
        state.is_refused = read.is_err();
        match read {
            Ok(identity) => {
                state.identity = identity;
                let path = self.files.certificate().display();
                Change::Taken(format!("the certificate {path} is read anew"))
            }
            Err(error) => Change::Refused(format!(
                "{error}; the certificate of before stays in force for new connections"
            )),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics between two states.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |it| it.as_secs())
}

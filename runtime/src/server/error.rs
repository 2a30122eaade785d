//! Why a server did not start or did not end well.

use std::net::SocketAddr;
use std::{fmt, io};

use crate::directory::DirectoryError;
use crate::startup::node::OpenError;

/// Why a server did not start or did not end well.
#[derive(Debug)]
pub enum ServeError {
    /// The data directory cannot be served.
    Open(OpenError),
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The admin port cannot be listened on.
    ListenAdmin {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The port for clients of Redis cannot be listened on.
    ListenResp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The address for links to other nodes cannot be listened on.
    ListenLinks {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The server ran and a shard failed: nothing was acknowledged that is not durable.
    Failed(String),
    /// The server ran and a file turned out to be damaged, or the directory to be an older copy:
    /// likewise. A start would not mend it.
    Damaged(String),
}

impl ServeError {
    /// The exit code of the process: 1 the data is damaged, 2 the configuration or the machine is
    /// wrong, 3 a shard failed.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::Failed(_) => 3,
            ServeError::Damaged(_)
            | ServeError::Open(OpenError::Directory(DirectoryError::Damaged { .. })) => 1,
            ServeError::Open(OpenError::Refused { refusal, .. }) if refusal.is_damage() => 1,
            _ => 2,
        }
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Open(error) => error.fmt(f),
            ServeError::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address}: another process does; choose another with \
                     --listen or --shard-ports (0 takes free ones)"
                )
            }
            ServeError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
            ServeError::ListenAdmin { address, error } => write!(
                f,
                "cannot listen on {address} for probes and metrics: {error}; choose another \
                 address with --admin-listen, or off"
            ),
            ServeError::ListenResp { address, error } => write!(
                f,
                "cannot listen on {address} for clients of Redis: {error}; choose another address \
                 with --resp-listen or --resp-shard-ports, or off"
            ),
            ServeError::ListenLinks { address, error } => write!(
                f,
                "cannot listen on {address} for links to other nodes: {error}; the cluster's file \
                 names that address for this node"
            ),
            ServeError::Failed(text) | ServeError::Damaged(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<OpenError> for ServeError {
    fn from(error: OpenError) -> Self {
        ServeError::Open(error)
    }
}

/// What `action` was refused with.
pub(super) fn system(action: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |error| OpenError::System { action, error }.into()
}

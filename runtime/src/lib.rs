//! The process: pinned cores, rings, sockets, timers, mailboxes between cores, start-up checks,
//! configuration.
//!
//! It is also a library: [`Penstock`] is the store inside the caller's own process, without sockets
//! and without a runtime. Operations, promises, files and recovery are the server's, and `penstock
//! serve`, `inspect`, `backup` and `verify` work on the same directory, one at a time.
//!
//! ```
//! use penstock::embedded::{ClientError, Field};
//! use penstock::{Options, Penstock, Verbs};
//!
//! # let directory = std::env::temp_dir().join(format!("penstock-doc-{}", std::process::id()));
//! let store = Penstock::open(&directory, Options::default())?;
//! store.set(b"stock:42", &2u32.to_le_bytes()).wait()?;
//!
//! // Check and decrement are one step; it is on the disk when the answer comes.
//! let stock = Field::u32(0);
//! let buy = [stock.at_least(1), stock.decrease(1)];
//! assert_eq!(store.update_if(b"stock:42", &buy).wait()?.fields[0], 1);
//! assert_eq!(store.update_if(b"stock:42", &buy).wait()?.fields[0], 0);
//! match store.update_if(b"stock:42", &buy).wait() {
//!     Err(ClientError::No(answer)) => assert_eq!(answer.actual(), Some(0)),
//!     other => panic!("sold out, and yet {other:?}"),
//! }
//! store.close()?;
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Many threads use one store: handles are cheap to clone, and each thread's operations keep their
//! order. One thread that wants the shortest way takes [`Penstock::open_local`].

/// Version and commit of this build: a bug report names it by them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILT_FROM"), ")");

pub mod backup;
pub mod cluster;
pub mod config;
pub mod directory;
pub mod disk;
pub mod embedded;
pub mod etcd;
mod event_loop;
pub mod schema;
pub mod server;
pub mod startup;
mod stats;
pub mod system;
mod tls;
pub mod users;

pub use embedded::{Local, Options, Penstock, Verbs};
pub use startup::OpenError;
pub use system::huge_pages::HugePages;
pub use system::open_files::TooFewOpenFiles;

#[cfg(test)]
#[path = "../../net/tests/fuzz/target.rs"]
mod target;

/// What README.md shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

// A server with planted bugs is never built, whatever features a build unites.
const _: () = assert!(!penstock_storage::planted::IS_COMPILED_IN);

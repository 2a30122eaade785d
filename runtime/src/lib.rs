//! The process: pinned cores, rings, sockets, timers, mailboxes between cores, start-up checks, configuration.

pub mod backup;
pub mod block;
pub mod calibrate;
pub mod checks;
pub mod config;
pub mod directory;
pub mod disk;
pub mod embedded;
mod engine;
pub mod expression;
pub mod identity;
mod node;
pub mod repair;
pub mod server;
pub mod spare;
mod stats;
mod system;
mod wall;

pub use embedded::{Local, Options, Penstock};
pub use node::OpenError;

// A server with planted bugs is never built, whatever features a build unites.
const _: () = assert!(!penstock_storage::planted::IS_COMPILED_IN);

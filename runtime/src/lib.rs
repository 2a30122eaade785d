//! The process: pinned cores, rings, sockets, timers, mailboxes between cores, start-up checks, configuration.

pub mod config;
pub mod expression;
pub mod block;
pub mod calibrate;
pub mod checks;
pub mod directory;
pub mod disk;
pub mod identity;
pub mod spare;
mod system;

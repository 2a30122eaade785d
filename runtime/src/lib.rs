//! The process: pinned cores, rings, sockets, timers, mailboxes between cores, start-up checks, configuration.

pub mod config;
pub mod expression;

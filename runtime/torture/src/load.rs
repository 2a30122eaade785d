//! The load of a round, as the writers and the part that strikes the server see it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::process;
use crate::wire::ANSWER_MAX;

/// A number that many threads raise.
#[derive(Default)]
pub struct Tally(AtomicU64);

impl Tally {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the writers of a round do, for the part of the round that strikes the server.
#[derive(Default)]
pub struct Load {
    is_over: AtomicBool,
    is_struck: AtomicBool,
    /// Writers with a connection.
    pub connected: Tally,
    /// Answered operations that were not refused: changes, reads, failed guards.
    pub writes: Tally,
    pub reads: Tally,
    pub guards: Tally,
    /// Answers that the disk is full.
    pub full: Tally,
    /// Writers whose connection ended, and writers that did not wait for an answer any more.
    pub cut_off: Tally,
    pub gave_up: Tally,
}

impl Load {
    /// Whether writers begin nothing any more.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Lets the writers begin nothing any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether something is being done to the server.
    pub fn is_struck(&self) -> bool {
        self.is_struck.load(Ordering::SeqCst)
    }

    /// Lets the writers work for so long, and until so many of their changes are acknowledged.
    pub fn work(&self, time: Duration, writes: u64) -> Result<(), String> {
        process::pass(time)?;
        process::wait(ANSWER_MAX, || self.writes.get() >= writes)?
            .then_some(())
            .ok_or(format!("{writes} changes took more than {ANSWER_MAX:?}"))
    }

    /// To be called right before something is done to the server: from now on connections may end
    /// and outcomes may be unknown.
    pub fn strike(&self) {
        self.is_struck.store(true, Ordering::SeqCst);
    }
}

//! Whether any shard of a node has found a change over several shards that an earlier run decided.
//! Each shard tells what it found and waits for all others: one may have to make what another one
//! has decided before it serves.

use std::ops::Deref;
use std::sync::{Condvar, Mutex, PoisonError};

use penstock_shard::opening::Inventory;

/// What was found in the directory before the shards open, and what they find then.
#[derive(Debug)]
pub(crate) struct Found {
    inventory: Inventory,
    pub(crate) redo: RedoFound,
}

impl Found {
    /// What stands in the directory of so many shards.
    pub(crate) fn new(inventory: Inventory, shards: u16) -> Self {
        Found {
            inventory,
            redo: RedoFound::new(shards),
        }
    }
}

impl Deref for Found {
    type Target = Inventory;

    fn deref(&self) -> &Inventory {
        &self.inventory
    }
}

/// What the shards have told so far.
#[derive(Debug)]
pub(crate) struct RedoFound {
    reports: Mutex<Reports>,
    changed: Condvar,
}

#[derive(Debug)]
struct Reports {
    /// Shards that have not told yet.
    missing: usize,
    is_any: bool,
}

/// Tells for one shard. Dropped, it may have found one: the shard does not open.
pub(crate) struct Reporter<'a> {
    found: &'a RedoFound,
    has_reported: bool,
}

impl RedoFound {
    /// Nothing is known yet of so many shards.
    pub(crate) fn new(shards: u16) -> Self {
        RedoFound {
            reports: Mutex::new(Reports {
                missing: shards.into(),
                is_any: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Tells for one shard.
    pub(crate) fn reporter(&self) -> Reporter<'_> {
        Reporter {
            found: self,
            has_reported: false,
        }
    }

    fn note(&self, is_found: bool) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.missing = reports.missing.saturating_sub(1);
        reports.is_any |= is_found;
        self.changed.notify_all();
    }
}

impl Reporter<'_> {
    /// This shard has found one, or not. Whether any shard has, when all have told.
    pub(crate) fn report(mut self, is_found: bool) -> bool {
        self.has_reported = true;
        self.found.note(is_found);
        let reports = self.found.reports.lock();
        let reports = reports.unwrap_or_else(PoisonError::into_inner);
        let reports = self
            .found
            .changed
            .wait_while(reports, |reports| reports.missing > 0);
        reports.unwrap_or_else(PoisonError::into_inner).is_any
    }
}

impl Drop for Reporter<'_> {
    fn drop(&mut self) {
        if !self.has_reported {
            self.found.note(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn all_shards_learn_of_one_that_has_found_something_and_one_that_fails_keeps_nobody_waiting() {
        for (is_found, fails) in [(false, false), (true, false), (false, true)] {
            let found = Arc::new(RedoFound::new(3));
            let threads: Vec<_> = [false, is_found]
                .into_iter()
                .map(|is_found| {
                    let found = Arc::clone(&found);
                    std::thread::spawn(move || found.reporter().report(is_found))
                })
                .collect();
            let last = found.reporter();
            match fails {
                true => drop(last),
                false => assert_eq!(last.report(false), is_found),
            }
            for thread in threads {
                assert_eq!(thread.join().expect("it ends"), is_found || fails);
            }
        }
    }
}

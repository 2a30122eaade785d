//! DEBUG SLEEP: the threads of all cores stand still until one moment.
//!
//! The process works meanwhile, so the watchdog of the service manager is fed. `/livez` says what
//! holds: the loops do not turn.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The end of the longest sleep of the process. A process has one node.
static ENDS: Mutex<Option<Instant>> = Mutex::new(None);
/// How soon behind a sleep a loop is said to have turned.
const TURNS_WITHIN: Duration = Duration::from_secs(2);

/// A sleep of the cores is asked for.
pub(super) fn begin(until: Instant) {
    let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    *ends = (*ends).max(Some(until));
}

/// The thread that calls stands still until then.
pub(super) fn stand_still(until: Instant) {
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}

/// Whether loops may stand still because they were asked to.
pub(super) fn is_under_way() -> bool {
    let ends = *ENDS.lock().unwrap_or_else(PoisonError::into_inner);
    ends.is_some_and(|ends| Instant::now() < ends + TURNS_WITHIN)
}

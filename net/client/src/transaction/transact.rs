//! A transaction that is run again when it conflicts.

use crate::answers::Changed;
use crate::jitter::{doubled, full_jitter, random};
use crate::update::{PAUSE_MAX, PAUSE_MIN, Patience};

use super::{Isolation, Transacted, Transaction, TransactionError};

/// Runs a transaction and commits it; blocks. On a conflict `run` runs again with a new
/// transaction, behind a pause with full jitter of at most 16 ms, until the store's deadline has
/// passed since the call. The outcome is what `run` returned in the end, and what the commit did,
/// as [`Transaction::commit`] tells it.
///
/// To give up, `run` returns an error of its own making, or rolls back and returns something that
/// tells so.
///
/// # Errors
/// [`ClientError::Busy`](crate::ClientError::Busy) in [`TransactionError::Store`] if other writers
/// were faster until the deadline. Any other error of `run` and of the commit, at once.
pub fn transact<S: Transacted, T>(
    mut store: S,
    isolation: Isolation,
    mut run: impl FnMut(&mut Transaction<&mut S>) -> Result<T, TransactionError>,
) -> Result<(T, Option<Changed>), TransactionError> {
    let patience = Patience::begin(store.deadline());
    let mut losses = 0;
    // The loop ends at the deadline, when there is no patience for one more pause.
    loop {
        let mut transaction = Transaction::begin(&mut store, isolation);
        let outcome = run(&mut transaction).and_then(|value| {
            let changed = transaction.commit().wait()?;
            Ok((value, changed))
        });
        let Err(TransactionError::Conflict(_)) = outcome else {
            return outcome;
        };
        let pause = full_jitter(doubled(PAUSE_MIN, losses, PAUSE_MAX), random());
        losses = losses.saturating_add(1);
        patience.pause(pause, losses)?;
    }
}

//! A change by a function of the value: read, edit, and write if nobody else did meanwhile.
//!
//! Writers of one key wait between tries with full jitter. The answer to a write that lost shows
//! the value that won, so most tries need no read. A value that was seen before a pause has
//! probably lost already. So the try after a pause serves as a read, and the try with the value
//! that it shows follows at once.

use std::time::{Duration, Instant};

use crate::answers::{Changed, Value};
use crate::jitter::{doubled, full_jitter, random};
use crate::operation::{Answer, ClientError};
use penstock_net::request::Condition;
use penstock_net::status::Status;

/// The bound of the first pause; each next one is twice as long.
pub(crate) const PAUSE_MIN: Duration = Duration::from_micros(250);
/// The longest bound of a pause.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(16);

/// A store that [`update`] changes one key of.
pub trait Updated {
    /// The value of the key.
    ///
    /// # Errors
    /// [`ClientError`].
    fn read(&mut self) -> Result<Option<Value>, ClientError>;

    /// Writes the key under a condition, asks for the value that keeps the condition from holding,
    /// and keeps the expiry.
    ///
    /// # Errors
    /// [`ClientError`].
    fn write(&mut self, bytes: &[u8], condition: Condition) -> Result<Changed, ClientError>;

    /// A random number, each bit of it.
    fn random(&mut self) -> u64;

    /// Waits after so many lost writes.
    ///
    /// # Errors
    /// [`ClientError`] that ends the update, such as at its deadline.
    fn pause(&mut self, pause: Duration, losses: u32) -> Result<(), ClientError>;
}

/// Changes one key by `edit`, which returns whether to write and may run several times. `Ok(None)`
/// says that `edit` declined.
///
/// # Errors
/// The errors of the store. [`ClientError::Unknown`] is always about a write, never about a read.
pub fn update(
    store: &mut impl Updated,
    mut edit: impl FnMut(&mut Vec<u8>) -> bool,
) -> Result<Option<Changed>, ClientError> {
    let mut update = Update::default();
    // The loop ends at the store's deadline, when the store refuses to pause.
    loop {
        match update.step(&mut edit) {
            Step::Read => match store.read() {
                Ok(found) => update.found(found),
                Err(ClientError::Unknown(text)) => {
                    let text = format!("nothing was written: the read had {text}");
                    return Err(ClientError::Busy(text));
                }
                Err(error) => return Err(error),
            },
            Step::Declined => return Ok(None),
            Step::Write { bytes, condition } => match store.write(&bytes, condition) {
                Err(ClientError::No(answer)) if is_lost(&answer) => {
                    let pause = update.lost(&answer, store.random());
                    store.pause(pause, update.losses)?;
                }
                outcome => return outcome.map(Some),
            },
        }
    }
}

fn is_lost(answer: &Answer) -> bool {
    let status = answer.status;
    matches!(
        status,
        Status::VersionMismatch | Status::Exists | Status::NotFound
    )
}

/// What comes next.
#[derive(Debug)]
enum Step {
    Read,
    Write {
        bytes: Vec<u8>,
        condition: Condition,
    },
    Declined,
}

/// What is known of the key.
#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    Missing,
    Present(Value),
}

/// The state of one update between its operations.
#[derive(Debug, Default)]
struct Update {
    known: Known,
    /// A pause has passed since the value was known.
    is_old: bool,
    pauses: u32,
    losses: u32,
}

impl Update {
    fn step(&mut self, edit: &mut impl FnMut(&mut Vec<u8>) -> bool) -> Step {
        let (mut bytes, condition) = match &self.known {
            Known::Nothing => return Step::Read,
            Known::Missing => (Vec::new(), Condition::Absent),
            Known::Present(value) => (value.bytes.to_vec(), Condition::Version(value.version)),
        };
        match edit(&mut bytes) {
            true => Step::Write { bytes, condition },
            false => Step::Declined,
        }
    }

    fn found(&mut self, found: Option<Value>) {
        self.known = found.map_or(Known::Missing, Known::Present);
        self.is_old = false;
    }

    /// Takes in the answer to a write that lost; returns how long to wait before the next step.
    fn lost(&mut self, answer: &Answer, random: u64) -> Duration {
        self.losses = self.losses.saturating_add(1);
        self.known = match (answer.status, answer.shown()) {
            (Status::NotFound, _) => Known::Missing,
            (_, Some(value)) => Known::Present(value),
            (_, None) => Known::Nothing,
        };
        if std::mem::take(&mut self.is_old) {
            return Duration::ZERO;
        }
        self.is_old = true;
        let pause = full_jitter(doubled(PAUSE_MIN, self.pauses, PAUSE_MAX), random);
        self.pauses += 1;
        pause
    }
}

/// The time and the chance of an update that blocks its thread.
#[derive(Debug)]
pub struct Patience {
    deadline: Duration,
    until: Instant,
}

impl Patience {
    /// Begins an update that must end within `deadline`.
    #[must_use]
    pub fn begin(deadline: Duration) -> Patience {
        Patience {
            deadline,
            until: Instant::now() + deadline,
        }
    }

    /// When the update must be over.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// A random number, each bit of it.
    #[must_use]
    pub fn random(&self) -> u64 {
        random()
    }

    /// Sleeps, if the deadline leaves time for it.
    ///
    /// # Errors
    /// [`ClientError::Busy`] if it does not.
    pub fn pause(&self, pause: Duration, losses: u32) -> Result<(), ClientError> {
        if Instant::now() + pause >= self.until {
            let deadline = self.deadline;
            let text = format!(
                "{losses} tries within the deadline of {deadline:?}, and each time another \
                 writer was faster"
            );
            return Err(ClientError::Busy(text));
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "update/tests.rs"]
mod tests;

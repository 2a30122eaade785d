//! What the kernel says of the wall clock: whether a time service keeps it.
#![expect(
    unsafe_code,
    reason = "a system call without a wrapper in the standard library"
)]

use std::mem::MaybeUninit;

/// Whether a time service keeps the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKeeping {
    /// One has set it and follows it.
    Synchronised,
    /// None has since the machine was booted, or none does any more.
    Unsynchronised,
    /// The system does not say.
    Unknown,
}

/// Asks the kernel by `adjtimex`; changes nothing.
#[must_use]
pub fn clock_keeping() -> ClockKeeping {
    // SAFETY: every field of a timex is a number, so zeros are a value of the type.
    let mut found: libc::timex = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the pointer is to a live structure of the kernel's form, which the kernel fills. With
    // modes 0 the call sets nothing.
    let state = unsafe { libc::adjtimex(&raw mut found) };
    match state {
        -1 => ClockKeeping::Unknown,
        libc::TIME_ERROR => ClockKeeping::Unsynchronised,
        _ if found.status & libc::STA_UNSYNC != 0 => ClockKeeping::Unsynchronised,
        _ => ClockKeeping::Synchronised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_and_the_clock_stays_as_it_was() {
        let answers: Vec<_> = (0..3).map(|_| clock_keeping()).collect();
        // Where the call is forbidden, that is the answer.
        assert!(answers.iter().all(|it| *it == answers[0]), "{answers:?}");
    }
}

//! Random numbers of the system.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::io;

/// Eight bytes that nobody can foresee.
pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Fills `into`, which may be at most 256 bytes long: up to there the kernel never gives less.
pub(crate) fn fill_random(into: &mut [u8]) -> io::Result<()> {
    assert!(into.len() <= 256, "more might be interrupted half-way");
    loop {
        // SAFETY: the pointer and the length are those of a live mutable slice.
        let got = unsafe { libc::getrandom(into.as_mut_ptr().cast(), into.len(), 0) };
        if usize::try_from(got) == Ok(into.len()) {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random_u64().expect("random"), random_u64().expect("random"));
    }
}

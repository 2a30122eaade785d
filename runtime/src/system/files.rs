//! Files and file systems.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::check;

/// Bytes that an unprivileged process can still write on the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends in a zero byte, and the pointer is to room for one `statvfs`.
    check(unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Gives each of two files the name of the other, at once.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (c_path(one)?, c_path(other)?);
    // SAFETY: both paths end in a zero byte.
    check(unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    })
}

/// The magic number of the file system of `path`.
pub(crate) fn file_system_magic(path: &Path) -> io::Result<i64> {
    let path = c_path(path)?;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path ends in a zero byte, and the pointer is to room for one `statfs`.
    check(unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    Ok(unsafe { found.assume_init() }.f_type)
}

/// What direct I/O on a file asks of memory addresses and of file offsets, in bytes. Both are 0
/// where the file system refuses it; `None` where the kernel (before 6.1) does not say.
pub(crate) fn direct_alignment(file: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the empty path is a constant that ends in a zero byte, and
    // the pointer is to room for one `statx`.
    check(unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            found.as_mut_ptr(),
        )
    })?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    let known = found.stx_mask & libc::STATX_DIOALIGN != 0;
    Ok(known.then_some((found.stx_dio_mem_align, found.stx_dio_offset_align)))
}

/// Reserves the first `bytes` bytes of `file` on the device and makes it that long.
pub(crate) fn allocate(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the descriptor is open; no memory is involved.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) })
}

/// Has the kernel begin to read `bytes` bytes of a file from `offset` on, or as many as it takes at
/// once.
pub(crate) fn read_ahead(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    advise(file, (offset, bytes), libc::POSIX_FADV_WILLNEED)
}

/// Has the kernel read no more of a file than what is asked for.
pub(crate) fn read_as_asked(file: BorrowedFd<'_>) -> io::Result<()> {
    advise(file, (0, 0), libc::POSIX_FADV_RANDOM)
}

/// Tells the kernel how `bytes` bytes of a file are going to be read from `offset` on; 0 for all.
fn advise(
    file: BorrowedFd<'_>,
    (offset, bytes): (u64, u64),
    advice: libc::c_int,
) -> io::Result<()> {
    let number = |of| i64::try_from(of).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    let (offset, bytes) = (number(offset)?, number(bytes)?);
    // SAFETY: the descriptor is open; no memory is involved.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path holds a zero byte"))
}

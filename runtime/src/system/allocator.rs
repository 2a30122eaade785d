//! What the allocator keeps of the memory that was freed.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

/// Lets the allocator serve blocks of `bytes` and more by mappings of their own, so that they go
/// back to the system when they are freed.
pub(crate) fn map_blocks_from(bytes: u32) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the call takes numbers only and changes how later blocks are made, not any that
        // is there.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// Lets the allocator give the free pages that it keeps back to the system.
pub(crate) fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call touches free memory of the allocator only, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

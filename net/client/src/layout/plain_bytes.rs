//! [`PlainBytes`]: what `zerocopy` must know of a type, as one trait with one message.

use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// A type whose bytes are its value, at any address: what zerocopy knows of it.
#[diagnostic::on_unimplemented(
    message = "the bytes of `{Self}` are not known",
    label = "zerocopy does not know its bytes",
    note = "write #[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)] \
            above it; the last five are of zerocopy"
)]
pub trait PlainBytes:
    TryFromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Sized
{
}

#[diagnostic::do_not_recommend]
impl<T: TryFromBytes + IntoBytes + KnownLayout + Immutable + Unaligned> PlainBytes for T {}

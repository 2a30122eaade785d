//! The small types that every layer speaks in. They know no other layer.

pub mod io;
pub mod key_home;
pub mod packed_place;
pub mod place;
pub mod version;

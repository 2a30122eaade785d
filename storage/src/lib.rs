#![forbid(unsafe_code)]
pub mod io;

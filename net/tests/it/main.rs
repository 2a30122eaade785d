//! The codec against its documents: vectors, the session of SESSION.md, cuts, flips, noise.

mod apply;
mod cases;
mod chunking;
mod decoded;
mod link;
mod random;
mod resp;
mod resp_beside;
mod resp_blocking;
mod resp_bounds;
mod resp_channels;
mod resp_login;
mod resp_repeats;
mod resp_shapes;
mod resp_sides;
mod resp_tracking;
mod rights;
mod runs;
mod session;
mod users;
mod vectors;

use random::Random;

/// Bytes as the documents write them.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    assert!(digits.len().is_multiple_of(2), "whole bytes: {text}");
    let pair = |pair: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex digits")
    };
    digits.chunks_exact(2).map(pair).collect()
}

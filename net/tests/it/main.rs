//! The codec against its documents: vectors, the session of PROTOCOL.md, cuts, flips, noise.

mod apply;
mod cases;
mod chunking;
mod decoded;
mod link;
mod resp;
mod resp_beside;
mod resp_login;
mod resp_repeats;
mod rights;
mod runs;
mod session;
mod users;
mod vectors;

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

/// A small generator whose whole state is the printed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }
}

//! A stream of frames, however it is cut: the receiver reads nothing that is not there, keeps
//! nothing, and finds the same frames.
//!
//! An input is the limit, how the stream is cut (2 bytes, then one for each piece), and the stream.

use penstock_net::frame::{HEADER_BYTES, Header};
use penstock_net::receive::{Received, Receiver};

use crate::target::Choices;
use crate::{check_refusal, without_memory};

const LIMITS: [u32; 6] = [0, 40, 256, 4096, 2 << 20, u32::MAX];
/// The checksums of the stream are put right before it is read.
const SEALED: u8 = 0x80;

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Frame(Header, Vec<u8>),
    Refused(Option<Header>, String),
}

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let limit = LIMITS[usize::from(manner & !SEALED) % LIMITS.len()];
    let cuts = choices.byte();
    let cuts = choices.bytes(usize::from(cuts % 16));
    let mut stream = choices.rest().to_vec();
    if manner & SEALED != 0 {
        seal(&mut stream);
    }
    let whole = read(limit, &[&stream]);
    let mut pieces = Vec::new();
    let mut rest = &stream[..];
    for &cut in cuts {
        let (piece, behind) = rest.split_at(usize::from(cut).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    assert_eq!(read(limit, &pieces), whole, "cut into {}", pieces.len());
    if stream.len() <= 256 {
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(limit, &single), whole, "byte by byte");
    }
}

/// Puts the checksums of each frame right, as far as the lengths tell where they are.
pub fn seal(stream: &mut [u8]) {
    let mut rest = stream;
    while rest.len() >= HEADER_BYTES {
        let len = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let (frame, behind) = rest.split_at_mut(len.clamp(HEADER_BYTES, rest.len()));
        let crc = crc32fast::hash(&frame[HEADER_BYTES..]);
        frame[24..28].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&frame[..28]);
        frame[28..32].copy_from_slice(&crc.to_le_bytes());
        rest = behind;
    }
}

fn read(limit: u32, pieces: &[&[u8]]) -> Vec<Seen> {
    let mut receiver = Receiver::new(limit);
    let mut buffer = Vec::new();
    let mut seen = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let rest = &buffer[at..];
            let consumed = match without_memory(|| receiver.next(rest)) {
                Received::Incomplete { frame_bytes } => {
                    assert!(
                        frame_bytes > rest.len() && frame_bytes <= HEADER_BYTES.max(limit as usize),
                        "waits for {frame_bytes} with {} there and {limit} allowed",
                        rest.len()
                    );
                    break;
                }
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    let mut again = header.encode().to_vec();
                    again.extend_from_slice(body);
                    assert_eq!(again, rest[..consumed], "a frame is all of its bytes");
                    if let Err(refusal) = header.read_request() {
                        check_refusal(refusal);
                    }
                    seen.push(Seen::Frame(header, body.to_vec()));
                    consumed
                }
                Received::Refused {
                    header,
                    refusal,
                    consumed,
                    is_fatal,
                } => {
                    check_refusal(refusal);
                    seen.push(Seen::Refused(header, refusal.to_string()));
                    if is_fatal {
                        return seen;
                    }
                    consumed
                }
                Received::Skipped { consumed } => consumed,
            };
            assert!(consumed > 0 && consumed <= rest.len(), "{consumed} bytes");
            at += consumed;
        }
        buffer.drain(..at);
    }
    seen
}

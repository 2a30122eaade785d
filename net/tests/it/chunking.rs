//! Frames do not depend on how their bytes arrive, and damage never gets through.

use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::request::{BatchRequest, Condition, Request};

use crate::Random;

fn stream() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(
        &mut bytes,
        Header::request(Opcode::Ping, 1, AckLevel::None, 0),
        b"12345678",
    );
    let mut batch = BatchRequest::begin(&mut bytes, 2, AckLevel::Disk, 9, 8);
    batch.get(&mut bytes, b"a");
    batch.set(&mut bytes, b"key", b"value", Condition::Absent);
    batch.finish(&mut bytes);
    // Longer than the limit below: refused, skipped, and the next frame is read.
    write_frame(
        &mut bytes,
        Header::request(Opcode::Ping, 3, AckLevel::None, 0),
        &[7; 400],
    );
    write_frame(
        &mut bytes,
        Header::request(Opcode::Info, 4, AckLevel::None, 0),
        b"",
    );
    bytes
}

/// The request ids that were read whole and those that were refused, given the pieces in order.
fn read(pieces: &[&[u8]]) -> (Vec<u64>, Vec<u64>) {
    let mut receiver = Receiver::new(256);
    let mut buffer = Vec::new();
    let (mut whole, mut refused) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let consumed = match receiver.next(&buffer) {
                Received::Incomplete { frame_bytes } => {
                    assert!(frame_bytes > buffer.len(), "asks for more than there is");
                    break;
                }
                Received::Frame {
                    header, consumed, ..
                } => {
                    whole.push(header.request_id);
                    consumed
                }
                Received::Refused {
                    header,
                    consumed,
                    is_fatal,
                    ..
                } => {
                    assert!(!is_fatal);
                    refused.push(header.expect("a good header").request_id);
                    consumed
                }
                Received::Skipped { consumed } => consumed,
            };
            buffer.drain(..consumed);
        }
    }
    (whole, refused)
}

#[test]
fn every_cut_of_a_stream_gives_the_same_frames() {
    let bytes = stream();
    let expected = (vec![1, 2, 4], vec![3]);
    assert_eq!(read(&[&bytes]), expected);
    for first in 0..=bytes.len() {
        assert_eq!(
            read(&[&bytes[..first], &bytes[first..]]),
            expected,
            "cut at {first}"
        );
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&single), expected, "byte by byte");
}

#[test]
fn no_flipped_bit_gives_another_frame() {
    let bytes = stream();
    let frame_bytes = 40;
    for bit in 0..frame_bytes * 8 {
        let mut flipped = bytes[..frame_bytes].to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(
            !matches!(Receiver::new(256).next(&flipped), Received::Frame { .. }),
            "bit {bit}"
        );
    }
}

#[test]
fn noise_is_never_read_out_of_bounds_and_never_accepted_as_something_else() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut item = Vec::new();
        let mut batch = BatchRequest::begin(&mut item, 1, AckLevel::Disk, 0, 1);
        batch.set(
            &mut item,
            b"some key",
            &vec![1; random.below(100)],
            Condition::Always,
        );
        batch.finish(&mut item);
        let mut item = item.split_off(32 + 16);
        for _ in 0..500 {
            let at = random.below(item.len().min(48));
            let before = item[at];
            item[at] = random.next().to_le_bytes()[0];
            if let Ok(request) = Request::read(&item, 1 << 20) {
                assert!(
                    (1..=1024).contains(&request.key.len()) && request.value.len() <= item.len(),
                    "seed {seed}"
                );
            }
            if random.below(2) == 0 {
                item[at] = before;
            }
        }
    }
}

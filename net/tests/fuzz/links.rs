//! A link: frames in a row, each with the number that it should have.
//!
//! An input is one byte (whether checksums are made good first) and the bytes of frames.

use penstock_net::link::frame::{LINK_HEADER_BYTES, read_link_frame, write_link_frame};
use penstock_net::link::{LinkFault, LinkMessage, LinkReceived};

use crate::target::Choices;
use crate::without_memory;

const FRAME_BYTES_MAX: u32 = 16 << 10;

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let is_sealed = choices.byte().is_multiple_of(2);
    let mut bytes = choices.rest().to_vec();
    let mut start = 0;
    for number in 1.. {
        if is_sealed {
            seal(&mut bytes[start..], number);
        }
        let left = &bytes[start..];
        match without_memory(|| read_link_frame(left, number, FRAME_BYTES_MAX)) {
            Ok(LinkReceived::Frame(frame)) => {
                assert!((LINK_HEADER_BYTES..=left.len()).contains(&frame.bytes));
                walk(&frame.message);
                let mut again = Vec::new();
                write_link_frame(&mut again, frame.header, &frame.message);
                assert_eq!(again, left[..frame.bytes], "a message has one form");
                start += frame.bytes;
            }
            Ok(LinkReceived::Incomplete { frame_bytes }) => {
                assert!(frame_bytes > left.len() && frame_bytes <= FRAME_BYTES_MAX as usize);
                break;
            }
            Err(fault) => {
                check(fault);
                break;
            }
        }
    }
}

/// What stands behind a count is all there and can be walked.
fn walk(message: &LinkMessage<'_>) {
    match message {
        LinkMessage::State(state) => {
            without_memory(|| assert!(state.epochs.iter().is_sorted_by_key(|it| it.first)));
        }
        LinkMessage::Begin(begin) => {
            without_memory(|| assert!(begin.epochs.iter().is_sorted_by_key(|it| it.first)));
        }
        LinkMessage::Rewind(rewind) => {
            let keys = without_memory(|| rewind.keys().count());
            assert_eq!(keys, usize::from(rewind.count));
        }
        LinkMessage::Records(records) => assert!(records.count as usize <= records.bytes.len()),
        _ => {}
    }
}

fn check(fault: LinkFault) {
    let text = fault.to_string();
    assert!(!text.is_empty() && text.len() < 300 && !text.contains('\n'));
}

/// Gives the first frame the right number and checksums, so that the checks behind them are
/// reached.
fn seal(bytes: &mut [u8], number: u64) {
    if bytes.len() < LINK_HEADER_BYTES {
        return;
    }
    bytes[4..6].copy_from_slice(&[0xD7, 1]);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let len = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
    if let Some(body) = bytes.get(LINK_HEADER_BYTES..len) {
        let crc = crc32fast::hash(body);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32fast::hash(&bytes[..44]);
    bytes[44..48].copy_from_slice(&crc.to_le_bytes());
}

//! RECORDS: the message in which a source ships records.

use crate::batch::read_u32;
use crate::link::body::{length, zero};
use crate::link::fault::LinkFault;

/// Bytes of RECORDS before the first part.
pub const RECORDS_HEAD_BYTES: usize = 8;
/// Bytes of the shortest part: a header of 40, and a key with its padding.
const PART_BYTES_MIN: usize = 48;

/// RECORDS, by the source: records of its log, byte for byte, of any partitions that have begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    /// Number of records, at least one.
    pub count: u32,
    /// The parts of the records, without gaps. The parts are not checked here.
    pub bytes: &'a [u8],
}

impl<'a> Records<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let (head, bytes) = body
            .split_first_chunk::<RECORDS_HEAD_BYTES>()
            .ok_or(length("RECORDS", body, RECORDS_HEAD_BYTES))?;
        zero(&head[4..], "the word behind the number of records")?;
        let count = read_u32(head, 0);
        let max = (bytes.len() / PART_BYTES_MIN) as u64;
        if count == 0 || u64::from(count) > max {
            return Err(LinkFault::Field {
                name: "the number of records",
                found: count.into(),
                max,
            });
        }
        Ok(Records { count, bytes })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&records_head(self.count));
        out.extend_from_slice(self.bytes);
    }
}

/// The bytes of RECORDS before the first part.
#[must_use]
pub fn records_head(count: u32) -> [u8; RECORDS_HEAD_BYTES] {
    let mut head = [0; RECORDS_HEAD_BYTES];
    head[..4].copy_from_slice(&count.to_le_bytes());
    head
}

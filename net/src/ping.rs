//! PING as an item of a batch: a value goes there and comes back. It names no key, and no store is
//! asked.

use crate::batch::{padded, push_padded, read_u16, read_u32, read_u64};
use crate::refusal::Refusal;
use crate::request::verb::Verb;

/// The number of the operation in an item.
pub const PING: u8 = Verb::Ping as u8;
/// Bytes before the value.
const HEAD_BYTES: usize = 16;
/// The first eight bytes of every such item: the length of the block, and the operation.
const HEAD: u64 = HEAD_BYTES as u64 | (PING as u64) << 16;

/// The item, as a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingItem<'a> {
    /// What comes back.
    pub value: &'a [u8],
}

impl<'a> PingItem<'a> {
    /// Reads one item.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    #[inline]
    pub fn read(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        let length = |needed: u64| Refusal::ItemLength {
            len: item.len(),
            needed,
        };
        let head = item
            .first_chunk::<HEAD_BYTES>()
            .ok_or(length(HEAD_BYTES as u64))?;
        if read_u64(head, 0) != HEAD || read_u32(head, 8) != 0 {
            return Err(refusal_of_head(head));
        }
        let len = read_u32(head, 12);
        if len > value_bytes_max {
            return Err(Refusal::ValueLength {
                len,
                max: value_bytes_max,
            });
        }
        let end = HEAD_BYTES as u64 + u64::from(len).next_multiple_of(8);
        if item.len() as u64 != end {
            return Err(length(end));
        }
        let (value, padding) = item[HEAD_BYTES..].split_at(len as usize);
        debug_assert_eq!(padding.len(), padded(value.len()) - value.len());
        match padding.iter().all(|&byte| byte == 0) {
            true => Ok(PingItem { value }),
            false => Err(Refusal::Padding {
                behind: "the value",
            }),
        }
    }

    /// Appends the item.
    ///
    /// # Panics
    /// If the value has 4 GiB or more.
    pub fn write(&self, out: &mut Vec<u8>) {
        let len = u32::try_from(self.value.len()).expect("a value has less than 4 GiB");
        out.extend_from_slice(&HEAD.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&len.to_le_bytes());
        push_padded(out, self.value);
    }
}

/// What is wrong with a head that is not that of a PING.
#[cold]
fn refusal_of_head(head: &[u8; HEAD_BYTES]) -> Refusal {
    let [operation, flags, key_count, instruction_count] = [head[2], head[3], head[4], head[5]];
    if operation != PING {
        Refusal::Operation(operation)
    } else if flags != 0 {
        Refusal::OperationFlags { operation, flags }
    } else if key_count != 0 {
        Refusal::KeyCount {
            operation,
            count: key_count,
        }
    } else if instruction_count != 0 {
        Refusal::InstructionCount {
            operation,
            count: instruction_count,
        }
    } else if usize::from(read_u16(head, 0)) != HEAD_BYTES {
        Refusal::BlockLength {
            found: read_u16(head, 0),
            expected: HEAD_BYTES,
        }
    } else {
        Refusal::Reserved {
            name: "what stands before the value length of PING",
            found: u64::from(read_u16(head, 6)) | u64::from(read_u32(head, 8)) << 16,
        }
    }
}

//! The body of a batch, the same in both directions: a count, an index of (offset, length), and the
//! items, so that an item is a view and never a copy.

use crate::limits::BATCH_ITEMS_MAX;
use crate::refusal::Refusal;

const HEAD_BYTES: usize = 8;
const ENTRY_BYTES: usize = 8;

/// A batch body whose index was checked.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    body: &'a [u8],
    count: usize,
}

impl<'a> Batch<'a> {
    /// Checks the count and the whole index: items follow one another without a gap to the end.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(body: &'a [u8]) -> Result<Self, Refusal> {
        let head = body.first_chunk::<HEAD_BYTES>().ok_or(Refusal::BatchBody {
            len: body.len(),
            needed: HEAD_BYTES + ENTRY_BYTES,
        })?;
        let count_u32 = read_u32(head, 0);
        let count = count_u32 as usize;
        if !(1..=BATCH_ITEMS_MAX).contains(&count) {
            return Err(Refusal::BatchCount(count_u32));
        }
        if read_u32(head, 4) != 0 {
            return Err(Refusal::Reserved {
                name: "the word behind the count of a batch",
                found: read_u32(head, 4).into(),
            });
        }
        let index_end = HEAD_BYTES + count * ENTRY_BYTES;
        let index = body.get(HEAD_BYTES..index_end).ok_or(Refusal::BatchBody {
            len: body.len(),
            needed: index_end,
        })?;
        let mut expected = index_end;
        for (item, entry) in index.chunks_exact(ENTRY_BYTES).enumerate() {
            let (offset, len) = (read_u32(entry, 0), read_u32(entry, 4));
            // The length is compared with the bytes that are left, so no 32-bit sum can overflow.
            let left = body.len() - expected;
            if offset as usize != expected
                || len as usize > left
                || !len.is_multiple_of(8)
                || len == 0
            {
                return Err(Refusal::BatchIndex {
                    item,
                    offset,
                    len,
                    expected,
                    left,
                });
            }
            expected += len as usize;
        }
        if expected != body.len() {
            return Err(Refusal::BatchBody {
                len: body.len(),
                needed: expected,
            });
        }
        Ok(Batch { body, count })
    }

    /// Items in the batch.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// A batch is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The bytes of item `number`, which is below [`Batch::len`].
    #[inline]
    #[must_use]
    pub fn item(&self, number: usize) -> &'a [u8] {
        let entry = &self.body[HEAD_BYTES + number * ENTRY_BYTES..][..ENTRY_BYTES];
        let (offset, len) = (read_u32(entry, 0) as usize, read_u32(entry, 4) as usize);
        &self.body[offset..offset + len]
    }
}

/// Writes a batch body at the end of a buffer. The index has room for the greatest number of items
/// and is closed up at the end if there are fewer.
#[derive(Debug)]
pub(crate) struct BatchWriter {
    /// Where the body starts in the buffer.
    start: usize,
    /// Where the next entry of the index stands, and where the room for entries ends.
    entry: usize,
    items_start: usize,
}

impl BatchWriter {
    #[inline]
    pub(crate) fn begin(out: &mut Vec<u8>, items_max: usize) -> Self {
        let start = out.len();
        let entry = start + HEAD_BYTES;
        let items_start = entry + items_max * ENTRY_BYTES;
        out.resize(items_start, 0);
        BatchWriter {
            start,
            entry,
            items_start,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.entry - self.start - HEAD_BYTES) / ENTRY_BYTES
    }

    /// Notes that everything behind `from` is the next item.
    #[inline]
    pub(crate) fn end_item(&mut self, out: &mut [u8], from: usize) {
        let (offset, len) = (from - self.start, out.len() - from);
        self.put_item(out, offset, len);
    }

    /// Notes the next item by its distance from the start of the body and its length. The bytes of
    /// the item may stand elsewhere.
    #[inline]
    pub(crate) fn put_item(&mut self, out: &mut [u8], offset: usize, len: usize) {
        assert!(
            self.entry < self.items_start,
            "more items than were laid out"
        );
        put_entry(&mut out[self.entry..][..ENTRY_BYTES], offset, len);
        self.entry += ENTRY_BYTES;
    }

    /// Adds copies of the last item, which ends the buffer.
    pub(crate) fn repeat(&mut self, out: &mut Vec<u8>, times: usize) {
        let last = &out[self.entry - ENTRY_BYTES..][..ENTRY_BYTES];
        let (mut offset, len) = (read_u32(last, 0) as usize, read_u32(last, 4) as usize);
        assert!(self.len() > 0 && self.start + offset + len == out.len());
        let entries_end = self.entry + times * ENTRY_BYTES;
        assert!(
            entries_end <= self.items_start,
            "more items than were laid out"
        );
        for entry in out[self.entry..entries_end].chunks_exact_mut(ENTRY_BYTES) {
            offset += len;
            put_entry(entry, offset, len);
        }
        self.entry = entries_end;
        // Each step copies what the steps before have made.
        let (from, end) = (out.len() - len, out.len() + times * len);
        out.reserve(times * len);
        while out.len() < end {
            let there = out.len() - from;
            out.extend_from_within(from..from + there.min(end - out.len()));
        }
    }

    /// Closes the index. With no item at all the buffer is as it was before.
    pub(crate) fn finish(self, out: &mut Vec<u8>) -> usize {
        let items = self.len();
        if items == 0 {
            out.truncate(self.start);
            return 0;
        }
        let unused = self.items_start - self.entry;
        if unused > 0 {
            for entry in out[self.start + HEAD_BYTES..self.entry].chunks_exact_mut(ENTRY_BYTES) {
                let (offset, len) = (
                    read_u32(entry, 0) as usize - unused,
                    read_u32(entry, 4) as usize,
                );
                put_entry(entry, offset, len);
            }
            out.copy_within(self.items_start.., self.entry);
            out.truncate(out.len() - unused);
        }
        let count = u32::try_from(items).expect("at most 1024 items");
        out[self.start..self.start + 4].copy_from_slice(&count.to_le_bytes());
        items
    }
}

#[inline]
fn put_entry(entry: &mut [u8], offset: usize, len: usize) {
    let offset = u32::try_from(offset).expect("a frame has less than 4 GiB");
    let len = u32::try_from(len).expect("a frame has less than 4 GiB");
    entry[..4].copy_from_slice(&offset.to_le_bytes());
    entry[4..].copy_from_slice(&len.to_le_bytes());
}

#[inline]
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Rounded up to a multiple of 8.
#[inline]
pub(crate) const fn padded(len: usize) -> usize {
    (len + 7) & !7
}

/// Appends bytes and zeros up to a multiple of 8.
#[inline]
pub(crate) fn push_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    let padding = padded(bytes.len()) - bytes.len();
    if padding > 0 {
        let end = out.len() + padding;
        // A number of bytes that is known before is cheaper to append.
        out.extend_from_slice(&[0; 8]);
        out.truncate(end);
    }
}

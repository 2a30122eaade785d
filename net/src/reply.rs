//! Replies: how a server appends them to a connection's buffer, and the views that a client reads.

use std::fmt::Display;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Batch, BatchWriter, padded, push_padded, read_u16, read_u32, read_u64};
use crate::frame::{
    FLAG_FORWARDED, FLAG_MORE, HEADER_BYTES, Header, Medium, Opcode, finished_header, write_frame,
};
use crate::level::AckLevel;
use crate::pieces::{End, Pieces, PiecesReader};
use crate::refusal::Refusal;
use crate::status::Status;
use crate::version::Version;

/// Bytes of a reply item before its value.
pub const REPLY_ITEM_BYTES: usize = 24;
/// No instruction failed.
pub const NO_INSTRUCTION: u8 = 0xFF;
/// The failed instruction was an effect whose result would not fit its field's type.
pub const ITEM_FLAG_OVERFLOW: u8 = 0x01;
/// A [`KeyExpiry`] stands before the value.
pub const ITEM_FLAG_EXPIRY: u8 = 0x02;
/// A [`Standing`] stands before the value, behind the [`KeyExpiry`] if there is one.
pub const ITEM_FLAG_STANDING: u8 = 0x04;
/// The condition of SET or DEL failed, and the value is the one that is there.
pub const ITEM_FLAG_SHOWN: u8 = 0x08;
/// The request was executed before, and this is the answer that it got.
pub const ITEM_FLAG_REPLAYED: u8 = 0x10;
/// The write was executed now, and its node has begun to write the partition behind the time of the
/// token: an earlier try, of which this node knows nothing, may have been acknowledged. Only for a
/// client that wants [`FEATURE_BEGAN`](crate::hello::FEATURE_BEGAN).
pub const ITEM_FLAG_BEGAN: u8 = 0x20;
/// Where the level stands in an item.
pub const ITEM_LEVEL_AT: usize = 3;
/// Where the flags stand in an item.
pub const ITEM_FLAGS_AT: usize = 7;
const EXPIRY_BYTES: usize = 16;
const STANDING_BYTES: usize = 24;
/// Bytes of a reply item without its value and the padding, at most.
pub const REPLY_HEAD_BYTES_MAX: usize = REPLY_ITEM_BYTES + EXPIRY_BYTES + STANDING_BYTES;

/// When a key expires, for a client that asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyExpiry {
    /// Unix milliseconds from which on the key is gone; 0 is never.
    pub expiry_ms: u64,
    /// The shard's time, which the expiry is compared with.
    pub time_ms: u64,
}

impl KeyExpiry {
    /// Milliseconds until the key expires. `None` if it never does.
    #[must_use]
    pub fn left_ms(&self) -> Option<u64> {
        (self.expiry_ms > 0).then(|| self.expiry_ms.saturating_sub(self.time_ms))
    }
}

/// How new the answer to a GET is that members may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The answer was the state of the primary at most so many microseconds ago. 0 if the primary
    /// answers, `u64::MAX` if the age is not known.
    pub age_us: u64,
    /// The node has all records of the partition up to this version.
    pub through: Version,
}

/// The fixed part of a reply item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// The outcome.
    pub status: Status,
    /// The author's code of the failed instruction.
    pub reason: u8,
    /// The level that the records behind the reply have reached.
    pub level: AckLevel,
    /// Number of the request's item that this item answers.
    pub item: u16,
    /// The failed instruction, or [`NO_INSTRUCTION`].
    pub instruction: u8,
    /// `ITEM_FLAG_*`.
    pub flags: u8,
    /// The version of the change. If nothing has changed: the first key's, sequence 0 if it has no
    /// value.
    pub version: Version,
}

impl ReplyHead {
    /// An outcome without a failed instruction and without flags.
    #[inline]
    #[must_use]
    pub fn new(status: Status, item: u16, level: AckLevel, version: Version) -> Self {
        ReplyHead {
            status,
            reason: 0,
            level,
            item,
            instruction: NO_INSTRUCTION,
            flags: 0,
            version,
        }
    }

    /// Appends a whole item.
    #[inline(always)]
    pub fn write(&self, out: &mut Vec<u8>, value: &[u8]) {
        out.extend_from_slice(&self.encode(value.len()));
        push_padded(out, value);
    }

    /// Appends a whole item with an expiry, a standing, or both before the value.
    #[cold]
    pub fn write_extended(
        self,
        out: &mut Vec<u8>,
        expiry: Option<KeyExpiry>,
        standing: Option<Standing>,
        value: &[u8],
    ) {
        self.write_head(out, expiry, standing, value.len());
        push_padded(out, value);
    }

    /// As [`ReplyHead::write_extended`], but the value is shared: it stays in `range` of `block`.
    pub fn share(
        self,
        out: &mut Pieces,
        expiry: Option<KeyExpiry>,
        standing: Option<Standing>,
        block: Arc<[u8]>,
        range: Range<usize>,
    ) {
        self.write_head(out.written(), expiry, standing, range.len());
        out.share(block, range);
    }

    /// Appends the head, expiry and standing of an item with a value of `value_len` bytes.
    fn write_head(
        mut self,
        out: &mut Vec<u8>,
        expiry: Option<KeyExpiry>,
        standing: Option<Standing>,
        value_len: usize,
    ) {
        self.flags |= expiry.map_or(0, |_| ITEM_FLAG_EXPIRY);
        self.flags |= standing.map_or(0, |_| ITEM_FLAG_STANDING);
        out.extend_from_slice(&self.encode(value_len));
        if let Some(expiry) = expiry {
            out.extend_from_slice(&expiry.expiry_ms.to_le_bytes());
            out.extend_from_slice(&expiry.time_ms.to_le_bytes());
        }
        if let Some(standing) = standing {
            out.extend_from_slice(&standing.age_us.to_le_bytes());
            out.extend_from_slice(&u64::from(standing.through.epoch).to_le_bytes());
            out.extend_from_slice(&standing.through.sequence.to_le_bytes());
        }
    }

    /// Appends a whole item whose value is a message.
    #[cold]
    pub fn write_message(&self, out: &mut Vec<u8>, message: &dyn Display) {
        let from = out.len();
        out.resize(from + REPLY_ITEM_BYTES, 0);
        write!(out, "{message}").expect("writing to memory does not fail");
        self.patch(out, from);
    }

    /// Completes an item that begins at `from` with `REPLY_ITEM_BYTES` placeholder bytes. The value
    /// follows them and reaches to the end of `out`.
    #[inline]
    pub fn patch(&self, out: &mut Vec<u8>, from: usize) {
        let len = out.len() - from - REPLY_ITEM_BYTES;
        out.resize(from + REPLY_ITEM_BYTES + padded(len), 0);
        out[from..from + REPLY_ITEM_BYTES].copy_from_slice(&self.encode(len));
    }

    #[inline]
    fn encode(&self, value_len: usize) -> [u8; REPLY_ITEM_BYTES] {
        let mut bytes = [0; REPLY_ITEM_BYTES];
        bytes[0..2].copy_from_slice(&self.status.code().to_le_bytes());
        bytes[2] = self.reason;
        bytes[3] = self.level.code();
        bytes[4..6].copy_from_slice(&self.item.to_le_bytes());
        bytes[6] = self.instruction;
        bytes[7] = self.flags;
        bytes[8..12].copy_from_slice(
            &u32::try_from(value_len)
                .expect("values have at most 16 MiB")
                .to_le_bytes(),
        );
        bytes[12..16].copy_from_slice(&self.version.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.version.sequence.to_le_bytes());
        bytes
    }
}

/// A head that many reply items share. The items differ only in item number, value length and
/// sequence of the version.
#[derive(Clone, Copy, Debug)]
pub struct HeadTemplate([u8; REPLY_ITEM_BYTES]);

impl HeadTemplate {
    /// A template of this head.
    #[must_use]
    pub fn new(head: &ReplyHead) -> Self {
        HeadTemplate(head.encode(0))
    }

    /// Appends a whole item whose value is one number.
    #[inline]
    pub fn write_number(&self, out: &mut Vec<u8>, item: u16, sequence: u64, number: u64) {
        const VALUE_BYTES: usize = size_of::<u64>();
        let mut bytes = [0; REPLY_ITEM_BYTES + VALUE_BYTES];
        bytes[..REPLY_ITEM_BYTES].copy_from_slice(&self.0);
        bytes[4..6].copy_from_slice(&item.to_le_bytes());
        bytes[8..12].copy_from_slice(&8u32.to_le_bytes());
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        bytes[REPLY_ITEM_BYTES..].copy_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Appends a head. The caller appends the value, a multiple of 8 bytes, and calls
    /// [`HeadTemplate::end`].
    #[inline]
    pub fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    /// Completes the item that begins at `from`.
    #[inline]
    pub fn end(&self, out: &mut [u8], from: usize, item: u16, sequence: u64) {
        let (head, value) = out[from..]
            .split_first_chunk_mut::<REPLY_ITEM_BYTES>()
            .expect("the head was begun");
        assert!(value.len().is_multiple_of(8));
        let value_len = u32::try_from(value.len()).expect("values have at most 16 MiB");
        head[4..6].copy_from_slice(&item.to_le_bytes());
        head[8..12].copy_from_slice(&value_len.to_le_bytes());
        head[16..24].copy_from_slice(&sequence.to_le_bytes());
    }
}

/// Appends a copy of the reply item at `range` of `out` as the answer to item number `item`.
#[inline]
pub fn write_again(out: &mut Vec<u8>, range: Range<usize>, item: u16) {
    let from = out.len();
    out.extend_from_within(range);
    out[from + 4..from + 6].copy_from_slice(&item.to_le_bytes());
}

/// Writes one BATCH reply frame at the end of [`Pieces`], without an allocation of its own.
#[derive(Debug)]
pub struct BatchReply {
    start: End,
    /// Bytes before the body, and bytes of the body up to the end of the last item. Slices count.
    before: usize,
    body: usize,
    request_id: u64,
    medium: Medium,
    retry_after_ms: u16,
    batch: BatchWriter,
}

impl BatchReply {
    /// Starts a frame of at most `items_max` items.
    #[inline]
    #[must_use]
    pub fn begin(out: &mut Pieces, request_id: u64, items_max: usize) -> Self {
        let start = out.end();
        out.written().resize(start.bytes + HEADER_BYTES, 0);
        let before = out.len();
        let batch = BatchWriter::begin(out.written(), items_max);
        BatchReply {
            start,
            before,
            body: out.len() - before,
            request_id,
            medium: Medium::Wire,
            retry_after_ms: 0,
            batch,
        }
    }

    /// Sets the medium of the frame. A new reply is for the wire.
    #[inline]
    #[must_use]
    pub fn over(self, medium: Medium) -> Self {
        BatchReply { medium, ..self }
    }

    /// Tells that a new try of the items that are BUSY is likely to find room after so many
    /// milliseconds, from 1 to 1000. A new reply tells 0: none of its items is BUSY.
    #[inline]
    #[must_use]
    pub fn retry_after(self, retry_after_ms: u16) -> Self {
        BatchReply {
            retry_after_ms,
            ..self
        }
    }

    /// Items so far.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether there is no item yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the frame so far, the place of its index included.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEADER_BYTES + self.body
    }

    /// Ends an item: all bytes behind the item before become the next item. [`ReplyHead::write`],
    /// [`ReplyHead::share`] and [`ReplyHead::patch`] write such bytes.
    #[inline(always)]
    pub fn end_item(&mut self, out: &mut Pieces) {
        let offset = self.body;
        self.body = out.len() - self.before;
        self.batch
            .put_item(out.written(), offset, self.body - offset);
    }

    /// Adds an item that is encoded already, such as one from another core: the next `len` bytes of
    /// `items`.
    pub fn raw(&mut self, out: &mut Pieces, items: &mut PiecesReader<'_>, len: usize) {
        items.take(len, out);
        self.end_item(out);
    }

    /// Ends the frame and returns `true`. A frame without items is removed from `out`, and `false`
    /// is returned.
    #[inline]
    pub fn finish(self, out: &mut Pieces, shard: u16, more: bool, forwarded: bool) -> bool {
        let start = self.start;
        let before = out.end().bytes;
        if self.batch.finish(out.written()) == 0 {
            assert!(out.end().sliced == start.sliced, "a slice is of an item");
            out.written().truncate(start.bytes);
            return false;
        }
        out.close_up(start, before - out.end().bytes);
        let mut header = Header::reply(Opcode::Batch as u8, self.request_id, Status::Ok, shard);
        header.deadline_or_retry_ms = self.retry_after_ms;
        header.flags |=
            if more { FLAG_MORE } else { 0 } | if forwarded { FLAG_FORWARDED } else { 0 };
        let len = out.len() - start.bytes - start.sliced;
        let header = finished_header(header, len, self.medium, || {
            out.crc_behind(start, HEADER_BYTES)
        });
        out.written()[start.bytes..][..HEADER_BYTES].copy_from_slice(&header);
        true
    }
}

/// Appends the reply to a PING: the same body with the same checksum, which was verified when the
/// request arrived.
#[inline]
pub fn write_ping_reply(out: &mut Vec<u8>, request: &Header, body: &[u8], shard: u16) {
    let mut header = Header::reply(request.opcode, request.request_id, Status::Ok, shard);
    (header.len, header.body_crc) = (request.len, request.body_crc);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(body);
}

/// Appends the reply to a frame that was not executed. The body of the reply is a message.
/// `retry_after_ms` is 1 to 1000 if the status is BUSY, otherwise 0.
#[cold]
pub fn write_error(
    out: &mut Vec<u8>,
    request: Option<&Header>,
    status: Status,
    retry_after_ms: u16,
    shard: u16,
    message: &dyn Display,
) {
    let (opcode, request_id) = request.map_or((0, 0), |header| (header.opcode, header.request_id));
    let mut header = Header::reply(opcode, request_id, status, shard);
    header.deadline_or_retry_ms = retry_after_ms;
    write_text(out, header, message);
}

/// Appends the reply to INFO.
pub fn write_info_reply(out: &mut Vec<u8>, request_id: u64, shard: u16, text: &str) {
    write_text(
        out,
        Header::reply(Opcode::Info as u8, request_id, Status::Ok, shard),
        &text,
    );
}

/// A text body: its length in four bytes, four zeros, the UTF-8 bytes, padding.
fn write_text(out: &mut Vec<u8>, header: Header, text: &dyn Display) {
    let mut body = vec![0; 8];
    write!(body, "{text}").expect("writing to memory does not fail");
    let len = u32::try_from(body.len() - 8).expect("texts are short");
    body[..4].copy_from_slice(&len.to_le_bytes());
    write_frame(out, header, &body);
}

/// The text of an error or INFO reply.
#[must_use]
pub fn text_of(body: &[u8]) -> Option<&str> {
    let len = read_u32(body.get(..8)?, 0) as usize;
    std::str::from_utf8(body.get(8..)?.get(..len)?).ok()
}

/// A reply item as a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyItem<'a> {
    /// The fixed part.
    pub head: ReplyHead,
    /// The expiry, if the GET asked for it.
    pub expiry: Option<KeyExpiry>,
    /// How new the answer is, if the GET let members answer.
    pub standing: Option<Standing>,
    /// Value, field values or message.
    pub value: &'a [u8],
}

impl<'a> ReplyItem<'a> {
    /// Reads one item.
    ///
    /// # Errors
    /// The [`Refusal`] that names the field.
    #[inline]
    pub fn read(item: &'a [u8]) -> Result<Self, Refusal> {
        let len = item.len();
        let head = item
            .first_chunk::<REPLY_ITEM_BYTES>()
            .ok_or(Refusal::ItemLength {
                len,
                needed: REPLY_ITEM_BYTES as u64,
            })?;
        // The length comes from the wire and has no bound yet. In 64 bits the sum cannot overflow.
        let expiry_end = match head[7] & ITEM_FLAG_EXPIRY {
            0 => REPLY_ITEM_BYTES,
            _ => REPLY_ITEM_BYTES + EXPIRY_BYTES,
        };
        let start = match head[7] & ITEM_FLAG_STANDING {
            0 => expiry_end,
            _ => expiry_end + STANDING_BYTES,
        };
        let needed = start as u64 + u64::from(read_u32(head, 8)).next_multiple_of(8);
        if len as u64 != needed {
            return Err(Refusal::ItemLength { len, needed });
        }
        if start > expiry_end && read_u32(item, expiry_end + 12) != 0 {
            return Err(Refusal::Reserved {
                name: "the word behind the epoch",
                found: read_u32(item, expiry_end + 12).into(),
            });
        }
        let value_len = read_u32(head, 8) as usize;
        let status =
            Status::from_code(read_u16(head, 0)).ok_or(Refusal::Status(read_u16(head, 0)))?;
        let head = ReplyHead {
            status,
            reason: head[2],
            level: AckLevel::from_code(head[3]).ok_or(Refusal::Level(head[3]))?,
            item: read_u16(head, 4),
            instruction: head[6],
            flags: head[7],
            version: Version {
                epoch: read_u32(head, 12),
                sequence: read_u64(head, 16),
            },
        };
        Ok(ReplyItem {
            head,
            expiry: (expiry_end > REPLY_ITEM_BYTES).then(|| KeyExpiry {
                expiry_ms: read_u64(item, REPLY_ITEM_BYTES),
                time_ms: read_u64(item, REPLY_ITEM_BYTES + 8),
            }),
            standing: (start > expiry_end).then(|| Standing {
                age_us: read_u64(item, expiry_end),
                through: Version {
                    epoch: read_u32(item, expiry_end + 8),
                    sequence: read_u64(item, expiry_end + 16),
                },
            }),
            value: &item[start..start + value_len],
        })
    }

    /// Field value `number` of an UPDATE_IF reply.
    #[must_use]
    pub fn field(&self, number: usize) -> Option<u64> {
        self.value
            .as_chunks::<8>()
            .0
            .get(number)
            .map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Whether a reply item begins as one of an item that changed nothing because an instruction or a
/// condition did not hold, and that shows what was there.
#[inline]
#[must_use]
pub fn is_denial(item: &[u8]) -> bool {
    item.first_chunk::<2>().is_some_and(|code| {
        let code = u16::from_le_bytes(*code);
        [
            Status::GuardFailed,
            Status::NotFound,
            Status::VersionMismatch,
        ]
        .iter()
        .any(|status| status.code() == code)
    })
}

/// A reply item that tells a value, or that there is none, and nothing more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainReply<'a> {
    /// The item that it answers.
    pub(crate) item: u16,
    /// OK, otherwise NOT_FOUND.
    pub(crate) is_ok: bool,
    pub(crate) value: &'a [u8],
}

impl<'a> PlainReply<'a> {
    /// The reply item that these bytes are. `None` if it tells something else or more, and if it is
    /// bad: [`ReplyItem::read`] tells how.
    #[inline]
    pub(crate) fn read(item: &'a [u8]) -> Option<Self> {
        /// Status and flags.
        const JUDGED_BITS: u64 = 0xFF00_0000_0000_FFFF;
        const OK: u64 = Status::Ok.code() as u64;
        const NOT_FOUND: u64 = Status::NotFound.code() as u64;
        let (head, value) = item.split_first_chunk::<REPLY_ITEM_BYTES>()?;
        let is_ok = match read_u64(head, 0) & JUDGED_BITS {
            OK => true,
            NOT_FOUND => false,
            _ => return None,
        };
        let len = read_u32(head, 8) as usize;
        let is_whole = value.len() == padded(len);
        is_whole.then(|| PlainReply {
            item: read_u16(head, 4),
            is_ok,
            value: &value[..len],
        })
    }

    /// The value if it is one number.
    #[inline]
    pub(crate) fn number(&self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_le_bytes)
    }
}

/// The items of a BATCH reply.
///
/// # Errors
/// [`Refusal`] if the body is not a batch.
pub fn read_batch_reply(body: &[u8]) -> Result<Batch<'_>, Refusal> {
    Batch::read(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of values of these lengths behind other bytes. A value is shared if `shared` has its
    /// bit.
    fn frame(lens: &[usize], shared: usize, items_max: usize, medium: Medium) -> Pieces {
        let mut out = Pieces::from(b"bytes before".to_vec());
        out.share(vec![1; 9].into(), 0..9);
        let mut reply = BatchReply::begin(&mut out, 7, items_max).over(medium);
        for (number, &len) in (0..).zip(lens) {
            let head = ReplyHead::new(Status::Ok, number, AckLevel::Disk, Version::default());
            let expiry = (number % 2 == 1).then_some(KeyExpiry {
                expiry_ms: 5,
                time_ms: 3,
            });
            let block: Vec<u8> = (0..len + 30).map(|at| at.to_le_bytes()[0]).collect();
            let range = 20..20 + len;
            match shared >> number & 1 {
                1 => head.share(&mut out, expiry, None, block.into(), range),
                _ => head.write_extended(out.written(), expiry, None, &block[range]),
            }
            reply.end_item(&mut out);
        }
        assert_eq!(reply.finish(&mut out, 3, true, false), !lens.is_empty());
        out
    }

    #[test]
    fn a_frame_with_values_that_are_shared_is_the_frame_with_values_that_are_copied() {
        let lens = [40, 3, 0, 17, 800];
        for medium in [Medium::Wire, Medium::Memory] {
            for count in 0..=lens.len() {
                for items_max in [count.max(1), 9] {
                    let lens = &lens[..count];
                    let flat = frame(lens, 0, items_max, medium).into_bytes();
                    for shared in 0..1 << count {
                        let pieces = frame(lens, shared, items_max, medium);
                        let in_pieces = pieces.runs(0).count() > 3;
                        assert!(!in_pieces || shared > 0);
                        assert_eq!(pieces.len(), flat.len());
                        assert_eq!(pieces.into_bytes(), flat, "{count} items, {shared:b}");
                    }
                }
            }
        }
    }
}

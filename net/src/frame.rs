//! The frame header, the same in both directions.

use crate::level::AckLevel;
use crate::refusal::Refusal;
use crate::slot::SLOTS;
use crate::status::Status;

/// Bytes of a frame before its body.
pub const HEADER_BYTES: usize = 32;
/// Byte 4 of every frame.
pub const MAGIC: u8 = 0xE7;
/// The protocol version.
pub const VERSION: u8 = 1;
/// No slot hint.
pub const SLOT_HINT_NONE: u16 = 0xFFFF;

/// The frame is a reply.
pub const FLAG_REPLY: u8 = 0x01;
/// Further reply frames for the request id follow.
pub const FLAG_MORE: u8 = 0x04;
/// Another core than the one whose port took the request has answered.
pub const FLAG_FORWARDED: u8 = 0x08;

/// What a frame passes through on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// A medium that may change bytes: checksums are written and compared.
    #[default]
    Wire,
    /// The memory of one process: checksums are zeros, and nobody compares them.
    Memory,
}

/// What a frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Limits, features and slot map; the first frame of a connection.
    Hello = 0x01,
    /// The body comes back unchanged.
    Ping = 0x02,
    /// What the server is doing, as text.
    Info = 0x03,
    /// Data operations, each with a result of its own.
    Batch = 0x10,
    /// A message of a login.
    Auth = 0x13,
}

impl Opcode {
    /// The opcode with this number.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0x01 => Some(Opcode::Hello),
            0x02 => Some(Opcode::Ping),
            0x03 => Some(Opcode::Info),
            0x10 => Some(Opcode::Batch),
            0x13 => Some(Opcode::Auth),
            _ => None,
        }
    }
}

/// The fields of a header, not judged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole frame.
    pub len: u32,
    /// What it asks for.
    pub opcode: u8,
    /// `FLAG_*`.
    pub flags: u8,
    /// Chosen by the client, returned in the reply.
    pub request_id: u64,
    /// Request: ack level in the low byte, class in the high byte. Reply: status.
    pub level_or_status: u16,
    /// Request: slot hint. Reply: the shard that served.
    pub slot_or_shard: u16,
    /// Low bits of the topology version; 0 now.
    pub topology: u16,
    /// Request: deadline in milliseconds, 0 none. Reply: retry after so many milliseconds, 0 if
    /// nothing in it is BUSY.
    pub deadline_or_retry_ms: u16,
    /// CRC-32 of the body.
    pub body_crc: u32,
}

impl Header {
    /// A request's header; length and CRC are filled in when the frame is finished.
    #[must_use]
    pub fn request(opcode: Opcode, request_id: u64, level: AckLevel, deadline_ms: u16) -> Self {
        Header {
            len: 32,
            opcode: opcode as u8,
            flags: 0,
            request_id,
            level_or_status: u16::from(level.code()),
            slot_or_shard: SLOT_HINT_NONE,
            topology: 0,
            deadline_or_retry_ms: deadline_ms,
            body_crc: 0,
        }
    }

    /// A reply's header; length and CRC are filled in when the frame is finished.
    #[must_use]
    pub fn reply(opcode: u8, request_id: u64, status: Status, shard: u16) -> Self {
        Header {
            len: 32,
            opcode,
            flags: FLAG_REPLY,
            request_id,
            level_or_status: status.code(),
            slot_or_shard: shard,
            topology: 0,
            deadline_or_retry_ms: 0,
            body_crc: 0,
        }
    }

    /// What a request's header asks for, and how durable.
    ///
    /// # Errors
    /// The first [`Refusal`] found: an unknown opcode or level, or a reserved bit that is set.
    #[inline]
    pub fn read_request(&self) -> Result<(Opcode, AckLevel), Refusal> {
        let opcode = Opcode::from_code(self.opcode).ok_or(Refusal::Opcode(self.opcode))?;
        if self.flags != 0 {
            return Err(Refusal::HeaderFlags(self.flags));
        }
        let [level, class] = self.level_or_status.to_le_bytes();
        let reserved = |name, found| Err(Refusal::Reserved { name, found });
        if class != 0 {
            return reserved("the class in a header", class.into());
        }
        if self.topology != 0 {
            return reserved("the topology version in a header", self.topology.into());
        }
        if self.slot_or_shard >= SLOTS && self.slot_or_shard != SLOT_HINT_NONE {
            return Err(Refusal::SlotHint(self.slot_or_shard));
        }
        let level = AckLevel::from_code(level).ok_or(Refusal::Level(level))?;
        Ok((opcode, level))
    }

    /// The header as bytes, with its CRC.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = self.encode_unchecked();
        let crc = crc32fast::hash(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[inline]
    fn encode_unchecked(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4] = MAGIC;
        bytes[5] = VERSION;
        bytes[6] = self.opcode;
        bytes[7] = self.flags;
        bytes[8..16].copy_from_slice(&self.request_id.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.level_or_status.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.slot_or_shard.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.topology.to_le_bytes());
        bytes[22..24].copy_from_slice(&self.deadline_or_retry_ms.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes
    }

    /// Takes the fields apart and checks nothing. It is for bytes that never left the process, or
    /// whose CRC was compared.
    #[inline]
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Header {
            len: u32_at(0),
            opcode: bytes[6],
            flags: bytes[7],
            request_id: u64::from(u32_at(8)) | (u64::from(u32_at(12)) << 32),
            level_or_status: u16_at(16),
            slot_or_shard: u16_at(18),
            topology: u16_at(20),
            deadline_or_retry_ms: u16_at(22),
            body_crc: u32_at(24),
        }
    }
}

/// Writes length, checksums and header over the placeholder at `start`; the body stands behind it.
///
/// # Panics
/// If the frame is not a multiple of 8 bytes or is over 4 GiB.
#[inline]
pub(crate) fn finish_frame(out: &mut [u8], start: usize, header: Header, medium: Medium) {
    let frame = &mut out[start..];
    let len = frame.len();
    let (head, body) = frame
        .split_first_chunk_mut::<HEADER_BYTES>()
        .expect("a frame has a header");
    *head = finished_header(header, len, medium, || crc32fast::hash(body));
}

/// The header of a whole frame of `len` bytes, whose body has that CRC.
///
/// # Panics
/// If the frame is not a multiple of 8 bytes or is over 4 GiB.
#[inline]
pub(crate) fn finished_header(
    mut header: Header,
    len: usize,
    medium: Medium,
    body_crc: impl FnOnce() -> u32,
) -> [u8; HEADER_BYTES] {
    assert!(len.is_multiple_of(8) && len >= HEADER_BYTES);
    header.len = u32::try_from(len).expect("a frame is bounded by the negotiated limit");
    match medium {
        Medium::Wire => {
            header.body_crc = body_crc();
            header.encode()
        }
        Medium::Memory => header.encode_unchecked(),
    }
}

/// Appends a whole frame with this body, padded with zeros to a multiple of 8.
pub fn write_frame(out: &mut Vec<u8>, header: Header, body: &[u8]) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    out.extend_from_slice(body);
    let len = HEADER_BYTES + body.len().next_multiple_of(8);
    out.resize(start + len, 0);
    finish_frame(out, start, header, Medium::Wire);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_behind_bytes_of_any_length() {
        // A value that a reply shares stands elsewhere, and only what fills it up stands here.
        for before in 0..17 {
            for body_len in 0..17 {
                let mut out = vec![0xEE; before];
                let header = Header::request(Opcode::Ping, 7, AckLevel::Disk, 0);
                write_frame(&mut out, header, &vec![1; body_len]);
                let frame = &out[before..];
                assert_eq!(frame.len(), HEADER_BYTES + body_len.next_multiple_of(8));
                let head = frame.first_chunk().expect("a header");
                let len = usize::try_from(Header::decode(head).len).expect("short");
                assert_eq!(len, frame.len(), "{body_len} behind {before}");
            }
        }
    }
}

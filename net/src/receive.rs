//! Bytes in, frames out: the receiving state of one connection, over a buffer that the caller owns.

use crate::frame::{HEADER_BYTES, Header, MAGIC, Medium, VERSION};
use crate::refusal::Refusal;

/// What stands at the start of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// Not a whole frame yet. `frame_bytes` is the length of the frame, or of a header while the
    /// header is not whole.
    Incomplete {
        /// Bytes that must stand in the buffer before it is worth asking again.
        frame_bytes: usize,
    },
    /// A whole frame whose checksums are good.
    Frame {
        /// Its header.
        header: Header,
        /// Its body.
        body: &'a [u8],
        /// Bytes to drop from the front of the buffer.
        consumed: usize,
    },
    /// Bytes that are no frame to execute. The server answers with the refusal.
    Refused {
        /// The header, if its checksum is good.
        header: Option<Header>,
        /// Why.
        refusal: Refusal,
        /// Bytes to drop from the front of the buffer.
        consumed: usize,
        /// The end of the frame is not known, so nothing further can be read from the connection.
        is_fatal: bool,
    },
    /// Bytes of a frame that was refused before. They are dropped without an answer.
    Skipped {
        /// Bytes to drop from the front of the buffer.
        consumed: usize,
    },
}

/// Whether bytes of a peer begin as a record of TLS does. No frame begins so: its length would be
/// no multiple of 8.
#[must_use]
pub fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, 0x00..=0x04, ..])
}

/// The receiving state of one connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    frame_bytes_max: u32,
    medium: Medium,
    /// Bytes of a refused frame that are still to arrive.
    skip_bytes: usize,
}

impl Receiver {
    /// A receiver that accepts frames of at most `frame_bytes_max`.
    #[must_use]
    pub fn new(frame_bytes_max: u32) -> Self {
        Receiver {
            frame_bytes_max,
            medium: Medium::Wire,
            skip_bytes: 0,
        }
    }

    /// Sets the medium that the bytes come through. A new receiver expects the wire.
    pub fn set_medium(&mut self, medium: Medium) {
        self.medium = medium;
    }

    /// Changes the limit to the one that HELLO has told.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: u32) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Whether bytes of a refused frame are still to arrive.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.skip_bytes > 0
    }

    /// Gives up the incomplete frame at the start of `bytes`: the rest of the frame is dropped as
    /// it arrives. Returns the header and how many bytes to drop now. `None` while the header is
    /// not whole.
    pub fn give_up(&mut self, bytes: &[u8]) -> Option<(Header, usize)> {
        let header = Header::decode(bytes.first_chunk::<HEADER_BYTES>()?);
        let consumed = bytes.len().min(header.len as usize);
        self.skip_bytes = header.len as usize - consumed;
        Some((header, consumed))
    }

    /// The header of the frame at the start of `bytes`, if the header is whole and its checksum is
    /// good. The body need not be there yet.
    #[must_use]
    pub fn header(&self, bytes: &[u8]) -> Option<Header> {
        let head = bytes.first_chunk::<HEADER_BYTES>()?;
        let found = u32::from_le_bytes([head[28], head[29], head[30], head[31]]);
        let is_good = self.medium == Medium::Memory || found == crc32fast::hash(&head[..28]);
        let is_frame = self.skip_bytes == 0 && head[4] == MAGIC && head[5] == VERSION;
        (is_good && is_frame).then(|| Header::decode(head))
    }

    /// Reads the frame at the start of `bytes`. The caller drops the consumed bytes and calls
    /// again, until the result is [`Received::Incomplete`].
    #[inline]
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Received<'a> {
        if self.skip_bytes > 0 && !bytes.is_empty() {
            let consumed = self.skip_bytes.min(bytes.len());
            self.skip_bytes -= consumed;
            return Received::Skipped { consumed };
        }
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Received::Incomplete {
                frame_bytes: HEADER_BYTES,
            };
        };
        let header = Header::decode(head);
        let fatal = |refusal| Received::Refused {
            header: None,
            refusal,
            consumed: bytes.len(),
            is_fatal: true,
        };
        if head[4] != MAGIC {
            return fatal(Refusal::Magic(head[4]));
        }
        if self.medium == Medium::Wire {
            let found = u32::from_le_bytes([head[28], head[29], head[30], head[31]]);
            let computed = crc32fast::hash(&head[..28]);
            if found != computed {
                return fatal(Refusal::HeaderCrc { found, computed });
            }
        }
        if head[5] != VERSION {
            return fatal(Refusal::Version(head[5]));
        }
        if header.len < 32 || !header.len.is_multiple_of(8) {
            return fatal(Refusal::FrameLength(header.len));
        }
        let frame_bytes = header.len as usize;
        if header.len > self.frame_bytes_max {
            let consumed = frame_bytes.min(bytes.len());
            self.skip_bytes = frame_bytes - consumed;
            let refusal = Refusal::FrameTooLarge {
                len: header.len,
                max: self.frame_bytes_max,
            };
            return Received::Refused {
                header: Some(header),
                refusal,
                consumed,
                is_fatal: false,
            };
        }
        let Some(body) = bytes.get(HEADER_BYTES..frame_bytes) else {
            return Received::Incomplete { frame_bytes };
        };
        if self.medium == Medium::Wire {
            let computed = crc32fast::hash(body);
            if computed != header.body_crc {
                let refusal = Refusal::BodyCrc {
                    found: header.body_crc,
                    computed,
                };
                return Received::Refused {
                    header: Some(header),
                    refusal,
                    consumed: frame_bytes,
                    is_fatal: false,
                };
            }
        }
        Received::Frame {
            header,
            body,
            consumed: frame_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::AckLevel;
    use crate::request::BatchRequest;

    #[test]
    fn a_frame_that_is_given_up_is_passed_over_and_the_next_one_is_read() {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 7, AckLevel::Disk, 0, 1);
        batch.del(&mut frame, b"key", crate::request::Condition::Always);
        batch.finish(&mut frame);
        let mut receiver = Receiver::new(1024);
        assert_eq!(receiver.give_up(&frame[..31]), None);
        for cut in 32..frame.len() {
            let part = &frame[..cut];
            let whole = frame.len();
            assert_eq!(
                receiver.next(part),
                Received::Incomplete { frame_bytes: whole }
            );
            let (header, consumed) = receiver.give_up(part).expect("the header is whole");
            assert_eq!((header.request_id, consumed), (7, cut));
            let rest = [&frame[cut..], &frame[..]].concat();
            let left = whole - cut;
            assert_eq!(receiver.next(&rest), Received::Skipped { consumed: left });
            let next = receiver.next(&rest[left..]);
            assert!(matches!(next, Received::Frame { .. }), "{next:?}");
        }
    }

    #[test]
    fn a_frame_without_checksums_passes_through_memory_and_never_through_a_wire() {
        let mut frame = Vec::new();
        let mut batch =
            BatchRequest::begin(&mut frame, 7, AckLevel::Disk, 0, 1).over(Medium::Memory);
        batch.del(&mut frame, b"key", crate::request::Condition::Always);
        batch.finish(&mut frame);
        let mut wire = Receiver::new(1024);
        assert!(matches!(
            wire.next(&frame),
            Received::Refused {
                refusal: Refusal::HeaderCrc { .. },
                is_fatal: true,
                ..
            }
        ));
        let mut memory = Receiver::new(1024);
        memory.set_medium(Medium::Memory);
        let Received::Frame {
            header, consumed, ..
        } = memory.next(&frame)
        else {
            panic!("it is whole");
        };
        assert_eq!((header.request_id, consumed), (7, frame.len()));
        // Everything but the checksums is still checked.
        frame[4] ^= 1;
        assert!(matches!(memory.next(&frame), Received::Refused { .. }));
    }
}

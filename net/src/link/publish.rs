//! PUBLISH: a message of a channel for the subscribers of another node. It has a connection of its
//! own.

use crate::batch::{padded, read_u16, read_u32};
use crate::link::body::{at_most, length, zero};
use crate::link::fault::LinkFault;
use crate::resp::CHANNEL_BYTES_MAX;

/// The shard that both sides of a connection for messages name: no node has it.
pub const PUBLISH_SHARD: u16 = u16::MAX - 1;

const HEAD_BYTES: usize = 8;
/// The one kind that leaves its node: a channel of PUBLISH.
const CHANNEL: u8 = 1;

/// PUBLISH: what a client of its sender has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Where it was published: at most [`CHANNEL_BYTES_MAX`] bytes.
    pub channel: &'a [u8],
    /// What was published.
    pub payload: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Bytes of its body.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        HEAD_BYTES + padded(self.channel.len() + self.payload.len())
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let (head, rest) = body
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(length("PUBLISH", body, HEAD_BYTES))?;
        if head[0] != CHANNEL {
            return Err(LinkFault::Field {
                name: "the kind of a channel",
                found: head[0].into(),
                max: CHANNEL.into(),
            });
        }
        zero(&head[1..2], "what stands behind the kind of a channel")?;
        let (channel, payload) = (read_u16(head, 2), read_u32(head, 4) as usize);
        let channel_bytes_max = CHANNEL_BYTES_MAX as u64;
        at_most("the length of a channel", channel.into(), channel_bytes_max)?;
        let channel = usize::from(channel);
        // No sum of these overflows: the second one has 32 bits.
        let end = channel + payload;
        let needed = HEAD_BYTES + padded(end);
        if body.len() != needed {
            return Err(length("PUBLISH", body, needed));
        }
        zero(&rest[end..], "what stands behind a payload")?;
        Ok(Publish {
            channel: &rest[..channel],
            payload: &rest[channel..end],
        })
    }

    /// # Panics
    /// If the channel or the payload is longer than its length can say.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let channel = u16::try_from(self.channel.len()).expect("a name of a channel");
        let payload = u32::try_from(self.payload.len()).expect("a payload");
        out.extend_from_slice(&[CHANNEL, 0]);
        out.extend_from_slice(&channel.to_le_bytes());
        out.extend_from_slice(&payload.to_le_bytes());
        out.extend_from_slice(self.channel);
        out.extend_from_slice(self.payload);
        let behind = self.body_bytes() - HEAD_BYTES - self.channel.len() - self.payload.len();
        out.extend_from_slice(&[0; 8][..behind]);
    }
}

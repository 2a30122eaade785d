//! HEARTBEAT and CONFIRM: a node says which partitions it writes, and another one lends it the
//! right to. They have a connection of their own: `shard/FAILOVER.md`.

use crate::batch::{read_u16, read_u32, read_u64};
use crate::link::body::{at_most, length, zero};
use crate::link::fault::LinkFault;
use crate::link::limits::{GENERATION_MAX, LINK_PARTITIONS};
use crate::link::partition_set::PartitionSet;

/// The shard that both sides of a connection for heartbeats name: no node has it.
pub const HEARTBEAT_SHARD: u16 = u16::MAX;
/// Bytes of a frame there, at most: a HEARTBEAT of all partitions.
pub const HEARTBEAT_FRAME_BYTES_MAX: u32 = 48 + 32 + 256 * 8;

const HEAD_BYTES: usize = 32;
const CLAIM_BYTES: usize = 8;
const CONFIRM_BYTES: usize = 48;

/// HEARTBEAT: what its sender has of the partitions that both nodes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// Its number: it rises with each one of this start of the sender to this reader.
    pub number: u64,
    /// The newest heartbeat of the reader that the sender has read; 0 if there is none.
    pub last_read: u64,
    /// The number of the plan in force at the sender.
    pub plan: u64,
    /// See [`Claim`].
    pub claims: Claims<'a>,
}

/// A partition that the sender of a heartbeat holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The partition.
    pub partition: u16,
    /// The generation in which the sender writes it or is to write it, and is able to; 0 if not.
    pub generation: u16,
    /// The low 32 bits of the sequence of its last record there.
    pub sequence: u32,
}

/// Claims, ascending by partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claims<'a> {
    bytes: &'a [u8],
}

/// CONFIRM: the answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// The number of the heartbeat.
    pub number: u64,
    /// The number of the plan in force at the node that answers.
    pub plan: u64,
    /// Claimed partitions that the node does not take over for the time of its grace.
    pub granted: PartitionSet,
}

impl<'a> Heartbeat<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let (head, claims) =
            body.split_first_chunk::<HEAD_BYTES>()
                .ok_or(length("HEARTBEAT", body, HEAD_BYTES))?;
        zero(&head[26..], "what stands behind the number of claims")?;
        let count = read_u16(head, 24);
        at_most("the number of claims", count.into(), LINK_PARTITIONS.into())?;
        let needed = HEAD_BYTES + usize::from(count) * CLAIM_BYTES;
        if body.len() != needed {
            return Err(length("HEARTBEAT", body, needed));
        }
        Ok(Heartbeat {
            number: numbered(head)?,
            last_read: read_u64(head, 8),
            plan: read_u64(head, 16),
            claims: Claims::read(claims)?,
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for word in [self.number, self.last_read, self.plan] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let count = u16::try_from(self.claims.bytes.len() / CLAIM_BYTES).expect("at most 256");
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(self.claims.bytes);
    }
}

impl<'a> Claims<'a> {
    /// Encodes claims into `into`.
    ///
    /// # Panics
    /// If they do not ascend, or a partition or generation is one that there is not.
    pub fn write(into: &'a mut Vec<u8>, claims: impl IntoIterator<Item = Claim>) -> Claims<'a> {
        into.clear();
        for claim in claims {
            into.extend_from_slice(&claim.partition.to_le_bytes());
            into.extend_from_slice(&claim.generation.to_le_bytes());
            into.extend_from_slice(&claim.sequence.to_le_bytes());
        }
        Claims::read(into).expect("claims ascend and keep to the limits")
    }

    fn read(bytes: &'a [u8]) -> Result<Self, LinkFault> {
        let mut next = 0;
        for (entry, claim) in bytes.chunks_exact(CLAIM_BYTES).enumerate() {
            let (partition, generation) = (read_u16(claim, 0), read_u16(claim, 2));
            let last = u64::from(LINK_PARTITIONS) - 1;
            at_most("a partition", partition.into(), last)?;
            at_most("a generation", generation.into(), GENERATION_MAX.into())?;
            if partition < next {
                return Err(LinkFault::ClaimOrder { entry });
            }
            next = partition + 1;
        }
        Ok(Claims { bytes })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Claim> + use<'a> {
        let claim = |bytes: &'a [u8]| Claim {
            partition: read_u16(bytes, 0),
            generation: read_u16(bytes, 2),
            sequence: read_u32(bytes, 4),
        };
        self.bytes.chunks_exact(CLAIM_BYTES).map(claim)
    }
}

impl Confirm {
    pub(super) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        let fixed: Result<&[u8; CONFIRM_BYTES], _> = body.try_into();
        let body = fixed.map_err(|_| length("CONFIRM", body, CONFIRM_BYTES))?;
        Ok(Confirm {
            number: numbered(body)?,
            plan: read_u64(body, 8),
            granted: PartitionSet::from_bytes(body[16..].try_into().expect("32 bytes")),
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.plan.to_le_bytes());
        out.extend_from_slice(&self.granted.to_bytes());
    }
}

/// The number of a heartbeat, which counts from 1.
fn numbered(body: &[u8]) -> Result<u64, LinkFault> {
    match read_u64(body, 0) {
        0 => Err(LinkFault::NoNumber),
        number => Ok(number),
    }
}

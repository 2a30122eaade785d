//! HELLO: what a client offers and what a server tells of itself.

use crate::batch::{padded, read_u16, read_u32, read_u64};
use crate::frame::{Header, Opcode, write_frame};
use crate::level::AckLevel;
use crate::limits::{
    BATCH_ITEMS_MAX, CLIENT_NAME_BYTES_MAX, INSTRUCTIONS_MAX, KEY_BYTES_MAX, Limits,
};
use crate::placement::Placement;
use crate::refusal::Refusal;
use crate::status::Status;

/// A server's feature: keys may have an expiry.
pub const FEATURE_EXPIRY: u64 = 1;
/// A server's feature: SCAN.
pub const FEATURE_SCAN: u64 = 2;
/// A server's feature: keyspaces, GET_AT and HISTORY.
pub const FEATURE_KEYSPACES: u64 = 4;
/// A server's feature: it is one of several nodes, and HELLO tells which node writes which
/// partition.
pub const FEATURE_PLACEMENT: u64 = 8;
/// GET may let members answer.
pub const FEATURE_MEMBER_READS: u64 = 16;
/// SET and DEL may ask for the value that keeps their condition from holding.
pub const FEATURE_SHOWN: u64 = 32;
/// PING may be an item of a batch.
pub const FEATURE_PING_ITEMS: u64 = 64;
/// APPLY.
pub const FEATURE_APPLY: u64 = 128;
/// Writes may have tokens.
pub const FEATURE_TOKENS: u64 = 256;
/// ON_EXPIRE of APPLY.
pub const FEATURE_ON_EXPIRE: u64 = 512;
/// RUN.
pub const FEATURE_RUN: u64 = 1024;
/// REPLACE of APPLY.
pub const FEATURE_REPLACE: u64 = 2048;
/// ABSENT_SINCE of APPLY.
pub const FEATURE_ABSENT_SINCE: u64 = 4096;
/// Answers to writes with tokens may have [`ITEM_FLAG_BEGAN`](crate::reply::ITEM_FLAG_BEGAN): at a
/// server that has it, for a client that wants it.
pub const FEATURE_BEGAN: u64 = 8192;
/// Requests and settings may have level `all`, settings a default level: at a server that has it.
/// A client that wants it is told that level; any other one is told `replica` for it.
pub const FEATURE_ALL: u64 = 16384;
/// A server's feature: it reads `resp_ports` of a `[[node]]` in the plan of a cluster, which
/// earlier builds refuse.
pub const FEATURE_PLAN_CORE_PORTS: u64 = 32768;
/// A server's feature: an APPLY may have more than
/// [`FEW_KEYS_MAX`](crate::limits::FEW_KEYS_MAX) keys.
pub const FEATURE_MANY_KEYS: u64 = 65536;
/// A server's feature: a token may be a text, at a node alone.
pub const FEATURE_TEXT_TOKENS: u64 = 131_072;
/// Keys may have members, which native verbs do not read: at a server that has it. A client that
/// wants it is told [`Status::WrongType`](crate::status::Status::WrongType) then.
pub const FEATURE_WRONG_TYPE: u64 = 262_144;
/// Authentication: none.
pub const AUTH_NONE: u16 = 1;
/// SCRAM-SHA-256 on a connection without encryption.
pub const AUTH_SCRAM: u16 = 2;
/// SCRAM-SHA-256 that is bound to the encrypted connection.
pub const AUTH_SCRAM_BOUND: u16 = 4;
/// The certificate of the connection.
pub const AUTH_CERTIFICATE: u16 = 8;
const CLIENT_BYTES: usize = 24;
const SERVER_BYTES: usize = 120;
const RANGE_BYTES: usize = 8;
/// Where a HELLO tells the shard's time, 6 bytes.
const TIME_AT: usize = 114;

/// What a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// Lowest protocol version.
    pub protocol_min: u16,
    /// Highest protocol version.
    pub protocol_max: u16,
    /// Features wanted: [`FEATURE_BEGAN`], [`FEATURE_ALL`], [`FEATURE_WRONG_TYPE`] or none. Others
    /// are not looked at.
    pub features: u64,
    /// For the server's logs.
    pub name: &'a str,
}

impl<'a> ClientHello<'a> {
    /// The body of a HELLO request.
    ///
    /// # Errors
    /// [`Refusal`] that names the field.
    pub fn read(body: &'a [u8]) -> Result<Self, Refusal> {
        let length = |needed| Refusal::HelloLength {
            len: body.len(),
            needed,
        };
        if body.len() < CLIENT_BYTES {
            return Err(length(CLIENT_BYTES));
        }
        let reserved = u64::from(read_u32(body, 4)) << 32 | read_u64(body, 16) >> 16;
        if reserved != 0 {
            return Err(Refusal::Reserved {
                name: "what stands around the fields of HELLO",
                found: reserved,
            });
        }
        let name_len = read_u16(body, 16);
        let end = CLIENT_BYTES + usize::from(name_len);
        if usize::from(name_len) > CLIENT_NAME_BYTES_MAX {
            return Err(Refusal::ClientName { len: name_len });
        }
        if body.len() != padded(end) {
            return Err(length(padded(end)));
        }
        let name = std::str::from_utf8(&body[CLIENT_BYTES..end])
            .map_err(|_| Refusal::ClientName { len: name_len })?;
        if body[end..].iter().any(|&byte| byte != 0) {
            return Err(Refusal::Padding {
                behind: "the client's name",
            });
        }
        let (protocol_min, protocol_max) = (read_u16(body, 0), read_u16(body, 2));
        if !(protocol_min..=protocol_max).contains(&1) {
            return Err(Refusal::ProtocolRange {
                min: protocol_min,
                max: protocol_max,
            });
        }
        Ok(ClientHello {
            protocol_min,
            protocol_max,
            features: read_u64(body, 8),
            name,
        })
    }

    /// Appends a HELLO request frame. A name over the limit is cut.
    pub fn write(&self, out: &mut Vec<u8>, request_id: u64) {
        let mut name = self.name;
        while name.len() > CLIENT_NAME_BYTES_MAX {
            name = &name[..name.floor_char_boundary(CLIENT_NAME_BYTES_MAX)];
        }
        let mut body = vec![0; CLIENT_BYTES];
        body[0..2].copy_from_slice(&self.protocol_min.to_le_bytes());
        body[2..4].copy_from_slice(&self.protocol_max.to_le_bytes());
        body[8..16].copy_from_slice(&self.features.to_le_bytes());
        body[16..18].copy_from_slice(&u16::try_from(name.len()).expect("cut above").to_le_bytes());
        body.extend_from_slice(name.as_bytes());
        write_frame(
            out,
            Header::request(Opcode::Hello, request_id, AckLevel::None, 0),
            &body,
        );
    }
}

/// A range of slots, and the shard that owns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRange {
    /// First slot.
    pub first: u16,
    /// Last slot.
    pub last: u16,
    /// The shard.
    pub shard: u16,
    /// The port on which this shard alone listens.
    pub port: u16,
}

/// What a server tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// The protocol version that is spoken from here on.
    pub protocol: u16,
    /// The shard whose core has the connection.
    pub shard: u16,
    /// Shards of the node.
    pub shard_count: u16,
    /// `AUTH_*`.
    pub auth_methods: u16,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: [u8; 16],
    /// Rises at every start.
    pub incarnation: u64,
    /// `FEATURE_*`.
    pub features: u64,
    /// For authentication; zeros if none is needed.
    pub nonce: [u8; 32],
    /// The limits of requests.
    pub limits: Limits,
    /// The shard's time in unix milliseconds, at most 48 bits; 0 if it is not told.
    pub time_ms: u64,
    /// How much a crash may take from writes at level `interval`, in milliseconds.
    pub interval_ms: u32,
    /// The slot map, ascending and complete.
    pub slots: Vec<SlotRange>,
    /// The node that writes each partition, if the server is one of several nodes.
    pub placement: Option<Placement>,
}

impl ServerHello {
    /// What a connection is told that has to log in first: how, and how much it may send.
    #[must_use]
    pub fn before_login(&self, auth_methods: u16, nonce: [u8; 32]) -> ServerHello {
        ServerHello {
            protocol: self.protocol,
            shard: 0,
            shard_count: 0,
            auth_methods,
            cluster_id: [0; 16],
            node_id: [0; 16],
            incarnation: 0,
            features: self.features,
            nonce,
            limits: self.limits,
            time_ms: 0,
            interval_ms: self.interval_ms,
            slots: Vec::new(),
            placement: None,
        }
    }

    /// The same at this time of the shard.
    #[must_use]
    pub fn at(&self, time_ms: u64) -> ServerHello {
        ServerHello {
            time_ms,
            ..self.clone()
        }
    }

    /// Appends the HELLO reply frame.
    pub fn write(&self, out: &mut Vec<u8>, request_id: u64) {
        let header = Header::reply(Opcode::Hello as u8, request_id, Status::Ok, self.shard);
        write_frame(out, header, &self.body());
    }

    /// The body of the reply.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![0; SERVER_BYTES];
        let words = [
            self.protocol,
            self.shard,
            self.shard_count,
            self.auth_methods,
        ];
        for (at, word) in (0..).step_by(2).zip(words) {
            body[at..at + 2].copy_from_slice(&word.to_le_bytes());
        }
        body[8..24].copy_from_slice(&self.cluster_id);
        body[24..40].copy_from_slice(&self.node_id);
        body[40..48].copy_from_slice(&self.incarnation.to_le_bytes());
        let placed = match self.placement {
            Some(_) => FEATURE_PLACEMENT,
            None => 0,
        };
        body[48..56].copy_from_slice(&(self.features | placed).to_le_bytes());
        body[56..88].copy_from_slice(&self.nonce);
        body[88..92].copy_from_slice(&self.limits.frame_bytes_max.to_le_bytes());
        body[92..96].copy_from_slice(&self.limits.value_bytes_max.to_le_bytes());
        let fixed = [KEY_BYTES_MAX, BATCH_ITEMS_MAX, INSTRUCTIONS_MAX, 0];
        for (at, word) in (96..).step_by(2).zip(fixed) {
            body[at..at + 2]
                .copy_from_slice(&u16::try_from(word).expect("small constants").to_le_bytes());
        }
        body[104..108].copy_from_slice(&self.interval_ms.to_le_bytes());
        body[112..114].copy_from_slice(
            &u16::try_from(self.slots.len())
                .expect("at most 256 shards")
                .to_le_bytes(),
        );
        body[TIME_AT..SERVER_BYTES].copy_from_slice(&self.time_ms.to_le_bytes()[..6]);
        for range in &self.slots {
            for word in [range.first, range.last, range.shard, range.port] {
                body.extend_from_slice(&word.to_le_bytes());
            }
        }
        if let Some(placement) = &self.placement {
            placement.write(&mut body);
        }
        body
    }

    /// Reads the body of a HELLO reply. Fields that later versions append are ignored.
    ///
    /// # Errors
    /// [`Refusal::HelloLength`] if the body is shorter than its counts say. [`Refusal::Placement`]
    /// if its placement contradicts itself.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        let length = |needed| Refusal::HelloLength {
            len: body.len(),
            needed,
        };
        if body.len() < SERVER_BYTES {
            return Err(length(SERVER_BYTES));
        }
        let id = |at: usize| -> [u8; 16] { body[at..at + 16].try_into().expect("sixteen bytes") };
        let end = SERVER_BYTES + usize::from(read_u16(body, 112)) * RANGE_BYTES;
        let ranges = body.get(SERVER_BYTES..end).ok_or(length(end))?;
        let slots = ranges
            .chunks_exact(RANGE_BYTES)
            .map(|range| SlotRange {
                first: read_u16(range, 0),
                last: read_u16(range, 2),
                shard: read_u16(range, 4),
                port: read_u16(range, 6),
            })
            .collect();
        let features = read_u64(body, 48);
        let placement = match features & FEATURE_PLACEMENT {
            0 => None,
            _ => Some(Placement::read(&body[end..])?),
        };
        Ok(ServerHello {
            protocol: read_u16(body, 0),
            shard: read_u16(body, 2),
            shard_count: read_u16(body, 4),
            auth_methods: read_u16(body, 6),
            cluster_id: id(8),
            node_id: id(24),
            incarnation: read_u64(body, 40),
            features: features & !FEATURE_PLACEMENT,
            nonce: body[56..88].try_into().expect("thirty-two bytes"),
            limits: Limits {
                frame_bytes_max: read_u32(body, 88),
                value_bytes_max: read_u32(body, 92),
            },
            time_ms: read_u64(body, TIME_AT - 2) >> 16,
            interval_ms: read_u32(body, 104),
            slots,
            placement,
        })
    }
}

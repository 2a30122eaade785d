//! The messages of a link. Each frame has one message, which concerns at most one partition, but
//! for RECORDS.

use crate::link::body::length;
use crate::link::course::{Begin, Close, Handover, Join, Open, State};
use crate::link::fault::LinkFault;
use crate::link::handshake::{Hello, PROOF_BYTES, Proof, Welcome};
use crate::link::heartbeat::{Confirm, Heartbeat};
use crate::link::publish::Publish;
use crate::link::records::Records;
use crate::link::refused::Refused;
use crate::link::rewind::{Rewind, Rewound};

pub use crate::link::history::{EpochEntry, Epochs};
pub use crate::link::limits::{
    GENERATION_MAX, LINK_EPOCHS_MAX, LINK_PARTITIONS, REFUSED_TEXT_BYTES_MAX, REWIND_KEYS_MAX,
};
pub use crate::link::records::{RECORDS_HEAD_BYTES, records_head};

/// The decoded body of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMessage<'a> {
    /// The first frame of the source.
    Hello(Hello),
    /// The first frame of the destination.
    Welcome(Welcome),
    /// The second frame of the source: the proof that the source knows the secret.
    Proof(Proof),
    /// The last frame of either.
    Refused(Refused<'a>),
    /// A frame without a body, sent for its marks and time.
    Beat,
    /// See [`Open`].
    Open(Open),
    /// See [`State`].
    State(State<'a>),
    /// See [`Begin`].
    Begin(Begin<'a>),
    /// See [`Records`].
    Records(Records<'a>),
    /// See [`Join`].
    Join(Join),
    /// See [`Rewind`].
    Rewind(Rewind<'a>),
    /// See [`Rewound`].
    Rewound(Rewound),
    /// See [`Handover`].
    Handover(Handover),
    /// See [`Close`].
    Close(Close),
    /// See [`Heartbeat`]. On a connection of its own.
    Heartbeat(Heartbeat<'a>),
    /// See [`Confirm`].
    Confirm(Confirm),
    /// See [`Publish`]. On a connection of its own.
    Publish(Publish<'a>),
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const PROOF: u8 = 3;
const REFUSED: u8 = 4;
const BEAT: u8 = 5;
const OPEN: u8 = 6;
const STATE: u8 = 7;
const BEGIN: u8 = 8;
/// The kind of RECORDS. Its sender writes the body in place, not through [`LinkMessage`].
pub const RECORDS: u8 = 9;
const JOIN: u8 = 10;
const REWIND: u8 = 11;
const REWOUND: u8 = 12;
const HANDOVER: u8 = 13;
const CLOSE: u8 = 14;
const HEARTBEAT: u8 = 15;
const CONFIRM: u8 = 16;
const PUBLISH: u8 = 17;

impl<'a> LinkMessage<'a> {
    /// Its name in `LINK.md`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            LinkMessage::Hello(_) => "HELLO",
            LinkMessage::Welcome(_) => "WELCOME",
            LinkMessage::Proof(_) => "PROOF",
            LinkMessage::Refused(_) => "REFUSED",
            LinkMessage::Beat => "BEAT",
            LinkMessage::Open(_) => "OPEN",
            LinkMessage::State(_) => "STATE",
            LinkMessage::Begin(_) => "BEGIN",
            LinkMessage::Records(_) => "RECORDS",
            LinkMessage::Join(_) => "JOIN",
            LinkMessage::Rewind(_) => "REWIND",
            LinkMessage::Rewound(_) => "REWOUND",
            LinkMessage::Handover(_) => "HANDOVER",
            LinkMessage::Close(_) => "CLOSE",
            LinkMessage::Heartbeat(_) => "HEARTBEAT",
            LinkMessage::Confirm(_) => "CONFIRM",
            LinkMessage::Publish(_) => "PUBLISH",
        }
    }

    /// The code of its kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            LinkMessage::Hello(_) => HELLO,
            LinkMessage::Welcome(_) => WELCOME,
            LinkMessage::Proof(_) => PROOF,
            LinkMessage::Refused(_) => REFUSED,
            LinkMessage::Beat => BEAT,
            LinkMessage::Open(_) => OPEN,
            LinkMessage::State(_) => STATE,
            LinkMessage::Begin(_) => BEGIN,
            LinkMessage::Records(_) => RECORDS,
            LinkMessage::Join(_) => JOIN,
            LinkMessage::Rewind(_) => REWIND,
            LinkMessage::Rewound(_) => REWOUND,
            LinkMessage::Handover(_) => HANDOVER,
            LinkMessage::Close(_) => CLOSE,
            LinkMessage::Heartbeat(_) => HEARTBEAT,
            LinkMessage::Confirm(_) => CONFIRM,
            LinkMessage::Publish(_) => PUBLISH,
        }
    }

    pub(crate) fn read(kind: u8, body: &'a [u8]) -> Result<Self, LinkFault> {
        match kind {
            HELLO => Hello::read(body).map(LinkMessage::Hello),
            WELCOME => Welcome::read(body).map(LinkMessage::Welcome),
            PROOF => match body.try_into() {
                Ok(proof) => Ok(LinkMessage::Proof(proof)),
                Err(_) => Err(length("PROOF", body, PROOF_BYTES)),
            },
            REFUSED => Refused::read(body).map(LinkMessage::Refused),
            BEAT if body.is_empty() => Ok(LinkMessage::Beat),
            BEAT => Err(length("BEAT", body, 0)),
            OPEN => Open::read(body).map(LinkMessage::Open),
            STATE => State::read(body).map(LinkMessage::State),
            BEGIN => Begin::read(body).map(LinkMessage::Begin),
            RECORDS => Records::read(body).map(LinkMessage::Records),
            JOIN => Join::read(body).map(LinkMessage::Join),
            REWIND => Rewind::read(body).map(LinkMessage::Rewind),
            REWOUND => Rewound::read(body).map(LinkMessage::Rewound),
            HANDOVER => Handover::read(body).map(LinkMessage::Handover),
            CLOSE => Close::read(body).map(LinkMessage::Close),
            HEARTBEAT => Heartbeat::read(body).map(LinkMessage::Heartbeat),
            CONFIRM => Confirm::read(body).map(LinkMessage::Confirm),
            PUBLISH => Publish::read(body).map(LinkMessage::Publish),
            _ => Err(LinkFault::Kind(kind)),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            LinkMessage::Hello(hello) => out.extend_from_slice(&hello.encode()),
            LinkMessage::Welcome(welcome) => out.extend_from_slice(&welcome.encode()),
            LinkMessage::Proof(proof) => out.extend_from_slice(proof),
            LinkMessage::Refused(refused) => refused.put(out),
            LinkMessage::Beat => {}
            LinkMessage::Open(open) => open.put(out),
            LinkMessage::State(state) => state.put(out),
            LinkMessage::Begin(begin) => begin.put(out),
            LinkMessage::Records(records) => records.put(out),
            LinkMessage::Join(join) => join.put(out),
            LinkMessage::Rewind(rewind) => rewind.put(out),
            LinkMessage::Rewound(rewound) => rewound.put(out),
            LinkMessage::Handover(handover) => handover.put(out),
            LinkMessage::Close(close) => close.put(out),
            LinkMessage::Heartbeat(heartbeat) => heartbeat.put(out),
            LinkMessage::Confirm(confirm) => confirm.put(out),
            LinkMessage::Publish(publish) => publish.put(out),
        }
    }
}

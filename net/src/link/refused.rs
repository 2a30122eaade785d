//! REFUSED: the last frame of a link, with a code for programs and a text for people.

use crate::batch::{padded, read_u16, read_u32};
use crate::link::body::{at_most, length, zero};
use crate::link::fault::LinkFault;
use crate::link::limits::REFUSED_TEXT_BYTES_MAX;

/// Why a node ends a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RefusalCode {
    /// The nodes have no version of the link in common.
    LinkVersion = 1,
    /// The other node's log has another format.
    LogFormat = 2,
    /// The other node is of another cluster.
    Cluster = 3,
    /// This is not the node or shard that the source wants.
    Destination = 4,
    /// The node has connected to itself.
    Itself = 5,
    /// The other node's proof is wrong: it does not know the secret of the cluster.
    Credentials = 6,
    /// The other node has an earlier incarnation than one that was seen.
    Incarnation = 7,
    /// Records of the source, or a frame of either node, may be larger than the other takes.
    RecordBytes = 8,
    /// Bytes break the rules of `LINK.md`.
    Fault = 9,
    /// A message came that the state of the link does not allow.
    Order = 10,
    /// Records are damaged, or are not the next ones of their partition.
    Records = 11,
    /// The histories of a partition have nothing in common.
    Unrelated = 12,
    /// The cluster's file does not name the other node.
    NotNamed = 13,
    /// The source lacks records that it has announced durable: its directory is an older copy.
    GoneBack = 14,
}

impl RefusalCode {
    /// Every code, ascending from 1.
    pub const ALL: [RefusalCode; 14] = [
        RefusalCode::LinkVersion,
        RefusalCode::LogFormat,
        RefusalCode::Cluster,
        RefusalCode::Destination,
        RefusalCode::Itself,
        RefusalCode::Credentials,
        RefusalCode::Incarnation,
        RefusalCode::RecordBytes,
        RefusalCode::Fault,
        RefusalCode::Order,
        RefusalCode::Records,
        RefusalCode::Unrelated,
        RefusalCode::NotNamed,
        RefusalCode::GoneBack,
    ];

    /// Its name in counters and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RefusalCode::LinkVersion => "link_version",
            RefusalCode::LogFormat => "log_format",
            RefusalCode::Cluster => "cluster",
            RefusalCode::Destination => "destination",
            RefusalCode::Itself => "itself",
            RefusalCode::Credentials => "credentials",
            RefusalCode::Incarnation => "incarnation",
            RefusalCode::RecordBytes => "record_bytes",
            RefusalCode::Fault => "fault",
            RefusalCode::Order => "order",
            RefusalCode::Records => "records",
            RefusalCode::Unrelated => "unrelated",
            RefusalCode::NotNamed => "not_named",
            RefusalCode::GoneBack => "gone_back",
        }
    }

    fn from_code(code: u16) -> Option<Self> {
        let before = usize::from(code).checked_sub(1)?;
        RefusalCode::ALL.get(before).copied()
    }
}

/// REFUSED, the last frame of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    /// Why.
    pub code: RefusalCode,
    /// A sentence for people.
    pub text: &'a str,
}

impl<'a> Refused<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let length = |needed| length("REFUSED", body, needed);
        let (head, rest) = body.split_first_chunk::<8>().ok_or(length(8))?;
        let (code, text_bytes) = (read_u16(head, 0), read_u32(head, 4));
        zero(&head[2..4], "what stands behind the code")?;
        let code = RefusalCode::from_code(code).ok_or(LinkFault::Field {
            name: "the code of a refusal",
            found: code.into(),
            max: RefusalCode::ALL.len() as u64,
        })?;
        let name = "the length of a refusal's text";
        at_most(name, text_bytes.into(), REFUSED_TEXT_BYTES_MAX as u64)?;
        let text_bytes = text_bytes as usize;
        if rest.len() != padded(text_bytes) {
            return Err(length(8 + padded(text_bytes)));
        }
        zero(&rest[text_bytes..], "what stands behind the text")?;
        let text = std::str::from_utf8(&rest[..text_bytes]).map_err(|_| LinkFault::Text)?;
        Ok(Refused { code, text })
    }

    /// Appends the body. A text over [`REFUSED_TEXT_BYTES_MAX`] is cut between two characters.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let end = self.text.floor_char_boundary(REFUSED_TEXT_BYTES_MAX);
        let text = &self.text.as_bytes()[..end];
        out.extend_from_slice(&(self.code as u16).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        let len = u32::try_from(text.len()).expect("cut above");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(text);
        out.resize(out.len() + padded(text.len()) - text.len(), 0);
    }
}

//! What a verb asks besides keys and values.

use crate::batch::{read_u32, read_u64};
use crate::keyspace::{Action, At, SETTINGS_BYTES, Settings};
use crate::limits::HISTORY_VERSIONS_MAX;
use crate::refusal::Refusal;
use crate::request::flags;
use crate::request::head::ITEM_HEADER_BYTES;
use crate::request::terms::MemberRead;
use crate::request::verb::Verb;
use crate::version::Version;

/// What a verb asks besides keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// GET: members may answer.
    Member(MemberRead),
    /// SET and DEL: the answer shows the value that keeps the condition from holding.
    Show,
    /// GET_AT: the time or the version.
    At(At),
    /// HISTORY: the versions whose sequence is below `before`, 0 for all, at most so many.
    History {
        /// The sequence.
        before: u64,
        /// Versions.
        limit: u32,
    },
    /// KEYSPACE: what is done. The key is the prefix.
    Keyspace(Action),
    /// FLUSH: the key stands for its partition.
    Flush,
}

impl Extra {
    /// Reads it from an item without an extension, whose lengths were checked.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    #[inline]
    pub(super) fn read(
        verb: Verb,
        flags: u8,
        item: &[u8],
        key: &[u8],
        value: &[u8],
    ) -> Result<Extra, Refusal> {
        Ok(match verb {
            Verb::Set | Verb::Del if flags & flags::SHOW != 0 => Extra::Show,
            Verb::Get | Verb::Set | Verb::Del | Verb::UpdateIf => Extra::None,
            Verb::Scan | Verb::Apply | Verb::Ping => Extra::None,
            Verb::GetAt => Extra::At(read_at(flags, item)?),
            Verb::History => read_history(item)?,
            Verb::Flush => Extra::Flush,
            Verb::Keyspace => Extra::Keyspace(read_action(flags, key, value)?),
        })
    }
}

/// The version or the time that GET_AT asks for.
#[cold]
fn read_at(flags: u8, item: &[u8]) -> Result<At, Refusal> {
    let field = &item[ITEM_HEADER_BYTES..];
    Ok(match Verb::GetAt.row().has_version(flags) {
        true => {
            let bytes = field.first_chunk();
            At::Version(Version::read(bytes.expect("the length was checked"))?)
        }
        false => At::TimeMs(read_u64(field, 0)),
    })
}

/// What HISTORY asks for: a limit, a reserved word, and a sequence in the place of a version.
#[cold]
fn read_history(item: &[u8]) -> Result<Extra, Refusal> {
    let limit = read_u32(item, ITEM_HEADER_BYTES);
    let reserved = read_u32(item, ITEM_HEADER_BYTES + 4);
    if !(1..=HISTORY_VERSIONS_MAX).contains(&limit) {
        return Err(Refusal::HistoryLimit(limit));
    }
    if reserved != 0 {
        return Err(Refusal::Reserved {
            name: "the word behind the limit of a history",
            found: reserved.into(),
        });
    }
    let before = read_u64(item, ITEM_HEADER_BYTES + 8);
    Ok(Extra::History { before, limit })
}

/// What KEYSPACE does: the value is the settings, or is empty.
#[cold]
fn read_action(flags: u8, prefix: &[u8], value: &[u8]) -> Result<Action, Refusal> {
    let needed = match flags {
        flags::KEYSPACE_DROP | flags::KEYSPACE_LIST => 0,
        _ => SETTINGS_BYTES,
    };
    if value.len() != needed {
        return Err(Refusal::KeyspaceSettings {
            len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            needed,
        });
    }
    if flags == flags::KEYSPACE_LIST && !prefix.is_empty() {
        return Err(Refusal::KeyspaceList { len: prefix.len() });
    }
    let settings = value.first_chunk().map(Settings::read).transpose()?;
    Ok(match (flags, settings) {
        (flags::KEYSPACE_LIST, _) => Action::List,
        (flags::ABSENT, Some(settings)) => Action::Create(settings),
        (_, Some(settings)) => Action::Set(settings),
        (_, None) => Action::Drop,
    })
}

//! The table of verbs: what an item of a batch may ask for.
//!
//! One row is one verb. The reader and the writer of items, the counts of answers in INFO and
//! `/metrics`, the commands and the simulator take from the row what they must know of the verb.

use crate::limits::INSTRUCTIONS_MAX;
use crate::request::flags;
use crate::request::terms::Expiry;

/// What a verb does to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing, whatever the answer.
    Reads,
    /// It writes a value, which needs room in the log.
    Writes,
    /// It deletes a key, which is possible in a log without room.
    Deletes,
    /// It may change the settings of keyspaces.
    Settings,
}

/// What the answer of a verb tells besides its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerContent {
    /// A few numbers at most.
    Fields,
    /// The value that the key has now.
    Value,
    /// A value that the key had earlier.
    PastValue,
    /// The versions that are kept of the key.
    Versions,
    /// Keyspaces with their settings.
    Keyspaces,
    /// A page of keys.
    Page,
    /// What was sent. No store is asked.
    Echo,
}

/// Whether the item of a verb has a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Never,
    Always,
    ByFlag,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// A label: lower case, with underscores.
    name: &'static str,
    effect: Effect,
    content: AnswerContent,
    /// The item may be a head and data alone.
    is_plain: bool,
    /// Flags that the item may have.
    pub(super) flags: u8,
    /// Keys, at most; 0 for an item with a form of its own.
    pub(super) keys_max: u8,
    pub(super) instructions_max: usize,
    /// A field of the form of a version, before the key.
    pub(super) version: Field,
    /// A field with a time, before the key.
    pub(super) time: Field,
    /// The value.
    pub(super) value: Field,
    /// What becomes of the key's expiry if the flags do not say it.
    pub(super) expiry: Expiry,
}

impl Row {
    /// A head and one key.
    const BARE: Row = Row {
        name: "",
        effect: Effect::Reads,
        content: AnswerContent::Fields,
        is_plain: false,
        flags: 0,
        keys_max: 1,
        instructions_max: 0,
        version: Field::Never,
        time: Field::Never,
        value: Field::Never,
        expiry: Expiry::Never,
    };
}

impl Row {
    /// Whether an item may have these flags together.
    pub(super) fn allows(&self, flags: u8) -> bool {
        let condition = flags::of_condition(flags);
        // In a GET these bits say what is wanted.
        let is_other = flags & flags::EXPIRY_BITS == flags::EXPIRY_OTHER;
        flags & !self.flags == 0
            && condition.count_ones() <= 1
            && !(self.time == Field::Never && is_other)
            && !(flags & flags::SHOW != 0 && condition == 0)
    }

    /// Whether an item with these flags has a field of the form of a version.
    pub(super) fn has_version(&self, flags: u8) -> bool {
        match self.version {
            Field::Never => false,
            Field::Always => true,
            Field::ByFlag => flags::of_condition(flags) == flags::VERSION,
        }
    }

    /// Whether an item with these flags has a field with a time.
    pub(super) fn has_time(&self, flags: u8) -> bool {
        let is_time = matches!(
            flags & flags::EXPIRY_BITS,
            flags::EXPIRY_AT | flags::EXPIRY_IN
        );
        self.time == Field::ByFlag && is_time
    }

    /// Whether an item with these flags may have a value.
    pub(super) fn may_have_value(&self, flags: u8) -> bool {
        match self.value {
            Field::Never => false,
            Field::Always => true,
            Field::ByFlag => flags & flags::START != 0,
        }
    }
}

macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident = $code:literal, $name:literal {
        $($field:ident: $value:expr,)+
    })+) => {
        /// What an item does with its keys. The number is that of the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Verb {
            $($(#[doc = $doc])+ $verb = $code,)+
        }

        /// The rows in their order.
        enum Place {
            $($verb,)+
        }

        impl Verb {
            /// All verbs, in the order of the table.
            pub const ALL: [Verb; [$(Verb::$verb),+].len()] = [$(Verb::$verb),+];

            /// The position in [`Verb::ALL`].
            #[inline(always)]
            #[must_use]
            pub const fn place(self) -> usize {
                match self {
                    $(Verb::$verb => Place::$verb as usize,)+
                }
            }

            /// The verb of an operation's number.
            #[inline]
            #[must_use]
            pub const fn of(operation: u8) -> Option<Verb> {
                match operation {
                    $($code => Some(Verb::$verb),)+
                    _ => None,
                }
            }

            #[inline(always)]
            pub(super) const fn row(self) -> Row {
                match self {
                    $(Verb::$verb => Row { name: $name, $($field: $value,)+ ..Row::BARE },)+
                }
            }
        }
    };
}

verbs! {
    /// Read a value.
    Get = 1, "get" {
        content: AnswerContent::Value,
        is_plain: true,
        flags: flags::EXPIRY_BITS,
    }
    /// Write a value.
    Set = 2, "set" {
        effect: Effect::Writes,
        is_plain: true,
        flags: flags::CONDITION_BITS | flags::SHOW | flags::EXPIRY_BITS,
        version: Field::ByFlag,
        time: Field::ByFlag,
        value: Field::Always,
    }
    /// Delete a key.
    Del = 3, "del" {
        effect: Effect::Deletes,
        is_plain: true,
        flags: flags::PRESENT | flags::VERSION | flags::SHOW,
        version: Field::ByFlag,
    }
    /// Run instructions on fields.
    UpdateIf = 4, "update_if" {
        effect: Effect::Writes,
        is_plain: true,
        flags: flags::START | flags::EXPIRY_BITS,
        keys_max: 2,
        instructions_max: INSTRUCTIONS_MAX,
        time: Field::ByFlag,
        value: Field::ByFlag,
        expiry: Expiry::Keep,
    }
    /// Read a value as it was.
    GetAt = 6, "get_at" {
        content: AnswerContent::PastValue,
        flags: flags::VERSION | flags::EXPIRY_AT,
        version: Field::ByFlag,
        time: Field::ByFlag,
    }
    /// Tell the versions that are kept.
    History = 7, "history" {
        content: AnswerContent::Versions,
        version: Field::Always,
    }
    /// Set, drop or tell keyspaces.
    Keyspace = 8, "keyspace" {
        effect: Effect::Settings,
        content: AnswerContent::Keyspaces,
        flags: flags::ABSENT | flags::KEYSPACE_DROP | flags::KEYSPACE_LIST,
        value: Field::Always,
    }
    /// Delete all keys of the partition that the key belongs to. It comes from this process alone.
    Flush = 13, "flush" {
        effect: Effect::Deletes,
    }
    /// Tell the next keys in the order of slots and hashes. Its item has a form of its own:
    /// [`ScanRequest`](crate::scan::ScanRequest).
    Scan = 5, "scan" {
        content: AnswerContent::Page,
        keys_max: 0,
    }
    /// Run instructions on up to 255 keys. Its item has a form of its own:
    /// [`ApplyRequest`](crate::apply::ApplyRequest).
    Apply = 10, "apply" {
        effect: Effect::Writes,
        keys_max: 0,
    }
    /// Send a value there and back. Its item has a form of its own:
    /// [`PingItem`](crate::ping::PingItem).
    Ping = 9, "ping" {
        content: AnswerContent::Echo,
        keys_max: 0,
    }
}

impl Verb {
    /// The name as a label: lower case, with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// What it does to a store.
    #[inline]
    #[must_use]
    pub const fn effect(self) -> Effect {
        self.row().effect
    }

    /// What its answer tells.
    #[inline]
    #[must_use]
    pub const fn answer_content(self) -> AnswerContent {
        self.row().content
    }

    /// The verb of an operation's number, if an item of the verb may be a head and data alone.
    #[inline]
    pub(super) const fn plain(operation: u8) -> Option<Verb> {
        match Verb::of(operation) {
            Some(verb) if verb.row().is_plain => Some(verb),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_found_by_its_number_and_its_place() {
        for (place, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb.place(), place);
            assert_eq!(Verb::of(verb as u8), Some(verb));
            assert_eq!(Verb::plain(verb as u8).is_some(), verb.row().is_plain);
        }
        let known = (0..=u8::MAX).filter_map(Verb::of).count();
        assert_eq!(known, Verb::ALL.len());
    }

    #[test]
    fn no_two_verbs_have_one_name() {
        let names: std::collections::BTreeSet<&str> = Verb::ALL.map(Verb::name).into();
        assert_eq!(names.len(), Verb::ALL.len());
        let is_label = |name: &str| name.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        assert!(names.into_iter().all(is_label));
    }
}

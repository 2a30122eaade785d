//! What a caller asks of a store, and how it is written as an item of a batch.

use crate::apply::Apply;
use crate::frame::HEADER_BYTES;
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::keyspace::{Action, At, SETTINGS_BYTES};
use crate::level::AckLevel;
use crate::placement::partition_of;
use crate::program::Run;
use crate::request::batch_request::BatchRequest;
use crate::request::extension::TEXT_TOKEN_AREA_BYTES;
use crate::request::terms::{Condition, Expiry, MemberRead, Wanted, When};
use crate::request::verb::{Effect, Verb};
use crate::scan::ScanRequest;
use crate::slot::slot_of;

/// What is asked of a store.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Read a value.
    Get {
        /// Its key.
        key: &'a [u8],
        /// The value, the expiry, or both.
        wanted: Wanted,
    },
    /// Read a value, perhaps from a member of the key's partition.
    GetOfMember {
        /// Its key.
        key: &'a [u8],
        /// How old it may be, and what must be there.
        read: MemberRead,
    },
    /// Write a value.
    Set {
        /// Its key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When it applies.
        when: When,
        /// When the key is gone by itself.
        expiry: Expiry,
    },
    /// Delete a key.
    Del {
        /// The key.
        key: &'a [u8],
        /// When it applies.
        when: When,
    },
    /// Run instructions on fields.
    UpdateIf {
        /// The first key.
        key: &'a [u8],
        /// The second key, of the same slot.
        second_key: Option<&'a [u8]>,
        /// Guards and effects.
        instructions: &'a [Instruction],
        /// What a missing first key starts from.
        start: Option<&'a [u8]>,
        /// When the first key is gone by itself.
        expiry: Expiry,
    },
    /// Run instructions on up to 255 keys.
    Apply(&'a Apply),
    /// Run a program that the server has: an APPLY.
    Run(&'a Run),
    /// Read a value as it was.
    GetAt {
        /// Its key.
        key: &'a [u8],
        /// When.
        at: At,
    },
    /// Tell the versions that are kept of a key, newest first.
    History {
        /// The key.
        key: &'a [u8],
        /// Only those with a sequence below this, 0 for all.
        before: u64,
        /// At most so many, 1 to 1024.
        limit: u32,
    },
    /// Set, drop or tell keyspaces.
    Keyspace {
        /// What its keys begin with; empty for [`Action::List`].
        prefix: &'a [u8],
        /// What is done.
        action: Action,
    },
    /// Tell the next keys in the order of slots and hashes.
    Scan(ScanRequest<'a>),
}

impl<'a> Ask<'a> {
    /// Asks for the value of a key.
    #[inline]
    #[must_use]
    pub fn get(key: &'a [u8]) -> Ask<'a> {
        let wanted = Wanted::Value;
        Ask::Get { key, wanted }
    }

    /// The key that decides the slot, but for a scan, whose slot is in its cursor: the prefix.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Ask::Get { key, .. }
            | Ask::GetOfMember { key, .. }
            | Ask::Set { key, .. }
            | Ask::Del { key, .. }
            | Ask::UpdateIf { key, .. }
            | Ask::GetAt { key, .. }
            | Ask::History { key, .. }
            | Ask::Keyspace { prefix: key, .. }
            | Ask::Scan(ScanRequest { prefix: key, .. }) => key,
            Ask::Apply(apply) => apply.keys().first().map_or(&[], Vec::as_slice),
            Ask::Run(run) => run.keys().first().map_or(&[], Vec::as_slice),
        }
    }

    /// What is done with the key.
    #[inline]
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Ask::Get { .. } | Ask::GetOfMember { .. } => Verb::Get,
            Ask::Set { .. } => Verb::Set,
            Ask::Del { .. } => Verb::Del,
            Ask::UpdateIf { .. } => Verb::UpdateIf,
            Ask::Apply(_) | Ask::Run(_) => Verb::Apply,
            Ask::GetAt { .. } => Verb::GetAt,
            Ask::History { .. } => Verb::History,
            Ask::Keyspace { .. } => Verb::Keyspace,
            Ask::Scan(_) => Verb::Scan,
        }
    }

    /// What it does to a store, if it is executed.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match *self {
            Ask::Keyspace {
                action: Action::List,
                ..
            } => Effect::Reads,
            // Guards alone change nothing.
            Ask::UpdateIf {
                instructions,
                start: None,
                expiry: Expiry::Keep,
                ..
            } if !instructions.iter().any(|it| it.operation.is_effect()) => Effect::Reads,
            Ask::Apply(apply) if !apply.has_effect() => Effect::Reads,
            _ => self.verb().effect(),
        }
    }

    /// Whether it is a write that takes a token and needs one: executed twice, it would do or
    /// answer something else than once.
    #[must_use]
    pub fn needs_token(&self) -> bool {
        match *self {
            Ask::Set { when, .. } | Ask::Del { when, .. } => when.condition != Condition::Always,
            Ask::UpdateIf { .. } | Ask::Apply(_) | Ask::Run(_) => self.effect() != Effect::Reads,
            _ => false,
        }
    }

    /// The partition of the key; none for what is about more than one key.
    #[must_use]
    pub fn partition(&self) -> Option<u16> {
        match self.verb() {
            Verb::Scan | Verb::Keyspace => None,
            _ => Some(partition_of(slot_of(self.key()))),
        }
    }

    /// Adds it to a batch that is written to `out`.
    pub fn write(&self, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        match *self {
            Ask::Get { key, wanted } => batch.get_with(out, key, wanted),
            Ask::GetOfMember { key, read } => batch.get_of_member(out, key, Wanted::Value, read),
            Ask::Set {
                key,
                value,
                when,
                expiry,
            } => batch.set_with(out, key, value, when, expiry),
            Ask::Del { key, when } => batch.del(out, key, when),
            Ask::UpdateIf {
                key,
                second_key,
                instructions,
                start,
                expiry,
            } => batch.update_if_with(out, key, second_key, instructions, start, expiry),
            Ask::Apply(apply) => batch.apply(out, apply),
            Ask::Run(run) => batch.run(out, run),
            Ask::GetAt { key, at } => batch.get_at(out, key, at),
            Ask::History { key, before, limit } => batch.history(out, key, before, limit),
            Ask::Keyspace { prefix, action } => batch.keyspace(out, prefix, action),
            Ask::Scan(ref request) => batch.scan(out, request),
        }
    }

    /// What it adds to a frame, at most, with a token.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        // Head, version, expiry, extension, index entry, and the padding of two keys and a value.
        const INDEX_ENTRY_BYTES: usize = 8;
        const ITEM_BYTES: usize = 16 + 16 + 8 + TEXT_TOKEN_AREA_BYTES + INDEX_ENTRY_BYTES + 3 * 8;
        let behind_key = match *self {
            Ask::Get { .. }
            | Ask::GetOfMember { .. }
            | Ask::Del { .. }
            | Ask::GetAt { .. }
            | Ask::History { .. }
            | Ask::Scan(_) => 0,
            Ask::Apply(apply) => {
                return INDEX_ENTRY_BYTES + apply.item_bytes() + TEXT_TOKEN_AREA_BYTES;
            }
            Ask::Run(run) => return INDEX_ENTRY_BYTES + run.item_bytes() + TEXT_TOKEN_AREA_BYTES,
            Ask::Set { value, .. } => value.len(),
            Ask::Keyspace { .. } => SETTINGS_BYTES,
            Ask::UpdateIf {
                second_key,
                instructions,
                start,
                ..
            } => {
                second_key.map_or(0, <[u8]>::len)
                    + instructions.len() * INSTRUCTION_BYTES
                    + start.map_or(0, <[u8]>::len)
            }
        };
        ITEM_BYTES + self.key().len() + behind_key
    }

    /// The encoded request item.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 0, AckLevel::Disk, 0, 1);
        self.write(&mut batch, &mut frame);
        batch.finish(&mut frame);
        // Behind the header, the count and the one index entry.
        frame.split_off(HEADER_BYTES + 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::ApplyRequest;
    use crate::instruction::{FieldType, Operation};
    use crate::keyspace::Settings;
    use crate::request::{Request, Version};

    const STEP: Instruction = Instruction {
        operation: Operation::Add,
        field_type: FieldType::U64,
        key: 0,
        reason: 0,
        offset: 0,
        immediate: 1,
    };

    /// Eight keys and a value, each as badly padded as can be.
    fn sale() -> Apply {
        let mut sale = Apply::new();
        for number in 0..8u8 {
            let key = sale.key(&[b"{a}keys!".as_slice(), &[b'0' + number]].concat());
            sale.then(key.exists());
        }
        let first = sale.key(b"{a}keys!0");
        sale.put(first, b"9 bytes, ");
        sale
    }

    /// An ask of each form, as long as its form can be beside keys and values.
    fn asks(sale: &Apply) -> Vec<Ask<'_>> {
        let key = &b"{a}key"[..];
        let version = Version::default();
        vec![
            Ask::Get {
                key,
                wanted: Wanted::ValueAndExpiry,
            },
            Ask::GetOfMember {
                key,
                read: MemberRead {
                    staleness_us_max: 1,
                    version_min: version,
                },
            },
            Ask::Set {
                key,
                value: b"a value",
                when: Condition::Version(version).showing(),
                expiry: Expiry::At(1),
            },
            Ask::Del {
                key,
                when: Condition::Version(version).into(),
            },
            Ask::UpdateIf {
                key,
                second_key: Some(b"{a}other"),
                instructions: &[STEP; 3],
                start: Some(b"start"),
                expiry: Expiry::In(1),
            },
            Ask::Apply(sale),
            Ask::GetAt {
                key,
                at: At::Version(version),
            },
            Ask::History {
                key,
                before: 0,
                limit: 1,
            },
            Ask::Keyspace {
                prefix: key,
                action: Action::Set(Settings::default()),
            },
            Ask::Scan(ScanRequest::begin(key)),
        ]
    }

    #[test]
    fn every_verb_can_be_asked_for() {
        let sale = sale();
        for verb in Verb::ALL {
            // PING asks no store, and FLUSH comes from the RESP port alone.
            assert!(
                matches!(verb, Verb::Ping | Verb::Flush)
                    || asks(&sale).iter().any(|ask| ask.verb() == verb),
                "{verb:?}"
            );
        }
    }

    #[test]
    fn an_apply_beyond_every_limit_is_no_longer_than_was_said() {
        let mut apply = Apply::new();
        for number in 0..300 {
            let key = apply.key(format!("{{a}}{number}").as_bytes());
            apply.put(key, b"longer than a key").then(key.exists());
        }
        let ask = Ask::Apply(&apply);
        assert_eq!(
            ask.encode().len() + 8 + TEXT_TOKEN_AREA_BYTES,
            ask.bytes_max()
        );
        let refusal = ApplyRequest::read(&ask.encode(), 1 << 20).expect_err("refused");
        assert_eq!(refusal.to_string(), "APPLY takes 1 to 255 keys, not 0");
    }

    #[test]
    fn what_is_asked_is_read_as_its_verb_and_is_no_longer_than_was_said() {
        let sale = sale();
        for ask in asks(&sale) {
            let item = ask.encode();
            assert_eq!(item[2], ask.verb() as u8, "{ask:?}");
            if ask.verb() == Verb::Apply {
                let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
                assert_eq!(request.key(), ask.key());
            } else if ask.verb() != Verb::Scan {
                let request = Request::read(&item, 1 << 20).expect("well formed");
                assert_eq!((request.verb, request.key), (ask.verb(), ask.key()));
            }
            let index_entry = 8;
            assert!(item.len() + index_entry <= ask.bytes_max(), "{ask:?}");
        }
    }

    #[test]
    fn a_write_needs_a_token_if_doing_it_twice_is_not_the_same_as_once() {
        let mut guards = Apply::new();
        let key = guards.key(b"k");
        guards.then(key.exists());
        let update = |instructions, start, expiry| Ask::UpdateIf {
            key: b"k",
            second_key: None,
            instructions,
            start,
            expiry,
        };
        let (set, del) = (
            |condition: Condition| Ask::Set {
                key: b"k",
                value: b"v",
                when: condition.into(),
                expiry: Expiry::Never,
            },
            |condition: Condition| Ask::Del {
                key: b"k",
                when: condition.into(),
            },
        );
        let exists = Instruction {
            operation: Operation::Exists,
            ..STEP
        };
        let sale = sale();
        for ask in [
            set(Condition::Absent),
            del(Condition::Present),
            update(&[STEP], None, Expiry::Keep),
            update(&[], Some(b"1"), Expiry::Keep),
            update(&[], None, Expiry::In(1)),
            Ask::Apply(&sale),
        ] {
            assert!(ask.needs_token(), "{ask:?}");
        }
        let at = At::TimeMs(1);
        for ask in [
            Ask::get(b"k"),
            Ask::GetAt { key: b"k", at },
            set(Condition::Always),
            del(Condition::Always),
            update(&[exists], None, Expiry::Keep),
            Ask::Apply(&guards),
            Ask::Scan(ScanRequest::begin(b"k")),
        ] {
            assert!(!ask.needs_token(), "{ask:?}");
        }
    }
}

//! What the keys of a transaction hold while its writes run one after the other.

use bytes::Bytes;
use penstock_net::apply::{
    Action, ApplyInstruction, ApplyKeys, ApplyRequest, Effects, Operand, run, write_apply,
};
use penstock_net::refusal::Refusal;
use penstock_net::request::Version;

/// What a key holds, as far as it is known before the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The key was not read.
    Unread,
    Missing,
    Present {
        bytes: Bytes,
        lifetime: Lifetime,
    },
    /// Only the commit decides.
    Undecided,
}

/// When a value expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// As the store told, in unix milliseconds; 0 is never. Effects may run with it.
    Stored(u64),
    /// As PUT gives it: never, or after the lifetime of the keyspace.
    Fresh,
    /// At this time, in unix milliseconds.
    At(u64),
    /// So many milliseconds after the commit.
    In(u64),
    /// An instruction of the caller has said it.
    Said,
}

/// The keys of a transaction by their numbers.
#[derive(Clone, Debug)]
pub(super) struct View(pub(super) Vec<Held>);

impl View {
    pub(super) fn held(&self, key: u8) -> &Held {
        &self.0[usize::from(key)]
    }

    pub(super) fn put(&mut self, key: u8, held: Held) {
        self.0[usize::from(key)] = held;
    }

    /// Runs one instruction on what is known.
    pub(super) fn run(&mut self, instruction: &ApplyInstruction) {
        let key = instruction.key;
        let after = match (instruction.action, self.held(key)) {
            // What is not read is evaluated when it is.
            (_, Held::Unread | Held::Undecided) => return,
            (Action::Delete, Held::Present { .. }) => Held::Missing,
            (Action::Expire(_), Held::Present { bytes, .. }) => Held::Present {
                bytes: bytes.clone(),
                lifetime: Lifetime::Said,
            },
            (Action::Change(..), Held::Present { bytes, lifetime }) => {
                match self.changed(instruction, bytes) {
                    Some(bytes) => Held::Present {
                        bytes,
                        lifetime: *lifetime,
                    },
                    None => Held::Undecided,
                }
            }
            (_, _) if !instruction.is_effect() => return,
            _ => Held::Undecided,
        };
        self.put(key, after);
    }

    /// What an effect on a number makes of a value; `None` if it fails or needs the time.
    fn changed(&self, instruction: &ApplyInstruction, bytes: &[u8]) -> Option<Bytes> {
        let Action::Change(change, at, operand) = instruction.action else {
            return None;
        };
        let (operand, other) = match operand {
            Operand::Now { .. } => return None,
            Operand::Field { key, at } if key != instruction.key => match self.held(key) {
                Held::Present { bytes, .. } => (Operand::Field { key: 1, at }, &bytes[..]),
                _ => return None,
            },
            Operand::Field { at, .. } => (Operand::Field { key: 0, at }, &[][..]),
            Operand::Immediate(_) => (operand, &[][..]),
        };
        let alone = ApplyInstruction {
            key: 0,
            action: Action::Change(change, at, operand),
            ..*instruction
        };
        let mut item = Vec::new();
        write_apply(&mut item, &[b"0", b"1"], &[alone], &[]);
        let request = ApplyRequest::read(&item, u32::MAX).ok()?;
        let mut pair = Pair([bytes.to_vec(), other.to_vec()]);
        run(&request, 0, &mut pair, &mut Vec::new()).ok()?;
        let [changed, _] = pair.0;
        Some(changed.into())
    }
}

/// The values that an effect on a number sees: its own, and that of its operand.
struct Pair([Vec<u8>; 2]);

impl<'a> ApplyKeys<'a> for Pair {
    fn existed(&self, _key: usize) -> bool {
        true
    }

    fn version(&self, _key: usize) -> Version {
        Version::default()
    }

    fn may_have_changed(&self, _key: usize, _since: Version) -> bool {
        true
    }

    fn value(&self, key: usize) -> Option<&[u8]> {
        Some(&self.0[key])
    }

    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        &mut self.0[key][start..][..width]
    }

    fn log_unchanged(&mut self, _key: usize) {}

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.0[key] = value.to_vec();
    }

    fn put(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.0[key] = value.to_vec();
        Ok(())
    }

    fn put_keeping(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.put(key, value)
    }

    fn delete(&mut self, key: usize) {
        self.0[key].clear();
    }

    fn expire(&mut self, _key: usize, _expiry_ms: Option<u64>) {}

    fn expiry_ms(&self, _key: usize) -> Option<u64> {
        None
    }

    fn arm(&mut self, _key: usize, _effects: &Effects<'a>) {}
}

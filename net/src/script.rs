//! SCRIPT: what a client of Redis asks for that one item cannot say: a script, or commands that run
//! together. It goes from the port to the shard that owns the keys.
//!
//! The item stays within one process: a connection over a network that sends one is refused by the
//! number of its operation. So its layout may change with the version of the server.
//!
//! ```text
//! at  bytes
//!  0  2   bytes of this head, 40
//!  2  1   operation, 12
//!  3  1   flags: 1 the script is named by its digest, 2 it only reads, 4 the reply is of RESP3,
//!         8 it uses no keys but those of the item, 16 the arguments are commands of EXEC,
//!         32 the only argument is a command by itself, 64 it may use any keys of its shard,
//!         128 it may use any keys of the node
//!  4  1   how often it has run and found that a key must be read first
//!  5  1   how often it has met a slot that a change over several shards has
//!  6  2   the slot of its first key; 65535: no key is known yet
//!  8  4   keys
//! 12  4   arguments
//! 16  8   the time of its first run in unix microseconds; 0 before it
//! 24  4   bytes of the script, 20 of a digest
//! 28  4   bytes of the reply, at most; 0 for those of a value
//! 32  4   steps that its scripts have taken in all runs
//! 36  4   microseconds that they have taken in all runs
//! 40  4   for each key and each argument, its length
//!     script, keys, arguments, one behind the other; zeros up to a multiple of 8
//! ```
//!
//! Commands have no script. Their keys are those that are watched. The first arguments are what was
//! seen of these, one for each; a command is an argument as `resp::queued` lays it out.

use crate::batch::{read_u16, read_u32, read_u64};
use crate::limits::KEY_BYTES_MAX;
use crate::refusal::Refusal;
use crate::request::is_reserved;
use crate::slot::SLOTS;

/// The number of the operation in an item.
pub const SCRIPT: u8 = 12;
/// How often a script runs before it is refused: each run but the last finds a key that must be
/// read first.
pub const SCRIPT_RUNS_MAX: u8 = 64;
/// How often a script meets a slot that a change over several shards has, before it is refused.
pub const SCRIPT_CLAIMS_MAX: u8 = 255;
/// Bytes of a reply, at most, whatever the item says.
pub const SCRIPT_REPLY_BYTES_MAX: usize = (16 << 20) - 64;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 20;
const HEAD_BYTES: usize = 40;
const RUNS_AT: usize = 4;
const CLAIMS_AT: usize = 5;
const SLOT_AT: usize = 6;
const TIME_AT: usize = 16;
const SPENT_STEPS_AT: usize = 32;
const SPENT_US_AT: usize = 36;
const FLAGS_AT: usize = 3;
const NO_SLOT: u16 = u16::MAX;
const FLAG_DIGEST: u8 = 1;
const FLAG_READS: u8 = 2;
const FLAG_RESP3: u8 = 4;
const FLAG_DECLARED: u8 = 8;
const FLAG_COMMANDS: u8 = 16;
const FLAG_COMMAND: u8 = 32;
const FLAG_NODE: u8 = 64;
const FLAG_SHARDS: u8 = 128;

/// What scripts of an item have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Steps.
    pub steps: u64,
    /// Microseconds.
    pub us: u64,
}

impl Spent {
    /// With what was taken besides.
    #[must_use]
    pub fn and(self, other: Spent) -> Spent {
        Spent {
            steps: self.steps.saturating_add(other.steps),
            us: self.us.saturating_add(other.us),
        }
    }
}

/// The script of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptName<'a> {
    /// Its text.
    Text(&'a [u8]),
    /// The SHA-1 of its text.
    Digest([u8; DIGEST_BYTES]),
    /// No script: the commands of an EXEC, whose reply is an array.
    Commands,
    /// No script: one command, whose reply is that of the item.
    Command,
}

/// What a script may do with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptAccess {
    /// Read and change them.
    Changes,
    /// Read them.
    Reads,
}

/// Which keys it may use. Items of a connection that may use the same slot keep their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptReach {
    /// Those of one slot.
    Slot,
    /// Any keys of the shard that has the first one.
    Node,
    /// Any keys of the node. It is under way alone on its connection.
    Shards,
}

/// One SCRIPT, checked, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRequest<'a> {
    head: &'a [u8; HEAD_BYTES],
    lengths: &'a [[u8; 4]],
    key_count: usize,
    script: &'a [u8],
    /// Keys and arguments, one behind the other.
    words: &'a [u8],
}

impl<'a> ScriptRequest<'a> {
    /// Reads one item.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(item: &'a [u8]) -> Result<Self, Refusal> {
        let length = |needed: u64| Refusal::ItemLength {
            len: item.len(),
            needed,
        };
        let head = item
            .first_chunk::<HEAD_BYTES>()
            .ok_or(length(HEAD_BYTES as u64))?;
        check_head(head)?;
        let (key_count, arguments) = (read_u32(head, 8), read_u32(head, 12));
        let words_at = HEAD_BYTES as u64 + 4 * (u64::from(key_count) + u64::from(arguments));
        let lengths = usize::try_from(words_at)
            .ok()
            .and_then(|end| item.get(HEAD_BYTES..end))
            .ok_or(length(words_at))?;
        let lengths = lengths.as_chunks::<4>().0;
        let script_len = read_u32(head, 24);
        let words = lengths
            .iter()
            .map(|len| u64::from(u32::from_le_bytes(*len)))
            .sum::<u64>();
        let end = words_at + u64::from(script_len) + words;
        if item.len() as u64 != end.next_multiple_of(8) {
            return Err(length(end.next_multiple_of(8)));
        }
        let rest = &item[HEAD_BYTES + 4 * lengths.len()..];
        let (script, rest) = rest.split_at(script_len as usize);
        let padding_len = usize::try_from(end.next_multiple_of(8) - end).expect("below 8");
        let (words, padding) = rest.split_at(rest.len() - padding_len);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Refusal::Padding {
                behind: "the arguments",
            });
        }
        let request = ScriptRequest {
            head,
            lengths,
            key_count: key_count as usize,
            script,
            words,
        };
        request.check_keys()?;
        Ok(request)
    }

    /// Keys are keys of clients. The head names the slot of one that the script uses; the shard of
    /// that slot judges the slots of the others.
    fn check_keys(&self) -> Result<(), Refusal> {
        if self.slot().is_none() && self.key_count > 0 {
            return Err(Refusal::Reserved {
                name: "the slot of a script with keys",
                found: NO_SLOT.into(),
            });
        }
        for (number, key) in self.keys().enumerate() {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
                let len = u16::try_from(key.len()).unwrap_or(u16::MAX);
                return Err(Refusal::KeyLength { key: number, len });
            }
            if is_reserved(key) {
                return Err(Refusal::KeyReserved { key: number });
            }
        }
        Ok(())
    }

    /// The script.
    #[must_use]
    pub fn script(&self) -> ScriptName<'a> {
        match self.script.try_into() {
            Ok(digest) if self.has(FLAG_DIGEST) => ScriptName::Digest(digest),
            _ if self.has(FLAG_COMMANDS) => ScriptName::Commands,
            _ if self.has(FLAG_COMMAND) => ScriptName::Command,
            _ => ScriptName::Text(self.script),
        }
    }

    /// The slot of the first of its keys, whose shard runs it. `None`: it names none, and has asked
    /// for none yet.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        Some(read_u16(self.head, SLOT_AT)).filter(|slot| *slot != NO_SLOT)
    }

    /// What it may do with keys.
    #[must_use]
    pub fn access(&self) -> ScriptAccess {
        match self.has(FLAG_READS) {
            true => ScriptAccess::Reads,
            false => ScriptAccess::Changes,
        }
    }

    /// Which keys it may use.
    #[must_use]
    pub fn reach(&self) -> ScriptReach {
        match (self.has(FLAG_SHARDS), self.has(FLAG_NODE)) {
            (true, _) => ScriptReach::Shards,
            (false, true) => ScriptReach::Node,
            (false, false) => ScriptReach::Slot,
        }
    }

    /// Whether the reply is of RESP3.
    #[must_use]
    pub fn is_of_resp3(&self) -> bool {
        self.has(FLAG_RESP3)
    }

    /// Whether it uses no keys but [`ScriptRequest::keys`].
    #[must_use]
    pub fn uses_declared_keys_alone(&self) -> bool {
        self.has(FLAG_DECLARED)
    }

    /// Bytes of the reply, at most, where a value has at most `value_bytes_max`.
    #[must_use]
    pub fn reply_bytes_max(&self, value_bytes_max: usize) -> usize {
        match read_u32(self.head, 28) {
            0 => value_bytes_max,
            bytes => (bytes as usize).min(SCRIPT_REPLY_BYTES_MAX),
        }
    }

    /// How often it has run.
    #[must_use]
    pub fn runs(&self) -> u8 {
        self.head[RUNS_AT]
    }

    /// How often it has met a slot that a change over several shards had.
    #[must_use]
    pub fn claims(&self) -> u8 {
        self.head[CLAIMS_AT]
    }

    /// The time of its first run in unix microseconds; `None` before it.
    #[must_use]
    pub fn time_us(&self) -> Option<u64> {
        Some(read_u64(self.head, TIME_AT)).filter(|us| *us != 0)
    }

    /// What its scripts have taken in the runs that are noted.
    #[must_use]
    pub fn spent(&self) -> Spent {
        Spent {
            steps: read_u32(self.head, SPENT_STEPS_AT).into(),
            us: read_u32(self.head, SPENT_US_AT).into(),
        }
    }

    /// The keys that the client has named.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.all_words().take(self.key_count)
    }

    /// The arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        self.all_words().skip(self.key_count)
    }

    fn all_words(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (words, mut at) = (self.words, 0);
        self.lengths.iter().map(move |len| {
            let start = at;
            at += u32::from_le_bytes(*len) as usize;
            &words[start..at]
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.head[FLAGS_AT] & flag != 0
    }
}

fn check_head(head: &[u8; HEAD_BYTES]) -> Result<(), Refusal> {
    let [operation, flags] = [head[2], head[FLAGS_AT]];
    if operation != SCRIPT {
        return Err(Refusal::Operation(operation));
    }
    let names = flags & (FLAG_DIGEST | FLAG_COMMANDS | FLAG_COMMAND);
    if names.count_ones() > 1 {
        return Err(Refusal::OperationFlags { operation, flags });
    }
    if usize::from(read_u16(head, 0)) != HEAD_BYTES {
        return Err(Refusal::BlockLength {
            found: read_u16(head, 0),
            expected: HEAD_BYTES,
        });
    }
    let slot = read_u16(head, SLOT_AT);
    let is_slot = slot < SLOTS || slot == NO_SLOT;
    let is_script = match (names, read_u32(head, 24) as usize) {
        (0, _) => true,
        (FLAG_DIGEST, len) => len == DIGEST_BYTES,
        (_, len) => len == 0,
    };
    let runs = head[RUNS_AT];
    if !is_slot || !is_script || runs > SCRIPT_RUNS_MAX {
        return Err(Refusal::Reserved {
            name: "the head of a script",
            found: runs.into(),
        });
    }
    Ok(())
}

/// The parts of a SCRIPT that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct ScriptItem<'a> {
    /// The script.
    pub script: ScriptName<'a>,
    /// What it may do with keys.
    pub access: ScriptAccess,
    /// Which keys it may use.
    pub reach: ScriptReach,
    /// The reply is of RESP3.
    pub is_of_resp3: bool,
    /// The slot of its first key. `None`: it names none.
    pub slot: Option<u16>,
    /// Bytes of the reply, at most; 0 for those of a value.
    pub reply_bytes_max: u32,
}

impl ScriptItem<'_> {
    /// Bytes of the item with words of so many bytes.
    #[must_use]
    pub fn item_bytes(&self, words: usize, words_bytes: usize) -> usize {
        (HEAD_BYTES + 4 * words + self.script_bytes().len() + words_bytes).next_multiple_of(8)
    }

    fn script_bytes(&self) -> &[u8] {
        match &self.script {
            ScriptName::Text(text) => text,
            ScriptName::Digest(digest) => digest,
            ScriptName::Commands | ScriptName::Command => &[],
        }
    }

    /// Appends the item: the first `keys` of `words` are keys, the others are arguments.
    ///
    /// # Panics
    /// If a word has 4 GiB or more.
    pub fn write<'w>(
        &self,
        keys: usize,
        words: impl Iterator<Item = &'w [u8]> + Clone,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let short = |number: usize| u32::try_from(number).expect("a command is bounded");
        let mut head = [0; HEAD_BYTES];
        head[0] = HEAD_BYTES.to_le_bytes()[0];
        head[2] = SCRIPT;
        let flags = [
            (FLAG_DIGEST, matches!(self.script, ScriptName::Digest(_))),
            (FLAG_READS, self.access == ScriptAccess::Reads),
            (FLAG_RESP3, self.is_of_resp3),
            (FLAG_COMMANDS, self.script == ScriptName::Commands),
            (FLAG_COMMAND, self.script == ScriptName::Command),
            (FLAG_NODE, self.reach == ScriptReach::Node),
            (FLAG_SHARDS, self.reach == ScriptReach::Shards),
        ];
        head[FLAGS_AT] = flags.iter().filter(|(_, is)| *is).map(|(bit, _)| bit).sum();
        let slot = self.slot.unwrap_or(NO_SLOT);
        head[SLOT_AT..SLOT_AT + 2].copy_from_slice(&slot.to_le_bytes());
        let count = words.clone().count();
        head[8..12].copy_from_slice(&short(keys).to_le_bytes());
        head[12..16].copy_from_slice(&short(count - keys).to_le_bytes());
        head[24..28].copy_from_slice(&short(self.script_bytes().len()).to_le_bytes());
        head[28..32].copy_from_slice(&self.reply_bytes_max.to_le_bytes());
        out.extend_from_slice(&head);
        for word in words.clone() {
            out.extend_from_slice(&short(word.len()).to_le_bytes());
        }
        out.extend_from_slice(self.script_bytes());
        words.for_each(|word| out.extend_from_slice(word));
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
    }
}

/// Has a SCRIPT use no keys but those that it names.
///
/// # Panics
/// If the item is none.
pub fn keep_to_declared_keys(item: &mut [u8]) {
    head_of(item)[FLAGS_AT] |= FLAG_DECLARED;
}

/// Notes in a SCRIPT without keys the slot of the first key that it has asked for.
///
/// # Panics
/// If the item is none.
pub fn note_slot(item: &mut [u8], slot: u16) {
    head_of(item)[SLOT_AT..SLOT_AT + 2].copy_from_slice(&slot.to_le_bytes());
}

/// Notes in a SCRIPT that it has run once more, at this time if it was the first time, and what its
/// scripts have taken in all runs.
///
/// # Panics
/// If the item is none, or has run [`SCRIPT_RUNS_MAX`] times.
pub fn note_run(item: &mut [u8], time_us: u64, spent: Spent) {
    let head = head_of(item);
    assert!(head[RUNS_AT] < SCRIPT_RUNS_MAX, "it runs no more");
    head[RUNS_AT] += 1;
    note_spent(item, time_us, spent);
}

/// Notes in a SCRIPT that it has met a slot that a change over several shards has; the rest as
/// [`note_run`].
///
/// # Panics
/// If the item is none, or has met [`SCRIPT_CLAIMS_MAX`].
pub fn note_claim(item: &mut [u8], time_us: u64, spent: Spent) {
    let head = head_of(item);
    assert!(head[CLAIMS_AT] < SCRIPT_CLAIMS_MAX, "it waits no more");
    head[CLAIMS_AT] += 1;
    note_spent(item, time_us, spent);
}

/// Notes in a SCRIPT when it has run first, and what its scripts have taken in all runs.
///
/// # Panics
/// If the item is none.
pub fn note_spent(item: &mut [u8], time_us: u64, spent: Spent) {
    let head = head_of(item);
    if read_u64(head, TIME_AT) == 0 {
        head[TIME_AT..TIME_AT + 8].copy_from_slice(&time_us.to_le_bytes());
    }
    for (at, taken) in [(SPENT_STEPS_AT, spent.steps), (SPENT_US_AT, spent.us)] {
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        head[at..at + 4].copy_from_slice(&taken.to_le_bytes());
    }
}

fn head_of(item: &mut [u8]) -> &mut [u8; HEAD_BYTES] {
    let head = item.first_chunk_mut::<HEAD_BYTES>();
    let head = head.expect("an item of a script has a head");
    assert!(head[2] == SCRIPT, "operation {} is no script", head[2]);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::slot_of;

    const TEXT: &[u8] = b"return redis.call('get', KEYS[1])";

    fn item(keys: &[&[u8]], arguments: &[&[u8]]) -> Vec<u8> {
        let words: Vec<&[u8]> = [keys, arguments].concat();
        let script = ScriptItem {
            script: ScriptName::Text(TEXT),
            access: ScriptAccess::Changes,
            reach: ScriptReach::Node,
            is_of_resp3: true,
            slot: keys.first().map(|key| slot_of(key)),
            reply_bytes_max: 0,
        };
        let mut out = Vec::new();
        script.write(keys.len(), words.iter().copied(), &mut out);
        let bytes = words.iter().map(|word| word.len()).sum();
        assert_eq!(out.len(), script.item_bytes(words.len(), bytes));
        out
    }

    #[test]
    fn a_script_comes_back_as_it_was_written() {
        let item = item(&[b"{a}stock", b"{a}buyer"], &[b"1", b"", b"three"]);
        let read = ScriptRequest::read(&item).expect("good");
        assert_eq!(read.script(), ScriptName::Text(TEXT));
        assert_eq!(read.slot(), Some(slot_of(b"{a}")));
        assert!(read.is_of_resp3());
        assert_eq!(read.access(), ScriptAccess::Changes);
        assert_eq!(read.reach(), ScriptReach::Node);
        assert_eq!((read.runs(), read.time_us()), (0, None));
        let keys: Vec<&[u8]> = read.keys().collect();
        assert_eq!(keys, [b"{a}stock", b"{a}buyer"]);
        let arguments: Vec<&[u8]> = read.arguments().collect();
        assert_eq!(arguments, [&b"1"[..], b"", b"three"]);
    }

    #[test]
    fn a_run_a_slot_and_a_bound_to_its_keys_are_noted_in_the_item() {
        let mut item = item(&[], &[b"x"]);
        assert_eq!(ScriptRequest::read(&item).expect("good").slot(), None);
        note_slot(&mut item, 77);
        keep_to_declared_keys(&mut item);
        let spent = |steps, us| Spent { steps, us };
        note_run(&mut item, 5, spent(300, 20));
        note_run(&mut item, 6, spent(600, u64::MAX));
        note_claim(&mut item, 7, spent(600, u64::MAX));
        note_spent(&mut item, 8, spent(600, u64::MAX));
        let read = ScriptRequest::read(&item).expect("good");
        assert_eq!((read.slot(), read.runs()), (Some(77), 2));
        assert_eq!(read.claims(), 1);
        assert_eq!(read.time_us(), Some(5));
        assert_eq!(read.spent(), spent(600, u32::MAX.into()));
        assert!(read.uses_declared_keys_alone());
    }

    #[test]
    fn an_item_that_is_cut_or_longer_is_refused_and_none_panics() {
        let whole = item(&[b"k"], &[b"a", b"bc"]);
        for end in 0..whole.len() {
            assert!(ScriptRequest::read(&whole[..end]).is_err(), "{end}");
        }
        assert!(ScriptRequest::read(&[&whole[..], &[0; 8]].concat()).is_err());
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                if let Ok(read) = ScriptRequest::read(&other) {
                    let _ = (read.script(), read.keys().count(), read.arguments().count());
                }
            }
        }
    }

    #[test]
    fn keys_of_the_server_or_without_a_byte_or_without_a_slot_are_refused() {
        let read = |keys: &[&[u8]]| ScriptRequest::read(&item(keys, &[])).map(|_| ());
        assert_eq!(read(&[b"a", b"b"]), Ok(()), "keys of two slots");
        let mut slotless = item(&[b"a"], &[]);
        note_slot(&mut slotless, NO_SLOT);
        let refused = ScriptRequest::read(&slotless).map(|_| ());
        assert!(matches!(refused, Err(Refusal::Reserved { .. })));
        assert!(matches!(read(&[b""]), Err(Refusal::KeyLength { .. })));
        let reserved = [crate::limits::RESERVED_KEY, b"x"].concat();
        assert!(matches!(
            read(&[&reserved]),
            Err(Refusal::KeyReserved { key: 0 })
        ));
    }
}

//! From the answer of an item to the reply of its command.

use std::io::Write as _;
use std::sync::Arc;

use crate::apply::{Decimal, NumberKind};
use crate::program::AnswerNames;
use crate::reply::{ITEM_FLAG_OVERFLOW, ITEM_FLAG_REPLAYED, NO_INSTRUCTION, PlainReply, ReplyItem};
use crate::scan::{ScanEntry, ScanPage, ScanValue};
use crate::status::Status;

use super::fields_read::FieldsRead;
use super::host::Host;
use super::model::{TOO_LONG, WRONG_TYPE, range_of, ttl_of};
use super::pattern::Pattern;
use super::reply::{Protocol, Replies, ValueLines};
use super::request::TtlForm;
use super::rights;
use super::scan;
use super::value_read::ValueRead;

/// How the answers of a command's items become its reply.
#[derive(Clone, Debug)]
pub(super) enum Fold {
    /// The reply is written.
    Written,
    /// The value.
    Value,
    /// The value as one of several: none of a key with members.
    Element,
    /// `OK`, or no value if a condition did not hold.
    Set,
    /// 1, or 0 if a condition did not hold.
    Flag,
    /// How many keys were there.
    Sum,
    /// `OK` when all are.
    Done,
    Length,
    Range(i64, i64),
    /// What the value tells of itself.
    Read(ValueRead),
    /// Its fields.
    Fields(FieldsRead),
    /// The number that an APPLY tells.
    Number,
    Ttl(TtlForm),
    /// INCREX by so much: what the number is, and what was added.
    Increased(i64),
    /// KV.APPLY and KV.RUN, with names if the connection wants them.
    Apply(Option<Arc<AnswerNames>>),
    /// The answer of a script or of commands that run together, which is a reply.
    Script,
    /// At how many nodes all writes are: so many less those that lack some of them.
    Nodes(i64),
    /// A page.
    Scan {
        /// Of its keys.
        pattern: Option<Box<[u8]>>,
        /// The number of the type of its keys.
        of_type: Option<u8>,
        /// The cursor stands behind the begin of its slot.
        is_inside: bool,
    },
    /// The command under way takes the answers.
    UnderWay,
}

/// An answer, and what its reply may need besides.
#[derive(Clone, Copy)]
pub(super) struct ItemAnswer<'a> {
    pub(super) item: &'a ReplyItem<'a>,
    pub(super) retry_after_ms: u16,
    pub(super) host: &'a dyn Host,
}

impl Fold {
    /// Writes the reply of a command of one item whose answer is plain. `false` if this is more
    /// than a few lines here: [`write`] does it.
    #[inline]
    pub(super) fn write_plain(
        &self,
        plain: &PlainReply<'_>,
        protocol: Protocol,
        lines: &mut ValueLines,
        out: &mut Vec<u8>,
    ) -> bool {
        let replies = &mut Replies::new(out, protocol);
        match (self, plain.is_ok) {
            (Fold::Number, true) => match plain.number() {
                Some(number) => replies.integer(number.cast_signed()),
                None => return false,
            },
            (Fold::Value | Fold::Element, true) => lines.bulk(plain.value, replies),
            (Fold::Value | Fold::Element | Fold::Set, false) => replies.null(),
            (Fold::Set, true) => replies.simple("OK"),
            (Fold::Flag | Fold::Sum, is_ok) => replies.integer(is_ok.into()),
            _ => return false,
        }
        true
    }
}

/// Whether the item was executed as asked, or did not apply.
#[inline]
pub(super) fn is_good(status: Status) -> bool {
    matches!(
        status,
        Status::Ok | Status::NotFound | Status::Exists | Status::VersionMismatch
    )
}

/// The reply of a command of one item, or the error of one of its items.
#[inline]
pub(super) fn write(
    fold: &Fold,
    sum: &mut i64,
    answer: ItemAnswer<'_>,
    slot: u16,
    replies: &mut Replies<'_>,
) {
    let item = answer.item;
    let status = item.head.status;
    match fold {
        Fold::Increased(by) => return increased(*by, answer, slot, replies),
        Fold::Apply(names) => return applied(names.as_deref(), answer, slot, replies),
        Fold::Nodes(_) => {
            note_nodes(fold, sum, answer);
            return end_fold(fold, *sum, replies);
        }
        Fold::Scan { is_inside, .. } if status == Status::Moved => {
            return pass_over(slot, *is_inside, answer.host, replies);
        }
        // No value is too long, but what the script or EXEC changes is together.
        Fold::Script if status == Status::TooLarge => {
            return replies.error(&[b"ERR nothing was executed: ", item.value].concat());
        }
        Fold::Element if status == Status::WrongType => return replies.null(),
        _ if !is_good(status) => return failed(answer, slot, replies),
        _ => {}
    }
    let is_ok = status == Status::Ok;
    match fold {
        Fold::Value | Fold::Element if is_ok => replies.bulk(item.value),
        Fold::Value | Fold::Element => replies.null(),
        Fold::Script if is_ok => replies.raw(item.value),
        Fold::Script => replies
            .error(b"TRYAGAIN nothing was executed: a key of the script has changed while it ran"),
        Fold::Set if is_ok => replies.simple("OK"),
        Fold::Set => replies.null(),
        Fold::Flag => replies.integer(is_ok.into()),
        Fold::Sum | Fold::Done => {
            *sum += i64::from(is_ok);
            end_fold(fold, *sum, replies);
        }
        Fold::Length => {
            let len = if is_ok { item.value.len() } else { 0 };
            replies.integer(i64::try_from(len).expect("values are bounded"));
        }
        Fold::Range(start, end) => {
            let value = if is_ok { item.value } else { &[] };
            replies.bulk(range_of(value, *start, *end));
        }
        Fold::Read(read) => read.write(Some(item.value).filter(|_| is_ok), replies),
        Fold::Fields(read) => read.write(Some(item.value).filter(|_| is_ok), replies),
        Fold::Number => {
            let number = item.field(0).unwrap_or(0);
            replies.integer(number.cast_signed());
        }
        Fold::Ttl(form) => {
            let expiry = item.expiry.filter(|_| is_ok);
            let now_ms = expiry.map_or(0, |expiry| expiry.time_ms);
            replies.integer(ttl_of(expiry.map(|expiry| expiry.expiry_ms), now_ms, *form));
        }
        Fold::Scan {
            pattern, of_type, ..
        } => page((pattern.as_deref(), *of_type), answer, replies),
        Fold::Written | Fold::UnderWay | Fold::Increased(_) | Fold::Apply(_) | Fold::Nodes(_) => {}
    }
}

/// Notes in `sum` how many nodes lack what one read of WAIT stands for, at most.
pub(super) fn note_nodes(fold: &Fold, sum: &mut i64, answer: ItemAnswer<'_>) {
    let Fold::Nodes(nodes) = fold else { return };
    let head = &answer.item.head;
    let have = match head.status {
        status if is_good(status) => *nodes,
        Status::NoReplicas => i64::from(head.reason).min(*nodes),
        _ => 0,
    };
    *sum = (*sum).max(nodes - have);
}

/// The reply when all items of a command were answered well.
pub(super) fn end_fold(fold: &Fold, sum: i64, replies: &mut Replies<'_>) {
    match fold {
        Fold::Done => replies.simple("OK"),
        Fold::Nodes(nodes) => replies.integer(nodes - sum),
        _ => replies.integer(sum),
    }
}

/// A page of keys: those that match, behind the cursor of the next page.
fn page(
    (pattern, of_type): (Option<&[u8]>, Option<u8>),
    answer: ItemAnswer<'_>,
    replies: &mut Replies<'_>,
) {
    let Ok(page) = ScanPage::read(answer.item.value) else {
        return replies.error(b"ERR a page of keys has another form than expected");
    };
    let pattern = pattern.map(Pattern::new);
    let is_wanted = |key: &[u8]| pattern.as_ref().is_none_or(|pattern| pattern.matches(key));
    let is_of_type =
        |entry: &ScanEntry<'_>| of_type.is_none_or(|number| entry.value == ScanValue::Type(number));
    let keys = page.entries().filter(is_of_type).map(|entry| entry.key);
    let keys: Vec<&[u8]> = keys.filter(|key| is_wanted(key)).collect();
    replies.array(2);
    let mut text = [0; 20];
    let mut rest = &mut text[..];
    let cursor = cursor_behind_page(scan::short_cursor(page.cursor), answer.host);
    write!(rest, "{cursor}").expect("20 digits at most");
    let len = 20 - rest.len();
    replies.bulk(&text[..len]);
    replies.array(keys.len());
    for key in keys {
        replies.bulk(key);
    }
}

/// The short cursor of the page behind the one that tells this one; 0 if that was the last.
pub(super) fn cursor_behind_page(cursor: u64, host: &dyn Host) -> u64 {
    // The page of a core is its last one when the next slot is that of another core.
    let is_over = !host.share().contains(&scan::slot_of_cursor(cursor));
    if is_over { 0 } else { cursor }
}

/// The short cursor behind slots that another node writes, of which this is the first; 0 if no
/// other slots follow.
#[cold]
pub(super) fn cursor_behind_others(slot: u16, host: &dyn Host) -> Result<u64, String> {
    let view = host.cluster().unwrap_or_default();
    if view.serves(slot, false) {
        // The cluster's file and the shard do not say the same yet.
        return Err(format!("TRYAGAIN another node wrote slot {slot} until now"));
    }
    let mut own = view.ranges.iter().filter(|range| range.writer == view.me);
    let share = host.share();
    let next = own.find(|range| range.first > slot && share.contains(&range.first));
    Ok(next.map_or(0, |range| scan::cursor_at(range.first, host.scan_order())))
}

/// An empty page in place of slots that another node writes: clients of Redis scan each node for
/// itself.
#[cold]
fn pass_over(slot: u16, is_inside: bool, host: &dyn Host, replies: &mut Replies<'_>) {
    if is_inside {
        let text = format!(
            "ERR SCAN: the cursor stands in slot {slot}, which another node writes: begin anew"
        );
        return replies.error(text.as_bytes());
    }
    let cursor = match cursor_behind_others(slot, host) {
        Ok(cursor) => cursor,
        Err(text) => return replies.error(text.as_bytes()),
    };
    replies.array(2);
    replies.bulk(cursor.to_string().as_bytes());
    replies.array(0);
}

/// The number and what was added to it; 0 if it would have left its bounds.
fn increased(by: i64, answer: ItemAnswer<'_>, slot: u16, replies: &mut Replies<'_>) {
    let item = answer.item;
    let number = item.field(0).unwrap_or(0).cast_signed();
    let (number, applied) = match item.head.status {
        Status::Ok => (number, by),
        // An overflow tells the number before, a guard behind the addition the one after.
        Status::GuardFailed if item.head.flags & ITEM_FLAG_OVERFLOW != 0 => (number, 0),
        Status::GuardFailed => (number.wrapping_sub(by), 0),
        _ => return failed(answer, slot, replies),
    };
    replies.array(2);
    replies.integer(number);
    replies.integer(applied);
}

/// What an APPLY tells.
fn applied(
    names: Option<&AnswerNames>,
    answer: ItemAnswer<'_>,
    slot: u16,
    replies: &mut Replies<'_>,
) {
    let (item, head) = (answer.item, &answer.item.head);
    let numbers = match head.status {
        Status::Ok | Status::GuardFailed => item.value.as_chunks::<8>().0,
        Status::NotFound | Status::VersionMismatch => &[],
        Status::BadField | Status::TooLarge => {
            return refused(head.status, item.value, answer.retry_after_ms, replies);
        }
        // It may be the program that is denied, so the text of the item is told.
        Status::Denied => return replies.error(&[b"NOPERM ", item.value].concat()),
        _ => return failed(answer, slot, replies),
    };
    replies.map(if names.is_some() { 8 } else { 6 });
    replies.bulk(b"status");
    replies.bulk(head.status.name().as_bytes());
    replies.bulk(b"numbers");
    replies.array(numbers.len());
    for bits in numbers {
        replies.integer(i64::from_le_bytes(*bits));
    }
    replies.bulk(b"instruction");
    replies.integer(match head.instruction {
        NO_INSTRUCTION => -1,
        instruction => instruction.into(),
    });
    replies.bulk(b"reason");
    replies.integer(head.reason.into());
    replies.bulk(b"version");
    let version = head.version;
    let mut text = [0; 31];
    let mut rest = &mut text[..];
    write!(rest, "{}:{}", version.epoch, version.sequence).expect("10 digits, a colon, 20 digits");
    let len = 31 - rest.len();
    replies.bulk(&text[..len]);
    replies.bulk(b"replayed");
    replies.integer((head.flags & ITEM_FLAG_REPLAYED != 0).into());
    if let Some(names) = names {
        named(names, item, numbers, replies);
    }
}

/// The numbers of an answer by their names, and the words of the instruction that failed.
fn named(
    names: &AnswerNames,
    item: &ReplyItem<'_>,
    numbers: &[[u8; 8]],
    replies: &mut Replies<'_>,
) {
    let instruction = usize::from(item.head.instruction);
    let mut fields: Vec<(&str, Option<NumberKind>)> = match item.head.status {
        Status::Ok => names.returned().collect(),
        _ => names
            .seen(instruction)
            .map(|(name, kind)| (name, Some(kind)))
            .into_iter()
            .collect(),
    };
    fields.truncate(numbers.len());
    replies.bulk(b"fields");
    replies.map(fields.len());
    for ((name, kind), bits) in fields.iter().zip(numbers) {
        replies.bulk(name.as_bytes());
        let bits = u64::from_le_bytes(*bits);
        let number = kind.map_or(i128::from(bits), |kind| kind.number(bits));
        match i64::try_from(number) {
            Ok(number) => replies.integer(number),
            Err(_) => replies.bulk(number.to_string().as_bytes()),
        }
    }
    replies.bulk(b"text");
    match names.text(instruction) {
        Some(text) if item.head.status != Status::Ok => replies.bulk(text.as_bytes()),
        _ => replies.null(),
    }
}

/// The error of an item that was not executed as asked.
#[cold]
pub(super) fn failed(answer: ItemAnswer<'_>, slot: u16, replies: &mut Replies<'_>) {
    let (item, head) = (answer.item, &answer.item.head);
    match head.status {
        Status::GuardFailed if head.flags & ITEM_FLAG_OVERFLOW != 0 => {
            replies.error(b"ERR increment or decrement would overflow");
        }
        Status::WrongType => replies.error(WRONG_TYPE),
        Status::BadField => replies.error(b"ERR value is not an integer or out of range"),
        Status::TooLarge => replies.error(TOO_LONG),
        // The lowest byte of the version is the number of the node that writes the slot.
        Status::Moved => moved(
            slot,
            Some(head.version.epoch.to_le_bytes()[0]),
            answer.host,
            replies,
        ),
        Status::Stale => moved(slot, None, answer.host, replies),
        status => refused(status, item.value, answer.retry_after_ms, replies),
    }
}

/// Sends the client to the node that writes the slot.
#[cold]
pub(super) fn moved(slot: u16, node: Option<u8>, host: &dyn Host, replies: &mut Replies<'_>) {
    let view = host.cluster().unwrap_or_default();
    let writer = node.or_else(|| view.range_of(slot).map(|range| range.writer));
    match writer.and_then(|writer| view.address_of(writer, slot)) {
        Some(address) => replies.error(format!("MOVED {slot} {address}").as_bytes()),
        None => replies.error(b"CLUSTERDOWN Hash slot not served"),
    }
}

/// The error of what was refused with a text.
#[cold]
fn refused(status: Status, text: &[u8], retry_ms: u16, replies: &mut Replies<'_>) {
    let (code, tail): (&[u8], &[u8]) = match status {
        Status::NotPrimary => {
            return replies.error(b"CLUSTERDOWN Hash slot not served");
        }
        Status::Denied => return replies.error(rights::NO_KEY),
        Status::Busy => (b"BUSY", text),
        Status::Full => (b"OOM", text),
        Status::CrossSlot => (b"CROSSSLOT", text),
        // The text begins with `nothing was executed` or `it was executed here`.
        Status::NoReplicas => (b"NOREPLICAS", text),
        Status::TokenReused => (b"TOKENREUSED", text),
        Status::TokenTooOld => (b"TOKENTOOOLD", text),
        Status::Draining => (b"ERR", b"the server is stopping"),
        _ => (b"ERR", text),
    };
    let mut error = [code, b" ", tail].concat();
    if status == Status::Busy && retry_ms > 0 {
        error.extend_from_slice(b"; try again in ");
        error.extend_from_slice(Decimal::new(retry_ms.into()).bytes());
        error.extend_from_slice(b" ms");
    }
    replies.error(&error);
}

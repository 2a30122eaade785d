//! From the answer of an item to the reply of its command.

use std::io::Write as _;

use crate::apply::Decimal;
use crate::reply::{ITEM_FLAG_OVERFLOW, ReplyItem};
use crate::scan::ScanPage;
use crate::status::Status;

use super::glob;
use super::model::{TOO_LONG, range_of, ttl_of};
use super::reply::Replies;
use super::request::TtlForm;
use super::scan;

/// How the answers of a command's items become its reply.
#[derive(Debug)]
pub(super) enum Fold {
    /// The reply is written.
    Written,
    /// The value.
    Value,
    /// `OK`, or no value if a condition did not hold.
    Set,
    /// 1, or 0 if a condition did not hold.
    Flag,
    /// How many keys were there.
    Sum,
    /// `OK` when all are.
    Done,
    Type,
    Length,
    Range(i64, i64),
    /// The number that an APPLY tells.
    Number,
    Ttl(TtlForm),
    /// A page; with this pattern of keys.
    Scan(Option<Box<[u8]>>),
    /// The transaction takes the answers.
    Transaction,
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
    item: &ReplyItem<'_>,
    retry_after_ms: u16,
    replies: &mut Replies<'_>,
) {
    let status = item.head.status;
    if !is_good(status) {
        return failed(item, retry_after_ms, replies);
    }
    let is_ok = status == Status::Ok;
    match fold {
        Fold::Value if is_ok => replies.bulk(item.value),
        Fold::Value => replies.null(),
        Fold::Set if is_ok => replies.simple("OK"),
        Fold::Set => replies.null(),
        Fold::Flag => replies.integer(is_ok.into()),
        Fold::Sum | Fold::Done => {
            *sum += i64::from(is_ok);
            end_fold(fold, *sum, replies);
        }
        Fold::Type => replies.simple(if is_ok { "string" } else { "none" }),
        Fold::Length => {
            let len = if is_ok { item.value.len() } else { 0 };
            replies.integer(i64::try_from(len).expect("values are bounded"));
        }
        Fold::Range(start, end) => {
            let value = if is_ok { item.value } else { &[] };
            replies.bulk(range_of(value, *start, *end));
        }
        Fold::Number => {
            let number = item.field(0).unwrap_or(0);
            replies.integer(number.cast_signed());
        }
        Fold::Ttl(form) => {
            let told = item.expiry.filter(|_| is_ok);
            let now_ms = told.map_or(0, |told| told.time_ms);
            replies.integer(ttl_of(told.map(|told| told.expiry_ms), now_ms, *form));
        }
        Fold::Scan(pattern) => page(pattern.as_deref(), item.value, replies),
        Fold::Written | Fold::Transaction => {}
    }
}

/// The reply when all items of a command were answered well.
pub(super) fn end_fold(fold: &Fold, sum: i64, replies: &mut Replies<'_>) {
    match fold {
        Fold::Done => replies.simple("OK"),
        _ => replies.integer(sum),
    }
}

/// A page of keys: those that match, behind the cursor of the next page.
fn page(pattern: Option<&[u8]>, page: &[u8], replies: &mut Replies<'_>) {
    let Ok(page) = ScanPage::read(page) else {
        return replies.error(b"ERR a page of keys has another form than expected");
    };
    let is_wanted = |key: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, key));
    let keys = || page.entries().filter(|entry| is_wanted(entry.key));
    replies.array(2);
    let mut text = [0; 20];
    let mut rest = &mut text[..];
    write!(rest, "{}", scan::short_cursor(page.cursor)).expect("20 digits at most");
    let len = 20 - rest.len();
    replies.bulk(&text[..len]);
    replies.array(keys().count());
    for entry in keys() {
        replies.bulk(entry.key);
    }
}

/// The error of an item that was not executed as asked.
#[cold]
pub(super) fn failed(item: &ReplyItem<'_>, retry_after_ms: u16, replies: &mut Replies<'_>) {
    let head = &item.head;
    match head.status {
        Status::GuardFailed if head.flags & ITEM_FLAG_OVERFLOW != 0 => {
            replies.error(b"ERR increment or decrement would overflow");
        }
        Status::BadField => replies.error(b"ERR value is not an integer or out of range"),
        Status::TooLarge => replies.error(TOO_LONG),
        status => refused(status, item.value, retry_after_ms, replies),
    }
}

/// The error of what was refused with a text.
#[cold]
pub(super) fn refused(status: Status, text: &[u8], retry_ms: u16, replies: &mut Replies<'_>) {
    let (code, tail): (&[u8], &[u8]) = match status {
        Status::Moved | Status::NotPrimary => {
            return replies.error(b"CLUSTERDOWN Hash slot not served");
        }
        Status::NoReplicas => {
            return replies.error(b"NOREPLICAS Not enough good replicas to write.");
        }
        Status::Busy => (b"BUSY", text),
        Status::Full => (b"OOM", text),
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

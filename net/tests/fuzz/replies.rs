//! What a client reads: batches of reply items, and texts.
//!
//! An input is one byte (whether the rest is a batch, an item or a text) and the bytes to read.

use penstock_net::frame::HEADER_BYTES;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, REPLY_ITEM_BYTES, ReplyItem, read_batch_reply, text_of};

use crate::target::Choices;
use crate::{check_refusal, without_memory};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let bytes = choices.rest();
    match manner % 3 {
        0 => match without_memory(|| read_batch_reply(bytes)) {
            Ok(batch) => {
                let mut out = Pieces::default();
                let mut reply = BatchReply::begin(&mut out, 1, batch.len());
                for number in 0..batch.len() {
                    item(batch.item(number));
                    let raw = Pieces::from(batch.item(number).to_vec());
                    reply.raw(&mut out, &mut raw.reader(), raw.len());
                }
                assert!(reply.finish(&mut out, 0, false, false));
                assert_eq!(
                    out.into_bytes()[HEADER_BYTES..],
                    *bytes,
                    "a batch has one form"
                );
            }
            Err(refusal) => check_refusal(refusal),
        },
        1 => item(bytes),
        _ => {
            if let Some(text) = without_memory(|| text_of(bytes)) {
                assert!(bytes[8..].starts_with(text.as_bytes()));
            }
        }
    }
}

fn item(bytes: &[u8]) {
    let item = match without_memory(|| ReplyItem::read(bytes)) {
        Ok(item) => item,
        Err(refusal) => return check_refusal(refusal),
    };
    assert_eq!(item.field(item.value.len() / 8), None);
    let mut again = Vec::new();
    let (expiry, standing) = (item.expiry, item.standing);
    match (expiry, standing) {
        (None, None) => item.head.write(&mut again, item.value),
        _ => item
            .head
            .write_extended(&mut again, expiry, standing, item.value),
    }
    assert!(expiry.is_none_or(|expiry| expiry.left_ms().is_none() == (expiry.expiry_ms == 0)));
    let start = REPLY_ITEM_BYTES + expiry.map_or(0, |_| 16) + standing.map_or(0, |_| 24);
    // A client passes over the padding.
    let end = start + item.value.len();
    assert_eq!(again[..end], bytes[..end], "an item has one form");
    assert_eq!(again.len(), bytes.len());
    assert!(again[end..].iter().all(|&byte| byte == 0));
}

//! Commands that repeat the one before them: the same bytes are the same item.

use super::super::sink::Sink;
use super::Talk;

impl Talk {
    /// The command at the front of `bytes`, which has so many, was one item. Adds as many copies of
    /// the item as the same bytes come behind it; returns how many. Commands that are not the same
    /// mostly differ before `differs_before`.
    #[inline(always)]
    pub(super) fn repeat(
        &mut self,
        bytes: &[u8],
        len: usize,
        differs_before: usize,
        item_bytes: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        match may_repeat(bytes, len, differs_before) {
            true => self.repeat_likely(bytes, len, item_bytes, sink),
            false => 0,
        }
    }

    #[inline(never)]
    fn repeat_likely(
        &mut self,
        bytes: &[u8],
        len: usize,
        item_bytes: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        let room = self.ring.room().min(sink.room_to_repeat(item_bytes));
        let times = repeats(bytes, len, room);
        if times > 0 {
            sink.repeat(times);
            self.ring.repeat(times);
        }
        times
    }
}

/// Whether the first `len` bytes may come again behind themselves, as far as the eight before
/// `end` tell.
#[inline]
fn may_repeat(bytes: &[u8], len: usize, end: usize) -> bool {
    let next = bytes[len..].get(..end);
    next.is_some_and(|next| next.last_chunk::<8>() == bytes[..end].last_chunk())
}

/// How often the first `len` bytes come again behind themselves, at most so many times.
fn repeats(bytes: &[u8], len: usize, most: usize) -> usize {
    let (first, rest) = bytes.split_at(len);
    if !rest.starts_with(first) {
        return 0;
    }
    // All are compared at once: in a sale all commands of a read are the same.
    let times = (rest.len() / len).min(most);
    if rest[..times * len] == bytes[..times * len] {
        return times;
    }
    let again = rest.chunks_exact(len).take(times);
    again.take_while(|next| *next == first).count()
}

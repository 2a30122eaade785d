//! Commands that repeat the one before them: the same bytes are the same item.

use super::super::sink::Sink;
use super::Talk;

impl Talk {
    /// The command at the front of `bytes`, which has so many, was one item. Adds as many copies of
    /// the item as the same bytes come behind it; returns how many.
    #[inline]
    pub(super) fn repeat(
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

/// How often the first `len` bytes come again behind themselves, at most so many times.
#[inline]
pub(super) fn repeats(bytes: &[u8], len: usize, most: usize) -> usize {
    let (first, rest) = bytes.split_at(len);
    // Commands of other keys mostly differ in their last bytes, so these are compared first.
    let next = rest.get(..len);
    if next.is_none_or(|next| next.last_chunk::<8>() != first.last_chunk::<8>()) {
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

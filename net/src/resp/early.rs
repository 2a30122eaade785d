//! What is known of replies before they can leave: those of commands with several items, and those
//! that came before the replies of earlier commands.
//!
//! Their bytes stand in one buffer. On a node of several shards most replies come early, and a
//! buffer for each would ask the allocator for each.

use std::ops::Range;

/// Capacity of the buffer that is kept when no reply is held.
const CAPACITY_KEPT: usize = 64 << 10;
/// Bytes of replies that have left, at which the replies that are held are moved together.
const LEFT_BYTES_MIN: usize = 16 << 10;

/// What is known of a reply before it can leave.
#[derive(Debug, Default)]
pub(super) struct Early {
    pub(super) sum: i64,
    pub(super) is_failed: bool,
    /// Whether the command has a token, and then whether its answer was given before.
    pub(super) replayed: Option<bool>,
    /// Where the reply stands in the buffer, or the error of one of the items.
    reply: Range<usize>,
}

/// The early parts of entries.
///
/// What must hold: replies do not overlap, an empty one is `0..0`, and `held_bytes` is the length
/// of all.
#[derive(Debug, Default)]
pub(super) struct EarlyParts {
    all: Vec<Early>,
    free: Vec<u16>,
    /// The replies, in the order in which they were written, and between them those that have left.
    bytes: Vec<u8>,
    held_bytes: usize,
}

impl EarlyParts {
    /// A new part.
    pub(super) fn take(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Early::default());
            u16::try_from(self.all.len() - 1).expect("one for each entry at most")
        })
    }

    pub(super) fn at(&mut self, place: u16) -> &mut Early {
        &mut self.all[usize::from(place)]
    }

    /// Bytes of all replies.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes of memory that the lists have.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
            + self.all.capacity() * size_of::<Early>()
            + self.free.capacity() * size_of::<u16>()
    }

    /// The reply of a part.
    #[cfg(test)]
    fn reply(&self, place: u16) -> &[u8] {
        &self.bytes[self.all[usize::from(place)].reply.clone()]
    }

    /// Has `write` append to the reply of a part. It gets the buffer, and the sum of the part.
    pub(super) fn write(&mut self, place: u16, write: impl FnOnce(&mut Vec<u8>, &mut i64)) {
        let early = &mut self.all[usize::from(place)];
        let start = self.bytes.len();
        self.held_bytes -= early.reply.len();
        self.bytes.extend_from_within(early.reply.clone());
        write(&mut self.bytes, &mut early.sum);
        // Nothing stands nowhere: the buffer may be cleared while the part is there.
        early.reply = match self.bytes.len() {
            end if end == start => 0..0,
            end => start..end,
        };
        self.held_bytes += early.reply.len();
    }

    /// Ends a part whose reply leaves. Tells whether its command had a token, and then whether its
    /// answer was given before.
    pub(super) fn end(&mut self, place: u16, out: &mut Vec<u8>) -> Option<bool> {
        let early = std::mem::take(&mut self.all[usize::from(place)]);
        self.free.push(place);
        self.held_bytes -= early.reply.len();
        out.extend_from_slice(&self.bytes[early.reply]);
        let left_bytes = self.bytes.len() - self.held_bytes;
        if self.held_bytes == 0 {
            self.bytes.clear();
            self.bytes.shrink_to(CAPACITY_KEPT);
        } else if left_bytes > LEFT_BYTES_MIN.max(self.held_bytes) {
            self.move_together();
        }
        early.replayed
    }

    /// Gives the room of replies that have left back. At least as many bytes have left as are
    /// moved.
    #[cold]
    fn move_together(&mut self) {
        let mut moved = Vec::with_capacity(self.held_bytes);
        for early in &mut self.all {
            let start = moved.len();
            moved.extend_from_slice(&self.bytes[early.reply.clone()]);
            if !early.reply.is_empty() {
                early.reply = start..moved.len();
            }
        }
        self.bytes = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers by chance from a seed.
    struct Chance(u64);

    impl Chance {
        /// By xorshift, which must not begin with 0.
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % end as u64).expect("below a usize")
        }
    }

    #[test]
    fn each_reply_leaves_as_it_was_written_in_whatever_order_they_come_and_leave() {
        for seed in 1_u64..=40 {
            let mut chance = Chance(seed);
            let mut parts = EarlyParts::default();
            let mut model: Vec<(u16, Vec<u8>)> = Vec::new();
            for step in 0..2_000_u32 {
                let is_growing = step % 1_000 < 600;
                match chance.below(10) {
                    0..=4 if is_growing => model.push((parts.take(), Vec::new())),
                    ..=7 if !model.is_empty() => {
                        let at = chance.below(model.len());
                        let (place, expected) = &mut model[at];
                        let text = vec![step.to_le_bytes()[0]; chance.below(900)];
                        parts.write(*place, |out, sum| {
                            out.extend_from_slice(&text);
                            *sum += 1;
                        });
                        expected.extend_from_slice(&text);
                        assert_eq!(parts.reply(*place), expected, "seed {seed}");
                        assert!(parts.at(*place).sum > 0);
                    }
                    _ if !model.is_empty() => {
                        let (place, expected) = model.swap_remove(chance.below(model.len()));
                        let mut out = b"before".to_vec();
                        assert_eq!(parts.end(place, &mut out), None);
                        assert_eq!(&out[6..], expected, "seed {seed}");
                    }
                    _ => {}
                }
                let held: usize = model.iter().map(|(_, reply)| reply.len()).sum();
                assert_eq!(parts.held_bytes(), held, "seed {seed}");
            }
            for (place, expected) in model {
                let mut out = Vec::new();
                parts.end(place, &mut out);
                assert_eq!(out, expected, "seed {seed}");
            }
            assert_eq!((parts.held_bytes(), parts.bytes.len()), (0, 0));
        }
    }

    #[test]
    fn replies_that_come_early_take_nothing_from_the_heap_once_the_buffers_are_warm() {
        let mut parts = EarlyParts::default();
        let mut out = Vec::with_capacity(1 << 16);
        let mut pipeline = |parts: &mut EarlyParts| {
            out.clear();
            let places = [(); 128].map(|()| parts.take());
            for place in places {
                parts.write(place, |out, _| out.extend_from_slice(&[7; 64]));
            }
            for place in places {
                parts.end(place, &mut out);
            }
        };
        pipeline(&mut parts);
        let taken = allocation_counter::measure(|| (0..10).for_each(|_| pipeline(&mut parts)));
        assert_eq!(taken.count_total, 0);
    }

    #[test]
    fn a_part_that_is_taken_anew_knows_nothing_of_the_one_before() {
        let mut parts = EarlyParts::default();
        let place = parts.take();
        parts.at(place).replayed = Some(true);
        parts.write(place, |out, sum| {
            out.push(b'x');
            *sum = 7;
        });
        assert_eq!(parts.end(place, &mut Vec::new()), Some(true));
        assert_eq!(parts.take(), place);
        assert!(parts.reply(place).is_empty());
        let part = parts.at(place);
        assert_eq!((part.sum, part.replayed), (0, None));
    }

    #[test]
    fn the_buffer_is_bounded_by_what_is_held_however_many_replies_pass_one_that_waits() {
        let mut parts = EarlyParts::default();
        let waits = parts.take();
        parts.write(waits, |out, _| out.extend_from_slice(&[1; 100]));
        for _ in 0..10_000 {
            let place = parts.take();
            parts.write(place, |out, _| out.extend_from_slice(&[2; 100]));
            parts.end(place, &mut Vec::new());
            assert!(parts.bytes.len() <= LEFT_BYTES_MIN + 200);
        }
        assert_eq!(parts.reply(waits), [1; 100]);
        let place = parts.take();
        parts.write(place, |out, _| out.resize(out.len() + (1 << 20), 3));
        parts.end(place, &mut Vec::new());
        parts.end(waits, &mut Vec::new());
        assert!(parts.bytes.capacity() <= CAPACITY_KEPT);
    }
}

//! A log that ends in a mark, with each of its bits flipped, one at a time, and the whole recovery
//! run over it.
//!
//! Three kinds of bits may flip without a refusal, and no other: those of the last mark and of the
//! zeros behind it, where no record stands and the start tells what it found; and those behind the
//! end of a sealed segment, which no start reads any more and the next one cuts off.

use std::time::Instant;

use penstock_storage::frame::{FRAME_HEADER_BYTES, FrameKind};
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::recovery::RecoveryError;

use crate::image::Image;
use crate::life::{Life, Record, Shape, filled};
use crate::map::{Span, What, map};
use crate::random::Random;
use crate::start::{NoStart, start};
use crate::tally::{Effort, Met, Tally};

/// Fields of a segment header; zeros follow to its CRC.
const SEGMENT_FIELD_BYTES: usize = 136;
const CRC_BYTES: usize = 4;
/// Of the bits that are no header's, a share takes one in so many.
const SHARE: usize = 23;

struct World {
    image: Image,
    appended: Vec<Record>,
    map: Vec<Span>,
    last_file: FileId,
}

/// Files of together `bytes`: sealed segments cut to their ends by a start, one sealed and not cut
/// yet, and one that ends in a mark.
fn world(
    shape: Shape,
    sealed: u64,
    frames_in_uncut: usize,
    frames_in_last: usize,
    bytes: usize,
) -> World {
    let mut life = Life::first(shape);
    let mut frames = 0;
    let largest = shape.log_config(1).record_bytes_max - 100;
    for number in 0..1_000 {
        let size = [40, largest, 700, largest / 2, 8][number % 5];
        life.put(&filled(number, size - number % 8));
        frames += usize::from(life.log.counters().segments == sealed);
        if frames == frames_in_uncut {
            break;
        }
    }
    let mut image = life.device.image;
    let mut verdict = start(&mut image, &life.appended).expect("a sound log");
    assert_eq!(verdict.records, life.appended.len());
    for action in verdict.actions.drain(..) {
        action.apply(&mut image);
    }
    for (spare, _) in verdict.spares.drain(..) {
        image.files.remove(&spare);
    }
    let used: usize = image.files.values().map(Vec::len).sum();
    let mut life = Life::after(shape, image, &verdict, life.appended);
    life.add_spare(bytes - used);
    for number in 1_000..1_004 {
        life.append(&filled(number, 100 + number % 7))
            .expect("room");
    }
    life.append(&vec![(b"gone".to_vec(), None), (b"too".to_vec(), None)])
        .expect("room");
    life.flush();
    for number in 0..frames_in_last {
        let parts = filled(2_000 + number, largest / 2 + number);
        life.append(&parts).expect("room");
        life.flush();
    }
    life.idle();
    let mut image = life.device.image;
    let map = map(&mut image);
    World {
        last_file: map.last().expect("a log").file,
        appended: life.appended,
        image,
        map,
    }
}

/// Nine files of together 1 MiB.
fn mebibyte() -> World {
    let shape = Shape {
        segment_bytes: 128 << 10,
        frame_bytes: 16 << 10,
        ..Shape::tiny(2, SyncMethod::DurableWrite)
    };
    world(shape, 8, 9, 9, 1 << 20)
}

/// Flips every bit of a log of 1 MiB; or all bits of all headers of a smaller one, and by seed a
/// share of its others.
pub fn walk(effort: Effort) -> Tally {
    match effort {
        Effort::All => mebibyte().flip(|_, _, _| true),
        Effort::Share => {
            let world = world(Shape::tiny(2, SyncMethod::DurableWrite), 3, 3, 1, 120 << 10);
            world.flip(|span, at, random| is_header_field(span, at) || random.once_in(SHARE))
        }
    }
}

impl World {
    /// Flips the bits that `is_wanted`, one at a time.
    fn flip(&self, is_wanted: impl Fn(&Span, usize, &mut Random) -> bool + Sync) -> Tally {
        let began = Instant::now();
        let mut tally = Tally::default();
        std::thread::scope(|scope| {
            let walks = [0, 1].map(|half| {
                let is_wanted = &is_wanted;
                scope.spawn(move || self.flip_half(half, is_wanted))
            });
            for walk in walks {
                tally.merge(walk.join().expect("recovery does not panic"));
            }
        });
        tally.elapsed = began.elapsed();
        tally
    }

    /// Flips bits of the bytes at even or odd offsets.
    fn flip_half(
        &self,
        half: usize,
        is_wanted: impl Fn(&Span, usize, &mut Random) -> bool,
    ) -> Tally {
        let mut tally = Tally::default();
        let mut random = Random::new(half as u64);
        let mut image = self.image.clone();
        for span in &self.map {
            for at in (span.start..span.end).filter(|at| at % 2 == half) {
                for bit in 0..8 {
                    if !is_wanted(span, at, &mut random) {
                        continue;
                    }
                    image.file(span.file)[at] ^= 1 << bit;
                    let met = self.judge(&mut image, span);
                    tally.add(met.map_err(|wrong| {
                        format!("{:08}.seg, byte {at}, bit {bit}: {wrong}", span.file.0)
                    }));
                    image.file(span.file)[at] ^= 1 << bit;
                }
            }
        }
        tally
    }

    /// Whether the verdict over `image`, in which one bit of `span` is flipped, is right.
    fn judge(&self, image: &mut Image, span: &Span) -> Result<Met, String> {
        let is_last = span.file == self.last_file;
        let holds_nothing = span.what == What::Rest || is_last && span.is_frame(FrameKind::Mark);
        match start(image, &self.appended) {
            Err(NoStart::Wrong(wrong)) => Err(wrong),
            Err(NoStart::Refused(RecoveryError::Corrupt(named)))
                if !holds_nothing
                    && (named.file, named.offset) == (span.file, span.start as u64) =>
            {
                Ok(Met::Refused)
            }
            Err(NoStart::Refused(error)) => {
                Err(format!("refused with another reason: {error}; in {span:?}"))
            }
            Ok(found) if found.records != self.appended.len() || !holds_nothing => {
                Err(format!("{} records are served; in {span:?}", found.records))
            }
            Ok(found) => match found.torn {
                Some(torn)
                    if is_last && (torn.file, torn.offset) == (span.file, span.start as u64) =>
                {
                    Ok(Met::Reported)
                }
                None if !is_last => Ok(Met::Unharmed),
                torn => Err(format!("told {torn:?}; in {span:?}")),
            },
        }
    }
}

fn is_header_field(span: &Span, at: usize) -> bool {
    match span.what {
        What::Header => at < SEGMENT_FIELD_BYTES || at >= span.end - CRC_BYTES,
        What::Frame(_) => at - span.start < FRAME_HEADER_BYTES,
        What::Rest => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_refused_where_it_stands_unless_nothing_stands_there() {
        let tally = walk(crate::effort());
        assert_eq!(tally.first_wrong, None);
        assert!(tally.refused > 0 && tally.reported > 0 && tally.unharmed > 0);
    }

    #[test]
    fn a_log_of_a_mebibyte_refuses_a_sample_of_its_bits() {
        let world = mebibyte();
        assert_eq!(
            world.image.files.values().map(Vec::len).sum::<usize>(),
            1 << 20
        );
        let tally = world.flip(|_, _, random| random.once_in(4_096));
        assert_eq!(tally.first_wrong, None);
        assert!(tally.worlds() > 1_500);
    }
}

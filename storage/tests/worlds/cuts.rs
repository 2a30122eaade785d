//! A log that ends in a mark, cut at every byte: the file ends there, zeros or garbage stand
//! behind, or only the frame that is cut loses its end and what follows stays.
//!
//! A shorter file and a hole before the mark are refused by name. Zeros and garbage up to the end
//! of the last file take the mark with them; what is left looks as a power cut leaves it, and the
//! whole frames before the cut are found again, no more and no less.

use std::time::Instant;

use penstock_storage::frame::FrameKind;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::recovery::RecoveryError;

use crate::image::Image;
use crate::life::{Life, Record, Shape, filled};
use crate::map::{Span, What, map};
use crate::random::Random;
use crate::start::{NoStart, start};
use crate::tally::{Effort, Met, Tally};

/// What stands behind the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    /// The file ends.
    Nothing,
    /// Zeros to the end of the file.
    Zeros,
    /// Noise to the end of the file.
    Noise,
    /// Zeros to the end of the frame, then all as it was.
    HoleOfZeros,
    /// Noise to the end of the frame, then all as it was.
    HoleOfNoise,
}

const ALL_BEHIND: [Behind; 5] = [
    Behind::Nothing,
    Behind::Zeros,
    Behind::Noise,
    Behind::HoleOfZeros,
    Behind::HoleOfNoise,
];

struct World {
    sound: Image,
    appended: Vec<Record>,
    map: Vec<Span>,
    last_file: FileId,
}

/// Three segments; frames of one record and of several, in the last a mark.
fn world() -> World {
    let mut life = Life::first(Shape::tiny(2, SyncMethod::DurableWrite));
    for number in 0..1_000 {
        life.put(&filled(number, 300 + number * 331 % 3_300));
        if life.log.counters().segments == 3 {
            break;
        }
    }
    for number in 100..103 {
        life.append(&filled(number, 60)).expect("room");
    }
    let parts = vec![
        (b"one".to_vec(), Some(vec![1; 40])),
        (b"two".to_vec(), None),
    ];
    life.append(&parts).expect("room");
    life.flush();
    life.idle();
    let mut sound = life.device.image;
    let map = map(&mut sound);
    let last_file = map.last().expect("a log").file;
    assert!(map.len() > 12, "{map:?}");
    // The spare that waits is no part of the log.
    sound.files.retain(|&file, _| file <= last_file);
    World {
        sound,
        appended: life.appended,
        map,
        last_file,
    }
}

/// Cuts every file at every byte (or a share of the bytes, those near a border always).
pub fn walk(effort: Effort) -> Tally {
    let began = Instant::now();
    let world = world();
    let mut jobs: Vec<(FileId, Behind)> = Vec::new();
    for &file in world.sound.files.keys() {
        jobs.extend(ALL_BEHIND.map(|behind| (file, behind)));
    }
    let mut tally = Tally::default();
    let (even, odd): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .enumerate()
        .partition(|(number, _)| number % 2 == 0);
    std::thread::scope(|scope| {
        let walks = [even, odd].map(|jobs| {
            let world = &world;
            scope.spawn(move || {
                let mut tally = Tally::default();
                for (_, (file, behind)) in jobs {
                    world.cut_everywhere(file, behind, effort, &mut tally);
                }
                tally
            })
        });
        for walk in walks {
            tally.merge(walk.join().expect("recovery does not panic"));
        }
    });
    tally.elapsed = began.elapsed();
    tally
}

impl World {
    fn cut_everywhere(&self, file: FileId, behind: Behind, effort: Effort, tally: &mut Tally) {
        let mut random = Random::new(u64::from(file.0));
        let mut image = self.sound.clone();
        for span in self.map.iter().rev().filter(|span| span.file == file) {
            for cut in (span.start..span.end).rev() {
                let bytes = image.file(file);
                match behind {
                    Behind::Nothing => bytes.truncate(cut),
                    Behind::Zeros | Behind::HoleOfZeros => bytes[cut] = 0,
                    Behind::Noise | Behind::HoleOfNoise => {
                        bytes[cut] ^= random.next().to_le_bytes()[0] | 1;
                    }
                }
                let from_border = (cut - span.start).min(span.end - 1 - cut);
                if effort == Effort::All || from_border < 8 || cut % 149 == 0 {
                    let met = self.judge(&mut image, span, cut, behind);
                    tally.add(met.map_err(|wrong| {
                        format!("{:08}.seg cut at {cut}, {behind:?}: {wrong}", file.0)
                    }));
                }
            }
            if matches!(behind, Behind::HoleOfZeros | Behind::HoleOfNoise) {
                image
                    .at(file, span.start, span.end - span.start)
                    .copy_from_slice(&self.sound.files[&file][span.start..span.end]);
            }
        }
    }

    /// Whether the verdict over `image`, damaged from `cut` in `span` on, is right.
    fn judge(
        &self,
        image: &mut Image,
        span: &Span,
        cut: usize,
        behind: Behind,
    ) -> Result<Met, String> {
        let is_last = span.file == self.last_file;
        let is_whole = image.files[&span.file] == self.sound.files[&span.file];
        let all = self.appended.len();
        let found = match start(image, &self.appended) {
            Err(NoStart::Wrong(wrong)) => return Err(wrong),
            Err(NoStart::Refused(RecoveryError::Corrupt(named))) => {
                let Some(damaged) = self.first_damaged(image, span.file) else {
                    return Err(format!("refused and undamaged: {named}"));
                };
                let is_mark = damaged.is_frame(FrameKind::Mark);
                let counts = damaged.what != What::Rest && !is_mark || behind == Behind::Nothing;
                let is_named = named.file == span.file
                    && (behind == Behind::Nothing
                        || damaged.what == What::Header
                        || (named.offset, named.lsn_from)
                            == (damaged.start as u64, self.lsn_at(damaged)));
                return if counts && is_named {
                    Ok(Met::Refused)
                } else {
                    Err(format!("refused wrongly: {named}; damaged {damaged:?}"))
                };
            }
            // A first block of zeros is that of a spare: then the segment is missing.
            Err(NoStart::Refused(RecoveryError::SegmentMissing { next, .. }))
                if next.0 == span.file.0 + 1
                    && self
                        .first_damaged(image, span.file)
                        .is_some_and(|damaged| damaged.what == What::Header) =>
            {
                return Ok(Met::Refused);
            }
            Err(NoStart::Refused(error)) => return Err(format!("refused: {error}")),
            Ok(found) => found,
        };
        let expected = match behind {
            _ if is_whole || span.what == What::Rest => all,
            // A mark holds nothing, so nothing is lost with it.
            Behind::HoleOfZeros | Behind::HoleOfNoise
                if is_last && span.is_frame(FrameKind::Mark) =>
            {
                all
            }
            Behind::Zeros | Behind::Noise if is_last => self.records_before(image, span),
            _ => {
                return Err(format!(
                    "{} of {all} records are served and nothing is refused",
                    found.records
                ));
            }
        };
        if is_last && behind == Behind::Nothing {
            return Err("a shorter file is taken".into());
        }
        if found.records != expected {
            return Err(format!(
                "{} records are served, {expected} were whole",
                found.records
            ));
        }
        // Something of what was cut is left, so there is something to tell.
        let damaged = self.first_damaged(image, span.file);
        let end = damaged.map_or(image.files[&span.file].len(), |damaged| damaged.start);
        let left = &image.files[&span.file][..];
        let must_report =
            is_last && cut >= BLOCK_BYTES && left[end..].iter().any(|&byte| byte != 0);
        match (must_report, found.torn) {
            (true, Some(torn)) if (torn.file, torn.offset) == (span.file, end as u64) => {
                Ok(Met::Reported)
            }
            (false, None) => Ok(Met::Unharmed),
            (_, torn) => Err(format!("told {torn:?}, the good frames end at {end}")),
        }
    }

    /// The first stretch of `file` that is not as it was.
    fn first_damaged(&self, image: &Image, file: FileId) -> Option<&Span> {
        let mut spans = self.map.iter().filter(|span| span.file == file);
        spans.find(|span| {
            image.files[&file].get(span.start..span.end)
                != Some(&self.sound.files[&file][span.start..span.end])
        })
    }

    /// The first record that is at risk with `span`.
    fn lsn_at(&self, span: &Span) -> penstock_storage::place::Lsn {
        match span.what {
            What::Frame(frame) => frame.first_lsn,
            What::Header => penstock_storage::place::Lsn(0),
            What::Rest => penstock_storage::place::Lsn(self.appended.len() as u64 + 1),
        }
    }

    /// Records up to the first frame that is not as it was, in `image` or before its segment.
    fn records_before(&self, image: &Image, damaged: &Span) -> usize {
        let header_is_whole = image.files[&damaged.file][..BLOCK_BYTES]
            == self.sound.files[&damaged.file][..BLOCK_BYTES];
        let good = self.map.iter().take_while(|span| {
            span.file != damaged.file
                || header_is_whole
                    && image.files[&span.file][span.start..span.end]
                        == self.sound.files[&span.file][span.start..span.end]
        });
        good.map(|span| match span.what {
            What::Frame(frame) => frame.record_count as usize,
            What::Header | What::Rest => 0,
        })
        .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_cut_at_any_byte_ends_in_whole_frames_or_is_refused_by_name() {
        let tally = walk(crate::effort());
        assert_eq!(tally.first_wrong, None);
        assert!(tally.refused > 0 && tally.reported > 0 && tally.unharmed > 0);
    }
}

//! Damage that no crash explains: done to a directory at rest, and judged by what the format says
//! can be proved of it.

use penstock_storage::contents::Contents;
use penstock_storage::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::layout::Layout;
use penstock_storage::place::FileId;
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::snapshot::SnapshotReader;
use penstock_storage::spare::{SpareHeader, holds_frame_of};

use crate::coverage::Fault;
use crate::disk::{Disk, SECTOR_BYTES};
use crate::random::Random;

/// What a start must make of the damage that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It refuses and names it, by what the log itself proves.
    Refusal,
    /// It refuses and names it, because a snapshot proves that the log went on.
    Contradicted,
    /// It starts and nothing is lost.
    Harmless,
    /// What is damaged cannot be told from the torn end of a crash.
    Hole,
}

struct Frame {
    header: FrameHeader,
    start: usize,
    end: usize,
}

struct Segment {
    file: FileId,
    header: SegmentHeader,
    frames: Vec<Frame>,
    /// What its last contents frame lists.
    contents: Option<Vec<u64>>,
    /// Where the frames end.
    end: usize,
}

/// The header of a segment, if it checks.
#[must_use]
pub fn header_of(image: &[u8]) -> Option<SegmentHeader> {
    match SegmentHeader::read(image.first_chunk::<BLOCK_BYTES>()?) {
        FirstBlock::Segment(header) => Some(header),
        _ => None,
    }
}

fn read_segment(file: FileId, image: &[u8]) -> Option<Segment> {
    let header = header_of(image)?;
    let mut frames = Vec::new();
    let mut contents = None;
    let mut end = BLOCK_BYTES;
    while let Some(bytes) = image.get(end..) {
        let Ok(frame) = FrameHeader::read(header.home(), end as u64, bytes) else {
            break;
        };
        let next = end + frame.padded_bytes();
        if next > image.len() || !FrameHeader::body_is_intact(header.home(), &image[end..next]) {
            break;
        }
        if frame.kind == FrameKind::Contents {
            let body = &image[end + FRAME_HEADER_BYTES..][..frame.body_bytes as usize];
            contents = Contents::read(body)
                .map(|contents| contents.segments.iter().map(|end| end.sequence).collect());
        }
        let is_last = frame.kind == FrameKind::Summary;
        frames.push(Frame {
            header: frame,
            start: end,
            end: next,
        });
        end = next;
        if is_last {
            break;
        }
    }
    Some(Segment {
        file,
        header,
        frames,
        contents,
        end,
    })
}

/// The segments of all logs as they should be, by log and place in it; those of void logs too.
fn segments(disk: &Disk) -> Vec<Segment> {
    let mut found: Vec<Segment> = disk
        .images()
        .filter(|(file, _)| !disk.strangers.contains(file))
        .filter_map(|(file, image)| {
            let is_touched = disk.damages.iter().any(|damage| damage.file == file);
            if !is_touched {
                return read_segment(file, image);
            }
            let mut image = image.to_vec();
            for damage in disk
                .damages
                .iter()
                .rev()
                .filter(|damage| damage.file == file)
            {
                let end = damage.offset + damage.good.len();
                image.resize(image.len().max(end), 0);
                image[damage.offset..end].copy_from_slice(&damage.good);
            }
            read_segment(file, &image)
        })
        .chain(
            disk.missing
                .iter()
                .filter_map(|(file, image)| read_segment(*file, image)),
        )
        .collect();
    found.sort_by_key(|segment| (segment.header.log_id, segment.header.sequence));
    found
}

/// The segments that their log has released, by its newest contents frame.
fn released(all: &[Segment], disk: &Disk) -> Vec<FileId> {
    let mut released = Vec::new();
    let is_there = |segment: &&Segment| !disk.missing.iter().any(|(file, _)| *file == segment.file);
    for log in all.chunk_by(|a, b| a.header.log_id == b.header.log_id) {
        let newest = log.iter().filter(is_there).rev().find_map(|segment| {
            let contents = segment.contents.clone()?;
            Some((segment.header.sequence, contents))
        });
        let Some((from, contents)) = newest else {
            continue;
        };
        released.extend(
            log.iter()
                .filter(|segment| {
                    segment.header.sequence < from && !contents.contains(&segment.header.sequence)
                })
                .map(|segment| segment.file),
        );
    }
    released
}

/// What a start must make of the disk as it is.
#[must_use]
pub fn expected(disk: &Disk, layout: &Layout) -> Expected {
    if !disk.strangers.is_empty() {
        return Expected::Refusal;
    }
    let all = segments(disk);
    let released = released(&all, disk);
    let mut verdict = Expected::Harmless;
    for (index, segment) in all.iter().enumerate() {
        if layout.is_void(segment.header.log_id) || released.contains(&segment.file) {
            // A start reads its header and nothing else.
            if is_touched(disk, segment.file) {
                verdict = worse(verdict, Expected::Hole);
            }
            continue;
        }
        let is_missing = |file| disk.missing.iter().any(|(missing, _)| *missing == file);
        let successor = all
            .get(index + 1)
            .filter(|next| next.header.log_id == segment.header.log_id);
        // The newest segment that is there ends the log for all that recovery can see.
        let is_ended = layout.end_of(segment.header.log_id).is_some();
        let is_last = !is_ended
            && successor.is_none_or(|next| {
                all[index + 1..]
                    .iter()
                    .filter(|later| later.header.log_id == next.header.log_id)
                    .all(|later| is_missing(later.file) || is_torn_activation(disk, later))
            });
        if is_missing(segment.file) {
            verdict = worse(
                verdict,
                if is_last {
                    Expected::Hole
                } else {
                    Expected::Refusal
                },
            );
            continue;
        }
        verdict = worse(verdict, of_segment(disk, segment, is_last));
    }
    match verdict {
        Expected::Refusal => Expected::Refusal,
        _ if is_contradicted(disk, layout) => Expected::Contradicted,
        verdict => verdict,
    }
}

/// Whether anything was done to a file.
fn is_touched(disk: &Disk, touched: FileId) -> bool {
    disk.damages.iter().any(|damage| damage.file == touched)
        || disk.missing.iter().any(|(file, _)| *file == touched)
        || disk.unreadable().iter().any(|(file, _)| *file == touched)
}

/// What the damage inside a segment means. A segment `is_last` if recovery sees none behind it.
fn of_segment(disk: &Disk, segment: &Segment, is_last: bool) -> Expected {
    let mut verdict = Expected::Harmless;
    let ranges = disk
        .damages
        .iter()
        .filter(|damage| {
            damage.file == segment.file && differs(disk, damage.file, damage.offset, &damage.good)
        })
        .map(|damage| (damage.offset, damage.offset + damage.good.len()))
        .chain(
            disk.unreadable()
                .iter()
                .filter(|(file, _)| *file == segment.file)
                .map(|&(_, place)| (place, place + SECTOR_BYTES)),
        );
    let is_unreadable = disk
        .unreadable()
        .iter()
        .any(|(file, _)| *file == segment.file);
    let image = disk.image(segment.file).expect("it is not missing");
    let evidence = evidence(segment, image);
    for (start, end) in ranges {
        let is_short = image.len() < end;
        let overlaps = |frame: &&Frame| frame.start < end && start < frame.end;
        let first = segment.frames.iter().find(overlaps);
        let this = if is_unreadable {
            // A start never guesses at a sector that it cannot read. A sector behind the end of a
            // sealed segment is not read.
            if is_last || start < segment.end {
                Expected::Refusal
            } else {
                Expected::Hole
            }
        } else if is_short && is_last {
            Expected::Refusal
        } else if start < BLOCK_BYTES {
            // Without its header, what a crash has left of a first frame may be the rot of a spare.
            // Nothing of it was ever acknowledged.
            if is_torn_activation(disk, segment) || segment.frames.is_empty() {
                Expected::Hole
            } else {
                Expected::Refusal
            }
        } else if let Some(frame) = first {
            let is_proven = !is_last || frame.header.first_lsn.0 <= evidence;
            if is_proven {
                Expected::Refusal
            } else {
                Expected::Hole
            }
        } else {
            // Behind the end of the log, a crash may explain it.
            Expected::Hole
        };
        verdict = worse(verdict, this);
    }
    verdict
}

/// Whether a log ends before the last record that its newest finished snapshot proves.
fn is_contradicted(disk: &Disk, layout: &Layout) -> bool {
    layout.own().any(|log_id| {
        let of_log = disk.snapshots.iter().rev();
        let to = of_log
            .filter(|(name, _)| name.log_id == log_id)
            .find_map(|(_, bytes)| {
                let read_at = |offset: u64, into: &mut [u8]| {
                    let offset = usize::try_from(offset).expect("small files");
                    let left = bytes.get(offset..).unwrap_or_default();
                    let moved = left.len().min(into.len());
                    into[..moved].copy_from_slice(&left[..moved]);
                    Ok(moved)
                };
                let reader = SnapshotReader::open(read_at, bytes.len() as u64).ok()?;
                Some(reader.footer().to.0)
            });
        let reached = disk.images().filter_map(|(file, image)| {
            let segment = read_segment(file, image).filter(|it| it.header.log_id == log_id)?;
            let last = segment.frames.last();
            let next = last.map_or(segment.header.first_lsn, |frame| frame.header.end_lsn());
            Some(next.0 - 1)
        });
        to > reached.max().or(Some(0))
    })
}

/// Zeroes the last segment of a log from one of its frames on, as a device does that loses writes
/// which it reported as durable.
pub fn lose_tail(disk: &mut Disk, random: &mut Random, layout: &Layout) -> Option<Fault> {
    let mut all = segments(disk);
    all.retain(|segment| layout.own().contains(&segment.header.log_id));
    let last = all
        .chunk_by(|a, b| a.header.log_id == b.header.log_id)
        .filter_map(|log| log.last().filter(|segment| !segment.frames.is_empty()));
    let last: Vec<&Segment> = last.collect();
    let segment = last.get(random.index(last.len().max(1)))?;
    let start = segment.frames[random.index(segment.frames.len())].start;
    disk.damage(segment.file, start, &vec![0; segment.end - start]);
    Some(Fault::LostTail)
}

/// Lets a bit of a spare rot. That is no damage: it proves nothing, and a start goes on without it.
pub fn rot_spare(disk: &mut Disk, random: &mut Random) -> Option<Fault> {
    let is_spare = |image: &&[u8]| image.iter().all(|&byte| byte == 0);
    let spares = disk.images().filter(|(_, image)| is_spare(image));
    let spares: Vec<(FileId, usize)> = spares.map(|(file, image)| (file, image.len())).collect();
    let &(file, bytes) = spares.get(random.index(spares.len().max(1)))?;
    disk.rot(file, random.index(bytes), 1 << random.below(8));
    Some(Fault::SpareRot)
}

/// The highest LSN that a header there, as it is now, knows to have been durable.
fn evidence(segment: &Segment, image: &[u8]) -> u64 {
    (BLOCK_BYTES..image.len())
        .step_by(BLOCK_BYTES)
        .filter_map(|at| FrameHeader::read(segment.header.home(), at as u64, &image[at..]).ok())
        .map(|frame| frame.durable_lsn.0)
        .max()
        .unwrap_or(0)
}

/// Whether a header does not check and nothing stands behind it, as a crash leaves it.
fn is_torn_activation(disk: &Disk, segment: &Segment) -> bool {
    let Some(image) = disk.image(segment.file) else {
        return false;
    };
    let spare = image.last_chunk().and_then(SpareHeader::read);
    let is_void = |block: &[u8]| match spare {
        Some(spare) => !holds_frame_of(spare.salt, BLOCK_BYTES as u64, block),
        None => block.iter().all(|&byte| byte == 0),
    };
    header_of(image).is_none() && image.get(BLOCK_BYTES..2 * BLOCK_BYTES).is_some_and(is_void)
}

fn differs(disk: &Disk, file: FileId, offset: usize, good: &[u8]) -> bool {
    disk.image(file)
        .and_then(|image| image.get(offset..offset + good.len()))
        != Some(good)
}

fn worse(a: Expected, b: Expected) -> Expected {
    match (a, b) {
        // Of two damages, the one may have destroyed the proof of the other. So a proof counts only
        // where no damage is without one.
        (Expected::Hole, _) | (_, Expected::Hole) => Expected::Hole,
        (Expected::Refusal, _) | (_, Expected::Refusal) => Expected::Refusal,
        _ => Expected::Harmless,
    }
}

/// Does one kind of damage to a disk at rest. `None` if there is nothing to do it to.
pub fn inflict(disk: &mut Disk, random: &mut Random, layout: &Layout) -> Option<Fault> {
    let mut all = segments(disk);
    all.retain(|segment| !layout.is_void(segment.header.log_id));
    if all.is_empty() {
        return None;
    }
    let segment = &all[random.index(all.len())];
    let file = segment.file;
    let frame =
        (!segment.frames.is_empty()).then(|| &segment.frames[random.index(segment.frames.len())]);
    let image = disk.image(file)?.to_vec();
    match random.below(12) {
        0..=3 => {
            // A bit, a byte, a sector; in a frame or in the header.
            let (start, end) = match frame {
                Some(frame) if !random.chance(150_000) => (frame.start, frame.end),
                _ => (0, BLOCK_BYTES),
            };
            let at = start + random.index(end - start);
            if random.chance(700_000) {
                disk.damage(file, at, &[image[at] ^ 1 << random.below(8)]);
            } else {
                let at = at / SECTOR_BYTES * SECTOR_BYTES;
                let bytes: Vec<u8> = (0..SECTOR_BYTES)
                    .map(|_| random.bits().to_le_bytes()[0])
                    .collect();
                disk.damage(file, at, &bytes);
            }
            Some(Fault::BitRot)
        }
        4 => {
            let frame = frame?;
            disk.damage(file, frame.start, &vec![0; frame.end - frame.start]);
            Some(Fault::BitRot)
        }
        5 => {
            let place = random.index(segment.end / SECTOR_BYTES) * SECTOR_BYTES;
            disk.make_unreadable(file, place);
            Some(Fault::LatentError)
        }
        6 => {
            // Within the header, within the frames or behind them.
            let bytes = match random.below(4) {
                0 => random.index(BLOCK_BYTES),
                _ => random.index(segment.end),
            };
            disk.shorten(file, bytes);
            Some(Fault::ShortFile)
        }
        7 => {
            disk.lose(file);
            Some(Fault::LostFile)
        }
        8 => {
            let mut header = segment.header;
            header.owner.node_id[0] ^= 1;
            let mut image = image;
            header.encode(image.first_chunk_mut()?);
            disk.add_stranger(image);
            Some(Fault::ForeignFile)
        }
        9 => {
            disk.add_stranger(image);
            Some(Fault::FileTwice)
        }
        10 => {
            // The frame or header of another program that knows this format but not this log.
            let frame = frame?;
            let mut bytes = image[frame.start..frame.end].to_vec();
            let mut header = frame.header;
            match random.below(3) {
                0 => header.first_lsn.0 += 1,
                1 if header.record_count > 0 => header.record_count += 1,
                _ => {
                    let mut header = segment.header;
                    header.previous_end_lsn.0 += 1;
                    let mut block = [0; BLOCK_BYTES];
                    header.encode(&mut block);
                    disk.damage(file, 0, &block);
                    return Some(Fault::Forgery);
                }
            }
            header.seal(segment.header.home(), &mut bytes);
            disk.damage(file, frame.start, &bytes);
            Some(Fault::Forgery)
        }
        _ => {
            let mut header = segment.header;
            header.chain = 1;
            let mut image = image;
            header.encode(image.first_chunk_mut()?);
            disk.add_stranger(image);
            Some(Fault::OtherVersion)
        }
    }
}

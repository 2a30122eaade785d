//! Worlds with a name: what the walks pass through or cannot reach, each built on purpose.

use penstock_storage::frame::FrameKind;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Lsn};
use penstock_storage::recovery::{Corruption, RecoveryError};
use penstock_storage::spare::SpareHeader;

use crate::image::Image;
use crate::life::{Life, OWNER, Shape, filled};
use crate::map::{Span, What, commits, map};
use crate::start::{NoStart, Start, start};
use crate::tally::{Met, Tally};

/// Name, and what adds its worlds up.
pub type Case = (&'static str, fn(&mut Tally));

pub const CASES: [Case; 7] = [
    ("stale", stale_frames),
    ("image", frame_image_in_a_value),
    ("orders", every_order_of_ends),
    ("torn", torn_mark_summary_and_header),
    ("misdirected", misdirected_write),
    ("lost", lost_write),
    ("lying", lying_sync),
];

const TINY: fn(usize) -> Shape = |in_flight| Shape::tiny(in_flight, SyncMethod::DurableWrite);

/// Exactly `records` are served; `Reported` if something was left out.
fn serves(found: Result<Start, NoStart>, records: usize) -> Result<Met, String> {
    match found {
        Ok(found) if found.records == records => Ok(match found.torn {
            Some(_) => Met::Reported,
            None => Met::Unharmed,
        }),
        found => Err(format!("not {records} records: {found:?}")),
    }
}

/// The start is refused for damage at the beginning of `span`.
fn refuses(found: Result<Start, NoStart>, span: &Span) -> Result<Corruption, String> {
    match found {
        Err(NoStart::Refused(RecoveryError::Corrupt(named)))
            if (named.file, named.offset) == (span.file, span.start as u64) =>
        {
            Ok(named)
        }
        found => Err(format!("not refused at {span:?}: {found:?}")),
    }
}

/// Some acknowledged records over two segments, with the mark at their end still to come.
fn unmarked(shape: Shape, records: usize) -> Life {
    let mut life = Life::first(shape);
    for number in 0..records {
        life.put(&filled(number, 500 + number * 773 % 3_000));
    }
    life
}

/// A file serves again with all its old frames in it: same log, same segment number, same offsets,
/// same LSNs. Only the salt differs. Every sector of a write may have reached the disk alone, the
/// header's too.
fn stale_frames(tally: &mut Tally) {
    const SALT: u64 = 0x5EED;
    let shape = TINY(2);
    let mut old = unmarked(shape, 3);
    old.idle();
    let mut image = old.device.image;
    image.files.retain(|&file, _| file == FileId(1));
    let header = SpareHeader {
        owner: OWNER,
        salt: SALT,
    };
    let file = image.file(FileId(1));
    header.encode(file.last_chunk_mut().expect("a block"));
    header.encode(file.first_chunk_mut().expect("a block"));
    let empty = Start {
        records: 0,
        torn: None,
        end: LogStart::default(),
        incarnation: 1,
        spares: Vec::new(),
        actions: Vec::new(),
    };
    let mut life = Life::after(shape, image, &empty, Vec::new());
    let bytes = shape.segment_bytes as u64;
    life.log.add_reused_spare(FileId(1), SALT, bytes);
    for number in 0..2 {
        life.append(&filled(10 + number, 1_200)).expect("room");
    }
    for _ in 0..5 {
        life.pump();
        let mut image = life.device.image.clone();
        let mut sectors = life.device.unflushed();
        for subset in 0..1u32 << sectors.len() {
            if subset > 0 {
                sectors[subset.trailing_zeros() as usize].toggle(&mut image);
            }
            let found = start(&mut image, &life.appended);
            tally.add(match found {
                Ok(found) if found.records < life.acked() => Err("an acknowledged one lost".into()),
                Ok(found) => Ok(found.torn.map_or(Met::Unharmed, |_| Met::Reported)),
                found => Err(format!("{found:?}")),
            });
        }
        if !life.device.under_way().is_empty() {
            life.complete(0);
        }
        life.append(&filled(12, 40));
    }
}

/// A client stores the bytes of the log in the log, block for block, and of the frame that holds
/// them any sectors are lost.
fn frame_image_in_a_value(tally: &mut Tally) {
    let shape = Shape {
        segment_bytes: 92 << 10,
        frame_bytes: 16 << 10,
        ..TINY(2)
    };
    let mut life = unmarked(shape, 2);
    life.idle();
    let image = life.device.image.clone();
    let span = commits(&map(&mut image.clone()))[0];
    // A frame, a mark and a header of this very segment, each at the start of a block.
    let mark = *map(&mut image.clone())
        .iter()
        .find(|span| span.is_frame(FrameKind::Mark))
        .expect("a mark");
    let bytes = &image.files[&span.file];
    let mut parts = filled(50, 1);
    let before = penstock_storage::frame::FRAME_HEADER_BYTES
        + penstock_storage::record::part_bytes(parts[0].0.len(), 0, false, 0);
    let mut value = vec![0xAB; BLOCK_BYTES - before];
    for block in [span.start, mark.start, 0] {
        value.extend_from_slice(&bytes[block..block + BLOCK_BYTES]);
    }
    value.truncate(value.len() - before);
    parts[0].1 = Some(value);
    life.append(&parts).expect("room");
    life.pump();
    let sectors = life.device.unflushed();
    let mut image = life.device.image.clone();
    let all = life.appended.len();
    for lost in 0..sectors.len() {
        let mut kept = sectors.clone();
        kept.remove(lost);
        for sector in &mut kept {
            sector.toggle(&mut image);
        }
        tally.add(serves(start(&mut image, &life.appended), all - 1));
        for sector in &mut kept {
            sector.toggle(&mut image);
        }
    }
    life.flush();
    tally.add(serves(start(&mut life.device.image, &life.appended), all));
}

/// Three frames under way end in each order. One counts only when all before it do.
fn every_order_of_ends(tally: &mut Tally) {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut life = unmarked(TINY(3), 1);
        for number in 1..4 {
            life.append(&filled(number, 3_000)).expect("room");
            life.pump();
        }
        assert_eq!(life.device.under_way().len(), 3);
        let mut ended = [false; 3];
        let mut under_way = vec![0, 1, 2];
        for frame in order {
            let index = under_way.iter().position(|&other| other == frame);
            under_way.remove(index.expect("it is under way"));
            life.complete(index.expect("it is under way"));
            ended[frame] = true;
            let expected = 1 + ended.iter().take_while(|&&ended| ended).count();
            tally.add(match life.acked() == expected {
                true => serves(
                    start(&mut life.device.image.clone(), &life.appended),
                    expected,
                ),
                false => Err(format!(
                    "{order:?}: {} acknowledged, not {expected}",
                    life.acked()
                )),
            });
        }
    }
}

/// Each of them is under way when the power goes, and its first bytes arrive, whatever their
/// number; where the rest was to be stand zeros or noise.
fn torn_mark_summary_and_header(tally: &mut Tally) {
    let torn = |life: &Life, tally: &mut Tally| {
        let sectors = life.device.unflushed();
        let Some(first) = sectors.first() else {
            panic!("something is under way")
        };
        let at = first.offset / BLOCK_BYTES * BLOCK_BYTES;
        let mut whole = life.device.image.clone();
        for mut sector in sectors.clone() {
            sector.toggle(&mut whole);
        }
        let bytes = whole.at(first.file, at, BLOCK_BYTES).to_vec();
        for arrived in 0..=BLOCK_BYTES {
            for rest in [0, 0xA7] {
                let mut image = life.device.image.clone();
                let block = image.at(first.file, at, BLOCK_BYTES);
                block[..arrived].copy_from_slice(&bytes[..arrived]);
                block[arrived..].fill(rest);
                tally.add(serves(start(&mut image, &life.appended), life.acked()));
            }
        }
    };
    // A mark.
    let mut life = unmarked(TINY(2), 2);
    life.now_us += 10_000;
    life.pump();
    torn(&life, tally);
    // The summary of a stop.
    let mut life = unmarked(TINY(2), 2);
    life.log.close();
    life.pump();
    torn(&life, tally);
    // The header of the second segment, alone under way behind a full one.
    let mut life = unmarked(TINY(2), 4);
    life.add_spares();
    let mut image = life.device.image.clone();
    while map(&mut image)
        .iter()
        .filter(|span| span.what == What::Header)
        .count()
        == 1
    {
        torn_header(&mut life, &torn, tally);
        image = life.device.image.clone();
    }
}

/// Goes on by one request; if that is a segment's header, tears it.
fn torn_header(life: &mut Life, torn: &impl Fn(&Life, &mut Tally), tally: &mut Tally) {
    if life.device.under_way().is_empty() {
        life.append(&filled(life.appended.len(), 2_500));
        life.pump();
    }
    if life
        .device
        .unflushed()
        .first()
        .is_some_and(|sector| sector.offset < BLOCK_BYTES)
    {
        torn(life, tally);
    }
    life.complete(0);
    life.pump();
}

/// A frame is written to another place: it is missing at its own, and what stood at the other is
/// gone.
fn misdirected_write(tally: &mut Tally) {
    let mut life = unmarked(TINY(2), 9);
    life.idle();
    let sound = life.device.image;
    let all = life.appended.len();
    let spans = map(&mut sound.clone());
    let last_file = spans.last().expect("a log").file;
    let place = |span: &Span| (span.file, span.start);
    for from in commits(&spans) {
        for to in &spans {
            // What is written later goes over it, and only the gap is left.
            if to.what != What::Rest && place(to) >= place(&from) {
                continue;
            }
            let bytes = sound.files[&from.file][from.start..from.end].to_vec();
            let overwrite = |image: &mut Image| {
                let len = bytes.len().min(image.files[&to.file].len() - to.start);
                image
                    .at(to.file, to.start, len)
                    .copy_from_slice(&bytes[..len]);
            };
            // There alone.
            let mut image = sound.clone();
            overwrite(&mut image);
            let found = start(&mut image, &life.appended);
            let counts = match to.what {
                What::Rest => false,
                What::Header => true,
                What::Frame(frame) => frame.kind != FrameKind::Mark || to.file != last_file,
            };
            tally.add(if counts {
                refuses(found, to).map(|_| Met::Refused)
            } else {
                serves(found, all).and_then(|met| {
                    match met == Met::Reported || to.file != last_file {
                        true => Ok(met),
                        false => Err(format!("nobody told of {to:?}")),
                    }
                })
            });
            // At its own place alone, and at both.
            for is_at_both in [false, true] {
                let mut image = sound.clone();
                image.at(from.file, from.start, bytes.len()).fill(0);
                if is_at_both {
                    overwrite(&mut image);
                }
                let found = start(&mut image, &life.appended);
                // Headers are looked at first, then the log from its beginning.
                let is_first = to.what == What::Header || counts && place(to) < place(&from);
                let named = if is_at_both && is_first { to } else { &from };
                tally.add(refuses(found, named).map(|_| Met::Refused));
            }
        }
    }
}

/// A frame that was acknowledged never reached the platter. Whatever went to the disk after its
/// acknowledgement proves it.
fn lost_write(tally: &mut Tally) {
    for in_flight in [1, 2, 3] {
        let mut life = unmarked(TINY(in_flight), 9);
        life.idle();
        let spans = map(&mut life.device.image);
        for lost in commits(&spans) {
            let mut image = life.device.image.clone();
            image
                .at(lost.file, lost.start, lost.end - lost.start)
                .fill(0);
            let frame = lost.frame();
            let last = Lsn(frame.end_lsn().0 - 1);
            tally.add(
                refuses(start(&mut image, &life.appended), &lost).and_then(|named| {
                    match named.lsn_from == frame.first_lsn && named.lsn_to >= Some(last) {
                        true => Ok(Met::Refused),
                        false => Err(format!("{named}; lost {frame:?}")),
                    }
                }),
            );
        }
    }
}

/// The device acknowledges the last group of frames and loses it. Nothing was written after it, so
/// nothing proves it: this is what a start cannot see, and it is no more than what was under way at
/// once. A mark behind it, and no record of it is given up in silence.
fn lying_sync(tally: &mut Tally) {
    for in_flight in [1, 2, 3] {
        let mut life = unmarked(TINY(in_flight), 1);
        let before = life.acked();
        for number in 1..=in_flight {
            life.append(&filled(number, 3_000)).expect("room");
            life.pump();
        }
        assert_eq!(life.device.under_way().len(), in_flight);
        while !life.device.under_way().is_empty() {
            life.complete(0);
        }
        let group = commits(&map(&mut life.device.image))[1..].to_vec();
        assert_eq!((group.len(), life.acked()), (in_flight, before + in_flight));
        let lose = |image: &Image, lost: &[Span]| {
            let mut image = image.clone();
            for span in lost {
                image
                    .at(span.file, span.start, span.end - span.start)
                    .fill(0);
            }
            image
        };
        let unmarked = life.device.image.clone();
        life.idle();
        for first in 0..group.len() {
            // The hole: acknowledged, and gone without a refusal.
            let mut image = lose(&unmarked, &group[first..]);
            tally.add(serves(start(&mut image, &life.appended), before + first));
            // The frames before the group are outside it.
            let mut image = lose(&unmarked, &commits(&map(&mut unmarked.clone()))[..1]);
            let first_frame = commits(&map(&mut unmarked.clone()))[0];
            tally.add(
                refuses(start(&mut image, &life.appended), &first_frame).map(|_| Met::Refused),
            );
            // With the mark the same loss is refused, with its range.
            let mut image = lose(&life.device.image, &group[first..]);
            let range = (
                Lsn((before + first + 1) as u64),
                Some(Lsn(life.acked() as u64)),
            );
            tally.add(
                refuses(start(&mut image, &life.appended), &group[first]).and_then(|named| match (
                    named.lsn_from,
                    named.lsn_to,
                )
                    == range
                {
                    true => Ok(Met::Refused),
                    false => Err(format!("{named}")),
                }),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the case of this name.
    fn check(name: &str) {
        let case = CASES.iter().find(|(other, _)| *other == name);
        let mut tally = Tally::default();
        case.expect("a case").1(&mut tally);
        assert_eq!(tally.first_wrong, None);
        assert!(tally.worlds() > 0);
    }

    #[test]
    fn stale_frames_of_a_recycled_file_are_nothing() {
        check("stale");
    }

    #[test]
    fn an_image_of_frames_inside_a_value_is_only_a_value() {
        check("image");
    }

    #[test]
    fn frames_that_end_out_of_order_are_acknowledged_in_order() {
        check("orders");
    }

    #[test]
    fn a_torn_mark_summary_or_header_costs_no_record() {
        check("torn");
    }

    #[test]
    fn a_misdirected_write_is_found_at_both_places() {
        check("misdirected");
    }

    #[test]
    fn a_lost_write_is_found_by_what_was_written_after_it() {
        check("lost");
    }

    #[test]
    fn a_lying_sync_of_the_last_group_is_the_one_hole_and_a_mark_closes_it() {
        check("lying");
    }
}

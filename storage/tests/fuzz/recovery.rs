//! A start, an inspection and a repair over files that were written well and then meddled with.
//!
//! An input is one byte for the directory and a list of edits. As long as no edit repairs a
//! checksum, what is recovered is what was written, from the first record on, and nothing is left
//! out that an intact frame proves to have been durable.

use std::collections::BTreeMap;

use penstock_storage::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameHome, FrameKind};
use penstock_storage::inspect::{LogReport, inspect};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::place::FileId;
use penstock_storage::record::{PartKind, PartView};
use penstock_storage::recovery::{Recovered, RecoveryError, Segment, recover, survey};
use penstock_storage::repair::{Plan, plan};
use penstock_storage::segment::SEGMENT_MAGIC;

use crate::FOLDER;
use crate::directory::{Directory, OWNER, all, header};
use crate::disk::Disk;
use crate::target::{Choices, keep};

const EDITS_MAX: usize = 24;

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let directories = all();
    let directory = &directories[choices.below(directories.len())];
    let mut device = Disk::default();
    device.files = directory.files.clone();
    let mut is_forged = false;
    for _ in 0..EDITS_MAX {
        if choices.is_empty() {
            break;
        }
        is_forged |= edit(directory, &mut device.files, &mut choices);
    }
    let bytes: usize = device.files.values().map(Vec::len).sum();
    let longest = device.files.values().map(Vec::len).max().unwrap_or(0);
    // A chunk of 1 MiB or a frame that lies within its file, while a buffer grows; what is told.
    let bound = (4 << 20) + 2 * longest as u64;
    let mut is_refused = false;
    let used = allocation_counter::measure(|| {
        is_refused = start(directory, &mut device, is_forged);
    });
    assert!(used.bytes_max <= bound, "{used:?} for {bytes} bytes");
    // A last segment that claims to be long is planned, and read back, in that length.
    let is_long = |bytes: &Vec<u8>| {
        header(bytes).is_some_and(|segment| segment.segment_bytes > REPAIRED_BYTES_MAX)
    };
    if device.files.values().any(is_long) {
        return;
    }
    let mut planned = None;
    let used = allocation_counter::measure(|| planned = plan(&mut device, OWNER).ok());
    let plan = planned.expect("the files can be listed");
    // A plan is tried on files of the lengths that they would have, as a start would read them.
    let made = plan.rebuilds.iter().map(|rebuild| rebuild.bytes).max();
    let bound = 2 * (bound + made.unwrap_or(0).max(REPAIRED_BYTES_MAX));
    assert!(used.bytes_max <= bound, "{used:?} for {bytes} bytes");
    assert_eq!(plan.is_needed(), is_refused, "{plan:?}");
    repair(directory, &device, &plan, is_forged);
}

/// One edit; whether it may have forged a checksum.
fn edit(
    directory: &Directory,
    files: &mut BTreeMap<FileId, Vec<u8>>,
    choices: &mut Choices<'_>,
) -> bool {
    let manner = choices.byte();
    let numbers: Vec<FileId> = files.keys().copied().collect();
    if numbers.is_empty() {
        return false;
    }
    let file = numbers[choices.below(numbers.len())];
    let bytes = files.get_mut(&file).expect("listed");
    let at = place(directory, file, bytes.len(), choices);
    match manner % 12 {
        0 if at < bytes.len() => bytes[at] ^= 1 << choices.below(8),
        1 if at < bytes.len() => bytes[at] = choices.byte(),
        2 | 3 => {
            let width = 1 << choices.below(4);
            let number = choices.number().to_le_bytes();
            for (byte, new) in bytes[at..].iter_mut().zip(&number[..width]) {
                *byte = *new;
            }
        }
        4 => {
            let start = at / 512 * 512;
            let end = (start + 512 * (1 + choices.below(16))).min(bytes.len());
            bytes[start..end].fill(0);
        }
        5 => {
            let from = choices.below(bytes.len() / BLOCK_BYTES + 1) * BLOCK_BYTES;
            let to = at / BLOCK_BYTES * BLOCK_BYTES;
            let len = BLOCK_BYTES.min(bytes.len() - from.max(to));
            bytes.copy_within(from..from + len, to);
        }
        6 => bytes.truncate(at),
        7 => bytes.resize(bytes.len() + choices.below(4) * BLOCK_BYTES, 0),
        8 => {
            files.remove(&file);
            return false;
        }
        9 => {
            let copy = bytes.clone();
            files.insert(FileId(100 + u32::from(choices.byte())), copy);
            return false;
        }
        10 => {
            let other = numbers[choices.below(numbers.len())];
            let copy = files[&other].clone();
            let was = files.insert(file, copy).expect("listed");
            files.insert(other, was);
            return false;
        }
        _ => {
            let new = choices.bytes(48);
            for (byte, new) in bytes[at..].iter_mut().zip(new) {
                *byte = *new;
            }
        }
    }
    if manner & 0x80 != 0 {
        seal(directory, file, files.get_mut(&file).expect("listed"));
        return true;
    }
    false
}

/// An offset in a file: mostly in one of its headers or behind one.
fn place(directory: &Directory, file: FileId, len: usize, choices: &mut Choices<'_>) -> usize {
    let of_file = |frame: &&crate::directory::Frame| frame.file == file;
    let frames: Vec<_> = directory.frames.iter().filter(of_file).collect();
    let start = match choices.byte() % 4 {
        0 => 0,
        1 => choices.below(len + 1),
        _ => match frames.len() {
            0 => 0,
            count => {
                let offset = frames[choices.below(count)].header.offset;
                usize::try_from(offset).expect("small files")
            }
        },
    };
    (start + choices.below(160)).min(len)
}

/// Puts every checksum right at the places where the frames of the file stood.
fn seal(directory: &Directory, file: FileId, bytes: &mut [u8]) {
    let crc_at = BLOCK_BYTES - 4;
    if bytes.len() >= BLOCK_BYTES && bytes[..8] == SEGMENT_MAGIC {
        let crc = crc32fast::hash(&bytes[..crc_at]);
        bytes[crc_at..BLOCK_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
    for frame in directory.frames.iter().filter(|frame| frame.file == file) {
        let at = usize::try_from(frame.header.offset).expect("small files");
        let home = header(bytes).map_or(frame.home, |segment| segment.home());
        if let Some(frame) = bytes.get_mut(at..)
            && frame.len() >= FRAME_HEADER_BYTES
        {
            seal_frame(home, frame);
        }
    }
}

/// Puts the checksums of a frame and of its parts right. `bytes` goes on to the end of the file.
fn seal_frame(home: FrameHome, bytes: &mut [u8]) {
    let u32_at = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    let body_bytes = u32_at(bytes, 44);
    let padded = (FRAME_HEADER_BYTES + body_bytes).next_multiple_of(BLOCK_BYTES);
    let frame_len = padded.min(bytes.len());
    let frame = &mut bytes[..frame_len];
    if frame[6] == 1 {
        let end = (FRAME_HEADER_BYTES + body_bytes).min(frame.len());
        let mut rest = &mut frame[FRAME_HEADER_BYTES..end];
        while rest.len() >= 40 {
            let (part, behind) = rest.split_at_mut(u32_at(rest, 0).clamp(8, rest.len()));
            let crc = crc32fast::hash(&part[8..]);
            part[4..8].copy_from_slice(&crc.to_le_bytes());
            rest = behind;
        }
    }
    let salted = |bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&home.salt.to_le_bytes());
        hasher.update(bytes);
        hasher.finalize().to_le_bytes()
    };
    let crc = salted(&frame[FRAME_HEADER_BYTES..]);
    frame[56..60].copy_from_slice(&crc);
    let crc = salted(&frame[..60]);
    frame[60..64].copy_from_slice(&crc);
}

/// What a start would do, and what an inspection says of the same files; whether both object.
fn start(directory: &Directory, device: &mut Disk, is_forged: bool) -> bool {
    let mut recovered: BTreeMap<u64, Recovered> = BTreeMap::new();
    let mut is_refused = false;
    match survey(device, OWNER) {
        Ok(survey) => {
            for (log_id, segments) in &survey.logs {
                match log(directory, device, segments, is_forged) {
                    Ok(found) => {
                        recovered.insert(*log_id, found);
                    }
                    Err(error) => {
                        is_refused = true;
                        check_error(&error);
                    }
                }
            }
        }
        Err(error) => {
            is_refused = true;
            check_error(&error);
        }
    }
    let mut shown = 0u64;
    let report = inspect(device, Some(OWNER), &mut |_| shown += 1);
    assert_eq!(
        report.damage.is_empty(),
        !is_refused,
        "a start is refused for what an inspection shows: {:?}",
        report.damage
    );
    report.damage.iter().for_each(check_error);
    for (log_id, found) in &recovered {
        let log: &LogReport = &report.logs[log_id];
        assert_eq!(
            (log.records, log.epoch_max, log.torn),
            (found.records, found.history.epoch_max, found.torn)
        );
        // A forged repair frame can hold records too.
        assert!(is_forged || log.commit_frames == found.frames);
    }
    let parts: u64 = report.logs.values().map(|log| log.parts).sum();
    assert!(shown >= parts);
    is_refused
}

fn check_error(error: &RecoveryError) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
}

/// One log of the directory.
fn log(
    directory: &Directory,
    device: &mut Disk,
    segments: &[Segment],
    is_forged: bool,
) -> Result<Recovered, RecoveryError> {
    let log_id = segments[0].header.log_id;
    let written = directory.records.get(&log_id).map(Vec::as_slice);
    let written = written.unwrap_or_default();
    let mut image = Disk::default();
    image.files = device.files.clone();
    let (mut record, mut parts) = (0, 0);
    let found = recover(device, segments, &mut |part, place| {
        let start = usize::try_from(place.offset).expect("small files");
        let behind = &image.files[&place.file][start..];
        let bytes = &behind[..behind.len().min(place.bytes as usize)];
        let alone = PartView::read(bytes).expect("a part can be read alone");
        assert_eq!(
            alone.bytes(),
            part.bytes(),
            "a part stands where its place says"
        );
        record += usize::from(part.ordinal() == 0);
        parts += 1;
        if !is_forged {
            let (key, value) = &written[record - 1][part.ordinal()];
            assert_eq!(
                (part.key(), part.value(), part.kind() == PartKind::Put),
                (
                    &key[..],
                    value.as_deref().unwrap_or_default(),
                    value.is_some()
                ),
                "record {record} is what was written"
            );
            assert_eq!(part.count(), written[record - 1].len());
        }
        Ok(())
    })?;
    assert_eq!(found.records, record as u64);
    let counted = found.records + found.given_up;
    assert_eq!(found.start.last_lsn.0, counted, "LSNs are dense from 1");
    if is_forged {
        return Ok(found);
    }
    let whole: usize = written[..record].iter().map(Vec::len).sum();
    assert_eq!(parts, whole, "a record is there whole or not at all");
    let last = segments.last().expect("a log has segments");
    for frame in &directory.frames {
        let Some(bytes) = image.files.get(&last.file) else {
            continue;
        };
        let is_there = frame.home == last.header.home()
            && usize::try_from(frame.header.offset)
                .ok()
                .and_then(|at| bytes.get(at..))
                .is_some_and(|bytes| {
                    FrameHeader::read(frame.home, frame.header.offset, bytes) == Ok(frame.header)
                });
        assert!(
            !is_there || frame.header.durable_lsn <= found.start.last_lsn,
            "{:?} proves more than {:?}",
            frame.header,
            found.start
        );
    }
    Ok(found)
}

/// Bytes of files that a plan may make here, at most; a forged length can ask for more.
const REPAIRED_BYTES_MAX: u64 = 4 << 20;

/// A start after the plan serves, and what it serves was written.
fn repair(directory: &Directory, device: &Disk, plan: &Plan, is_forged: bool) {
    for damage in &plan.damages {
        assert!(!damage.to_string().contains('\n'), "{damage}");
        assert!(damage.stretch.start <= damage.stretch.end, "{damage}");
    }
    plan.beyond.iter().for_each(check_error);
    let made: u64 = plan.rebuilds.iter().map(|rebuild| rebuild.bytes).sum();
    if plan.damages.is_empty() || !plan.beyond.is_empty() || made > REPAIRED_BYTES_MAX {
        return;
    }
    let mut before = Disk::default();
    before.files = device.files.clone();
    let mut after = Disk::default();
    after.files = device.files.clone();
    after.files.retain(|file, _| !plan.removals.contains(file));
    for rebuild in &plan.rebuilds {
        let len = usize::try_from(rebuild.bytes).expect("bounded above");
        let mut bytes = vec![0xEE; len];
        rebuild
            .read(&mut before, 0, &mut bytes)
            .expect("a good device");
        after.files.insert(rebuild.file, bytes);
    }
    let survey = survey(&mut after, OWNER).expect("a plan was tried");
    for (log_id, segments) in &survey.logs {
        let written = directory.records.get(log_id).map(Vec::as_slice);
        let written = written.unwrap_or_default();
        recover(&mut after, segments, &mut |part, _| {
            if is_forged {
                return Ok(());
            }
            // Sequences are the LSNs of the directories here.
            let sequence = usize::try_from(part.sequence()).expect("few records");
            let parts = &written[sequence - 1];
            let (key, value) = &parts[part.ordinal()];
            assert_eq!(
                (part.count(), part.key(), part.value()),
                (parts.len(), &key[..], value.as_deref().unwrap_or_default()),
                "what a repair keeps was written; versions decide what is newer"
            );
            Ok(())
        })
        .expect("a plan was tried");
    }
}

#[test]
fn edits_of_every_kind_are_kept() {
    let mut inputs = Vec::new();
    for (number, directory) in (0u8..).zip(all()) {
        let mut name = |what: &str, edits: &[u8]| {
            let input = [&[number], edits].concat();
            inputs.push((format!("directory-{number}-{what}"), input));
        };
        name("whole", &[]);
        let files = directory.files.len();
        assert!(files <= 32, "{files} files");
        for file in 0..u8::try_from(files).expect("few") {
            // In the last frame of the file, and a file without a frame in its header.
            name(&format!("flip-{file}"), &[0, file, 2, 200, 44, 3]);
            name(&format!("gone-{file}"), &[8, file, 0, 0]);
        }
        name("cut", &[6, 0, 2, 0, 0]);
        name("forged-length", &[0x82, 0, 2, 0, 44, 2, 96, 0]);
        name("forged-record", &[0x82, 0, 2, 0, 64, 2, 96, 0]);
        name("forged-segment", &[0x82, 0, 0, 104, 3, 96, 0]);
        name("copied-block", &[5, 0, 2, 0, 0, 1]);
        name("torn", &[4, 0, 2, 1, 0, 3]);
    }
    for kind in [FrameKind::Commit, FrameKind::Mark, FrameKind::Summary] {
        let mut frames = all().iter().flat_map(|directory| &directory.frames);
        assert!(frames.any(|frame| frame.header.kind == kind), "no {kind:?}");
    }
    keep(FOLDER, "recovery", &inputs);
}

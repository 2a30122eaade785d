//! A repair gives up what cannot be read, says so before, and nothing else.

use std::collections::BTreeMap;

use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::io::{BLOCK_BYTES, SegmentSource};
use penstock_storage::layout::Layout;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::recovery::Row;
use penstock_storage::repair::{Loss, Plan, plan, plan_laid_out};
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::snapshot::{ProvenEnd, ProvenEnds, SnapshotName};

use crate::disk::Disk;
use crate::journal::{Journal, OWNER, Parts, read_back};
use crate::random::Random;
use crate::seed::{Seed, seeds};

type Files = BTreeMap<FileId, Vec<u8>>;

const FIRST: FileId = FileId(1);
const SECOND: FileId = FileId(2);
const THIRD: FileId = FileId(3);

/// Records of several sizes in three segments: one sealed by rotation, one by a stop, one marked.
fn three_segments() -> (Files, Vec<Parts>) {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    while journal.log.counters().segments < 2 {
        several(&mut journal);
    }
    several(&mut journal);
    journal.close();
    journal.restart(SyncMethod::DurableWrite).unwrap();
    several(&mut journal);
    several(&mut journal);
    journal.idle();
    let files = journal.disk.files.into_iter();
    let used = files.filter(|(_, bytes)| bytes[..BLOCK_BYTES] != [0; BLOCK_BYTES]);
    (used.collect(), journal.appended)
}

/// A frame of three records, one of them of two parts, and one of a single large one.
fn several(journal: &mut Journal) {
    journal.add_spares();
    let number = journal.appended.len();
    let key = |part: usize| format!("stock:{number}/{part}").into_bytes();
    journal.put(&key(1), &[1; 8]);
    journal
        .append(&vec![(key(2), Some(vec![2; 40])), (key(3), None)])
        .unwrap();
    journal.put(&key(4), &[4; 300]);
    journal.flush();
    journal.put(&key(5), &[5; 9_000]);
    journal.flush();
}

fn plan_of(files: &Files) -> Plan {
    let plan = plan(&mut Disk::from(files.clone()), OWNER).unwrap();
    assert!(plan.beyond.is_empty(), "{:?}", plan.beyond);
    plan
}

/// The files after the plan.
fn repaired(files: &Files, plan: &Plan) -> Files {
    let mut disk = Disk::from(files.clone());
    let mut after = files.clone();
    after.retain(|file, _| !plan.removals.contains(file));
    for rebuild in &plan.rebuilds {
        // In pieces that begin and end anywhere.
        let mut bytes = vec![0xEE; usize::try_from(rebuild.bytes).unwrap()];
        for (number, piece) in bytes.chunks_mut(7_001).enumerate() {
            rebuild
                .read(&mut disk, number as u64 * 7_001, piece)
                .unwrap();
        }
        after.insert(rebuild.file, bytes);
    }
    assert!(disk.files == *files);
    after
}

/// Carries out the plan and reads back.
fn records_after(files: &Files, plan: &Plan) -> Vec<Parts> {
    let after = repaired(files, plan);
    let again = plan_of(&after);
    assert!(!again.is_needed(), "{:?}", again.damages);
    let mut journal = Journal::new(SyncMethod::DurableWrite, 2);
    journal.disk = Disk::from(after);
    // The log goes on, and is read back once more.
    let restart = journal.restart(SyncMethod::DurableWrite).unwrap();
    let lost = restart.recovered.unwrap().given_up;
    let planned: u64 = plan
        .damages
        .iter()
        .filter_map(|damage| damage.lost_records)
        .sum();
    assert_eq!(lost, planned, "{:?}", plan.damages);
    let found = restart.records;
    read_back(&mut journal.disk).unwrap();
    found
}

/// The plan for files whose log was durable up to `lsn`, as a snapshot proves.
fn plan_up_to(files: &Files, lsn: u64) -> Plan {
    let name = SnapshotName {
        log_id: 3,
        number: 1,
    };
    let end = ProvenEnd {
        lsn: Lsn(lsn),
        snapshot: name,
        incarnation: 2,
        time_ms: 5,
    };
    let proven = ProvenEnds::from([(3, end)]);
    let layout = Layout::new(u16::MAX);
    let plan = plan_laid_out(&mut Disk::from(files.clone()), OWNER, &layout, &proven).unwrap();
    assert!(plan.beyond.is_empty(), "{:?}", plan.beyond);
    plan
}

/// As [`records_after`]; the snapshot contradicts nothing any more.
fn records_up_to(files: &Files, plan: &Plan, lsn: u64) -> Vec<Parts> {
    let again = plan_up_to(&repaired(files, plan), lsn);
    assert!(!again.is_needed(), "{:?}", again.damages);
    records_after(files, plan)
}

#[test]
fn a_tail_that_a_snapshot_proves_lost_is_counted_behind_the_end_and_costs_its_records() {
    let (mut files, all) = three_segments();
    let count = all.len() as u64;
    assert!(!plan_up_to(&files, count).is_needed(), "all of it is there");
    // From the last but one frame of the last segment on: three records, then one.
    let third = files.get_mut(&THIRD).unwrap();
    let at = find(third, all[all.len() - 4][0].0.as_slice()) / BLOCK_BYTES * BLOCK_BYTES;
    third[at..].fill(0);
    assert!(!plan_of(&files).is_needed(), "the log alone proves nothing");
    let plan = plan_up_to(&files, count);
    assert_eq!(losses(&plan), [format!("3:{}-{count}", count - 3)]);
    assert_eq!(plan.damages[0].row, Row::TailLost);
    assert_eq!(
        plan.touched().count(),
        0,
        "no file that is there is changed"
    );
    assert_eq!(records_up_to(&files, &plan, count), all[..all.len() - 4]);
}

#[test]
fn a_last_segment_that_is_gone_is_counted_if_a_snapshot_proves_it() {
    let (mut files, all) = three_segments();
    let count = all.len() as u64;
    files.remove(&THIRD);
    assert!(!plan_of(&files).is_needed());
    let plan = plan_up_to(&files, count);
    let left = read_back(&mut Disk::from(files.clone()))
        .unwrap()
        .records
        .len();
    assert_eq!(losses(&plan), [format!("3:{}-{count}", left + 1)]);
    assert_eq!(records_up_to(&files, &plan, count), all[..left]);

    // And the whole log.
    let plan = plan_up_to(&Files::new(), count);
    assert_eq!(losses(&plan), [format!("3:1-{count}")]);
    assert!(records_up_to(&Files::new(), &plan, count).is_empty());
}

#[test]
fn whole_frames_behind_a_gap_stay_if_a_snapshot_proves_the_gap_durable() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    (0..3).for_each(|_| several(&mut journal));
    let mut files = journal.disk.files.clone();
    files.retain(|_, bytes| bytes[..BLOCK_BYTES] != [0; BLOCK_BYTES]);
    let all = journal.appended;
    // The last large record is torn, and the frame before it is gone, all as if never acknowledged.
    let first = files.get_mut(&FIRST).unwrap();
    let at = find(first, b"stock:8/1") / BLOCK_BYTES * BLOCK_BYTES;
    first[at..at + BLOCK_BYTES].fill(0);
    let plan = plan_up_to(&files, 12);
    assert_eq!(losses(&plan), ["3:9-11"]);
    assert_eq!(records_up_to(&files, &plan, 12), without(&all, [9, 10, 11]));
}

fn without(all: &[Parts], lost: impl IntoIterator<Item = usize>) -> Vec<Parts> {
    let mut left: Vec<Option<Parts>> = all.iter().cloned().map(Some).collect();
    lost.into_iter().for_each(|lsn| left[lsn - 1] = None);
    left.into_iter().flatten().collect()
}

fn losses(plan: &Plan) -> Vec<String> {
    plan.losses().map(|loss| loss.to_string()).collect()
}

/// The place of a value in a file.
fn find(bytes: &[u8], key: &[u8]) -> usize {
    bytes
        .windows(key.len())
        .position(|window| window == key)
        .unwrap()
}

#[test]
fn a_sound_directory_needs_no_repair() {
    let (files, _) = three_segments();
    let plan = plan_of(&files);
    assert!(!plan.is_needed());
    assert!(plan.rebuilds.is_empty() && plan.removals.is_empty());
}

#[test]
fn a_flipped_bit_in_a_record_costs_that_record_alone() {
    let (mut files, all) = three_segments();
    // Of the second frame: LSN 5 is one part, 6 two, 7 one.
    let at = find(&files[&FIRST], b"stock:4/3");
    files.get_mut(&FIRST).unwrap()[at] ^= 1;
    let plan = plan_of(&files);
    assert_eq!(losses(&plan), ["3:5-7"]);
    let damage = &plan.damages[0];
    assert_eq!(damage.row, Row::EarlierDamaged);
    assert_eq!((damage.kept_records, damage.lost_records), (2, Some(1)));
    let keys: Vec<_> = damage
        .lost_parts
        .iter()
        .map(|part| (&part.key[..], part.is_checked))
        .collect();
    assert_eq!(keys, [(&b"stock:4/2"[..], true), (b"rtock:4/3", false)]);
    assert_eq!(records_after(&files, &plan), without(&all, [6]));
}

#[test]
fn a_frame_header_that_is_gone_costs_nothing() {
    let (mut files, all) = three_segments();
    let at = find(&files[&THIRD], b"PKFR");
    files.get_mut(&THIRD).unwrap()[at..at + FRAME_HEADER_BYTES].fill(0);
    let plan = plan_of(&files);
    assert_eq!(plan.damages[0].row, Row::LastDamaged);
    assert_eq!(losses(&plan), [""; 0]);
    assert_eq!(records_after(&files, &plan), all);
}

#[test]
fn a_segment_header_that_is_gone_is_made_anew_and_costs_nothing() {
    for file in [FIRST, SECOND, THIRD] {
        for damage in [0, 7] {
            let (mut files, all) = three_segments();
            files.get_mut(&file).unwrap()[..BLOCK_BYTES].fill(damage);
            let plan = plan_of(&files);
            assert_eq!(losses(&plan), [""; 0], "{file:?}");
            assert_eq!(records_after(&files, &plan), all, "{file:?}");
        }
    }
}

#[test]
fn a_segment_header_and_the_frame_behind_it_cost_what_the_frame_held() {
    for file in [SECOND, THIRD] {
        let (mut files, all) = three_segments();
        files.get_mut(&file).unwrap()[..2 * BLOCK_BYTES].fill(7);
        let plan = plan_of(&files);
        let [
            Loss::Records {
                from, to: Some(to), ..
            },
        ] = plan.losses().collect::<Vec<_>>()[..]
        else {
            panic!("{:?}", plan.damages)
        };
        let lost = usize::try_from(from.0).unwrap()..=usize::try_from(to.0).unwrap();
        assert_eq!(
            records_after(&files, &plan),
            without(&all, lost),
            "{file:?}"
        );
    }
}

#[test]
fn a_missing_segment_costs_its_records_and_those_behind_it_stay() {
    let (sound, all) = three_segments();
    let header = |file| {
        let block = sound[&file].first_chunk().unwrap();
        let FirstBlock::Segment(header) = SegmentHeader::read(block) else {
            panic!("a header")
        };
        header
    };
    for (file, next) in [(FIRST, SECOND), (SECOND, THIRD)] {
        let mut files = sound.clone();
        files.remove(&file);
        let plan = plan_of(&files);
        let (from, to) = (header(file).first_lsn.0, header(next).previous_end_lsn.0);
        assert_eq!(losses(&plan), [format!("3:{from}-{to}")]);
        assert_eq!(plan.damages[0].row, Row::SegmentMissing);
        let lost = usize::try_from(from).unwrap()..=usize::try_from(to).unwrap();
        assert_eq!(records_after(&files, &plan), without(&all, lost));
    }
    let mut files = sound.clone();
    files.retain(|&file, _| file == THIRD);
    let plan = plan_of(&files);
    let to = usize::try_from(header(THIRD).previous_end_lsn.0).unwrap();
    assert_eq!(losses(&plan), [format!("3:1-{to}")]);
    assert_eq!(records_after(&files, &plan), without(&all, 1..=to));
}

#[test]
fn a_second_file_for_one_place_leaves_and_costs_nothing_if_it_is_a_copy() {
    let (mut files, all) = three_segments();
    files.insert(FileId(9), files[&SECOND].clone());
    let plan = plan_of(&files);
    assert_eq!(plan.removals, [FileId(9)]);
    assert_eq!(losses(&plan), [""; 0]);
    assert_eq!(records_after(&files, &plan), all);
}

#[test]
fn a_file_of_which_nothing_is_known_leaves_and_is_a_loss() {
    let (mut files, all) = three_segments();
    files.insert(FileId(9), vec![7; 3 * BLOCK_BYTES]);
    files.insert(FileId(10), vec![7; 100]);
    let plan = plan_of(&files);
    assert_eq!(losses(&plan), ["file:9", "file:10"]);
    assert_eq!(records_after(&files, &plan), all);
}

#[test]
fn a_last_segment_that_was_cut_is_a_loss_without_an_end() {
    let (mut files, all) = three_segments();
    let bytes = files.get_mut(&THIRD).unwrap();
    let at = find(bytes, &[5; 100]);
    bytes.truncate(at);
    let plan = plan_of(&files);
    let last = plan.losses().last().unwrap();
    let Loss::Records { from, to: None, .. } = last else {
        panic!("{last}")
    };
    let left = usize::try_from(from.0).unwrap() - 1;
    assert!(left < all.len());
    assert_eq!(records_after(&files, &plan), all[..left]);
}

#[test]
fn an_earlier_segment_that_was_cut_costs_what_is_gone() {
    let (mut files, all) = three_segments();
    let at = find(&files[&FIRST], b"stock:8/1");
    files.get_mut(&FIRST).unwrap().truncate(at);
    let plan = plan_of(&files);
    assert_eq!(plan.damages[0].row, Row::EarlierCutShort);
    let FirstBlock::Segment(next) = SegmentHeader::read(files[&SECOND].first_chunk().unwrap())
    else {
        panic!("a header")
    };
    let to = next.previous_end_lsn.0;
    assert_eq!(losses(&plan), [format!("3:9-{to}")]);
    let lost = 9..=usize::try_from(to).unwrap();
    assert_eq!(records_after(&files, &plan), without(&all, lost));
}

#[test]
fn a_torn_tail_is_left_to_the_start_even_when_something_else_is_repaired() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    while journal.log.counters().segments < 2 {
        several(&mut journal);
    }
    journal.idle();
    let durable = journal.appended.clone();
    // Two frames in flight; the first of them is lost, the second got there.
    journal.put(b"torn", b"1");
    journal.pump();
    journal.put(b"whole", b"2");
    journal.pump();
    journal.complete(1);
    let mut files = journal.disk.files.clone();
    files.retain(|_, bytes| bytes[..BLOCK_BYTES] != [0; BLOCK_BYTES]);
    let at = find(&files[&FIRST], b"stock:4/3");
    files.get_mut(&FIRST).unwrap()[at] ^= 1;
    let plan = plan_of(&files);
    assert_eq!(plan.rebuilds.len(), 1);
    assert_eq!(records_after(&files, &plan), without(&durable, [6]));
}

/// A client stores parts in values: they are found in the stretch and are no parts.
#[test]
fn what_a_client_put_into_a_value_is_never_taken_for_a_part() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    journal.put(b"stock:42", &[0x29; 8]);
    journal.flush();
    let mut image = journal.disk.files[&FIRST][BLOCK_BYTES + FRAME_HEADER_BYTES..][..56].to_vec();
    image.extend_from_within(..);
    image.extend_from_within(..);
    journal.put(b"evil1234", &image);
    journal.put(b"evil5678", &image);
    journal.flush();
    journal.idle();
    let all = journal.appended.clone();
    let at = find(&journal.disk.files[&FIRST], b"evil1234");
    for byte in at - 40..at + 8 + image.len() {
        for bit in 0..8 {
            let mut files = journal.disk.files.clone();
            files.get_mut(&FIRST).unwrap()[byte] ^= 1 << bit;
            let left = records_after(&files, &plan_of(&files));
            assert!(
                left == without(&all, [2]) || left == without(&all, [2, 3]),
                "byte {byte}, bit {bit}: {left:?}"
            );
        }
    }
}

#[test]
fn segments_that_contradict_each_other_are_beyond_repair() {
    let (mut files, _) = three_segments();
    let block = files.get_mut(&SECOND).unwrap().first_chunk_mut().unwrap();
    let FirstBlock::Segment(mut header) = SegmentHeader::read(block) else {
        panic!("a header")
    };
    header.previous_sequence = 9;
    header.encode(block);
    let plan = plan(&mut Disk::from(files), OWNER).unwrap();
    assert_eq!(plan.beyond.len(), 1);
    assert_eq!(plan.beyond[0].row(), Some(Row::HeaderContradicts));
}

/// Any damage: what recovery refuses can be repaired, what is left is of what was there, in its
/// order, and no more is missing than the plan says.
#[test]
fn whatever_is_damaged_is_served_after_its_plan_and_lacks_no_more_than_it_says() {
    let (sound, all) = three_segments();
    for seed in seeds(400) {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let mut files = sound.clone();
        for _ in 0..1 + random.below(3) {
            let file = [FIRST, SECOND, THIRD][random.below(3)];
            let Some(bytes) = files.get_mut(&file) else {
                continue;
            };
            let at = random.below(bytes.len().max(1));
            let end = (at + random.below(3 * BLOCK_BYTES)).min(bytes.len());
            match random.below(8) {
                0 => drop(files.remove(&file)),
                1 => bytes.truncate(at),
                2 => bytes[at..end].fill(0),
                3 => bytes[at..end].fill_with(|| random.next().to_le_bytes()[0]),
                4 => bytes[..BLOCK_BYTES.min(end)].fill(0),
                _ if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
                _ => {}
            }
        }
        let refused = {
            let mut disk = Disk::from(files.clone());
            disk.files().unwrap();
            read_back(&mut disk).is_err()
        };
        let plan = plan_of(&files);
        assert_eq!(plan.is_needed(), refused, "{:?}", plan.damages);
        if !refused {
            continue;
        }
        let left = records_after(&files, &plan);
        let mut lost = vec![false; all.len() + 1];
        for loss in plan.losses() {
            match loss {
                Loss::Records { from, to, .. } => {
                    let to = to.unwrap_or(Lsn(all.len() as u64)).0.min(all.len() as u64);
                    for lsn in from.0..=to {
                        lost[usize::try_from(lsn).unwrap()] = true;
                    }
                }
                // It may have been any.
                Loss::File(_) => lost.fill(true),
            }
        }
        // A last file that is gone, or whose end is all zeros, cannot be told from a shorter log.
        let mut next = left.iter().peekable();
        let mut missing = Vec::new();
        for (index, record) in all.iter().enumerate() {
            if next.next_if(|found| *found == record).is_none() {
                missing.push(index + 1);
            }
        }
        assert_eq!(next.next(), None, "something is there that was not");
        let end = all.len()
            - missing
                .iter()
                .rev()
                .zip((1..=all.len()).rev())
                .take_while(|(a, b)| **a == *b)
                .count();
        assert!(
            missing.iter().all(|&lsn| lost[lsn] || lsn > end),
            "missing {missing:?}, planned {:?}",
            losses(&plan)
        );
    }
}

/// Numbers that check and that no log ever had.
#[test]
fn no_number_in_a_header_makes_a_plan_panic_or_grow() {
    let (sound, _) = three_segments();
    let numbers = [
        0,
        1,
        2,
        4_095,
        4_096,
        1 << 20,
        1 << 30,
        1 << 40,
        1 << 63,
        u64::MAX,
    ];
    let set: [fn(&mut SegmentHeader, u64); 7] = [
        |header, number| header.sequence = number,
        |header, number| header.first_lsn = Lsn(number),
        |header, number| header.previous_sequence = number,
        |header, number| header.previous_end_offset = number,
        |header, number| header.previous_end_lsn = Lsn(number),
        |header, number| header.segment_bytes = number,
        |header, number| header.log_id = number,
    ];
    for seed in seeds(500) {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let mut files = sound.clone();
        for _ in 0..1 + random.below(3) {
            let file = FileId(u32::try_from(1 + random.below(3)).unwrap());
            let block = files.get_mut(&file).unwrap().first_chunk_mut().unwrap();
            let FirstBlock::Segment(mut header) = SegmentHeader::read(block) else {
                panic!("a header")
            };
            set[random.below(set.len())](&mut header, numbers[random.below(numbers.len())]);
            header.encode(block);
        }
        let plan = plan(&mut Disk::from(files.clone()), OWNER).unwrap();
        if plan.beyond.is_empty() && plan.is_needed() {
            let after = repaired(&files, &plan);
            assert!(!plan_of(&after).is_needed());
        }
    }
}

//! A lost tail of a log in which cleaning has released segments: the first ones are gone for good
//! reason.

use std::collections::BTreeMap;

use penstock_storage::inspect::inspect_laid_out;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::layout::Layout;
use penstock_storage::log::{Log, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Lsn};
use penstock_storage::recovery::{RecoveryError, Row};
use penstock_storage::repair::{Loss, Plan, plan_laid_out};
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::snapshot::{ProvenEnd, ProvenEnds, SnapshotName};

use crate::cleaning::Yard;
use crate::disk::Disk;
use crate::heap::Heap;
use crate::journal::{LOG_ID, OWNER, Restart, config, read_back};

/// The files of a log whose first segments are released and removed, and its last record.
struct CleanedLog {
    files: BTreeMap<FileId, Vec<u8>>,
    last_lsn: Lsn,
}

impl CleanedLog {
    /// One key is overwritten until `is_enough`; another one stays. Cleaning stops after `cleaned`
    /// records.
    fn until(cleaned: u32, is_enough: impl Fn(&Self) -> bool) -> Self {
        let log = Log::new(config(SyncMethod::DurableWrite), LogStart::default(), Heap);
        let mut yard = Yard::empty(log);
        for number in 1..8_000 {
            yard.put(if number == 500 { 5 } else { 3 });
            yard.turn();
            if number < cleaned {
                yard.clean(|_| ());
            }
            while let Some(file) = yard.store.take_removable() {
                yard.disk.files.remove(&file);
            }
            if number % 7 == 0 && number >= 2_000 {
                let log = CleanedLog::of(&yard);
                if is_enough(&log) {
                    return log;
                }
            }
        }
        panic!("no such moment comes")
    }

    fn of(yard: &Yard) -> Self {
        let is_used = |bytes: &Vec<u8>| bytes[..BLOCK_BYTES] != [0; BLOCK_BYTES];
        let mut files = yard.disk.files.clone();
        files.retain(|_, bytes| is_used(bytes));
        let log = CleanedLog {
            files,
            last_lsn: yard.store.log().appended(),
        };
        assert!(log.sequences()[0] > 2, "the first segments are released");
        assert_eq!(log.read().recovered.unwrap().start.last_lsn, log.last_lsn);
        log
    }

    fn headers(&self) -> BTreeMap<u64, (FileId, SegmentHeader)> {
        let header = |(&file, bytes): (&FileId, &Vec<u8>)| match SegmentHeader::read(
            bytes.first_chunk().unwrap(),
        ) {
            FirstBlock::Segment(header) => Some((header.sequence, (file, header))),
            _ => None,
        };
        self.files.iter().filter_map(header).collect()
    }

    fn sequences(&self) -> Vec<u64> {
        self.headers().into_keys().collect()
    }

    fn last(&self) -> (FileId, SegmentHeader) {
        *self.headers().last_entry().unwrap().get()
    }

    /// Records of the last segment.
    fn last_records(&self) -> u64 {
        self.last_lsn.0 - self.last().1.previous_end_lsn.0
    }

    /// The same after all of the last segment was zeroed.
    fn without_last(&self) -> Self {
        let mut files = self.files.clone();
        files.get_mut(&self.last().0).unwrap().fill(0);
        CleanedLog { files, ..*self }
    }

    fn disk(&self) -> Disk {
        Disk::from(self.files.clone())
    }

    fn read(&self) -> Restart {
        read_back(&mut self.disk()).unwrap()
    }

    fn proven(&self) -> ProvenEnds {
        let snapshot = SnapshotName {
            log_id: LOG_ID,
            number: 1,
        };
        let end = ProvenEnd {
            lsn: self.last_lsn,
            snapshot,
            incarnation: 1,
            time_ms: 5,
        };
        ProvenEnds::from([(LOG_ID, end)])
    }

    fn plan(&self) -> Plan {
        let layout = Layout::new(u16::MAX);
        let plan = plan_laid_out(&mut self.disk(), OWNER, &layout, &self.proven()).unwrap();
        assert!(plan.beyond.is_empty(), "{}", plan.beyond[0]);
        plan
    }

    fn damage(&self) -> Vec<RecoveryError> {
        let layout = Layout::new(u16::MAX);
        let (proven, disk) = (self.proven(), &mut self.disk());
        inspect_laid_out(disk, Some(OWNER), &layout, &proven, &mut |_| ()).damage
    }

    /// The log after the plan, which contradicts the snapshot no more.
    fn repaired(&self, plan: &Plan) -> CleanedLog {
        let mut after = self.files.clone();
        after.retain(|file, _| !plan.removals.contains(file));
        for rebuild in &plan.rebuilds {
            let mut bytes = vec![0; usize::try_from(rebuild.bytes).unwrap()];
            rebuild.read(&mut self.disk(), 0, &mut bytes).unwrap();
            after.insert(rebuild.file, bytes);
        }
        let after = CleanedLog {
            files: after,
            last_lsn: self.last_lsn,
        };
        assert!(!after.plan().is_needed());
        assert!(after.damage().is_empty(), "{}", after.damage()[0]);
        after
    }
}

fn losses(plan: &Plan) -> Vec<Loss> {
    plan.losses().collect()
}

#[test]
fn a_lost_tail_costs_its_records_alone_where_earlier_segments_were_released() {
    let mut log = CleanedLog::until(8_000, |log| log.last_records() > 10);
    let (file, header) = log.last();
    let sound = log.read().records;
    // Frames of one record each: the list of segments and some of them stay.
    let bytes = log.files.get_mut(&file).unwrap();
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap();
    let list_end = 2 * BLOCK_BYTES;
    let cut = (list_end + (used - list_end) / 2) / BLOCK_BYTES * BLOCK_BYTES;
    assert!(cut > list_end + BLOCK_BYTES, "{used}");
    bytes[cut..].fill(0);
    let left = log.read();
    let left_lsn = left.recovered.unwrap().start.last_lsn;
    assert!(header.first_lsn < left_lsn && left_lsn < log.last_lsn);

    let plan = log.plan();
    let lost = Loss::Records {
        log_id: LOG_ID,
        from: Lsn(left_lsn.0 + 1),
        to: Some(log.last_lsn),
    };
    assert_eq!(losses(&plan), [lost]);
    assert_eq!(plan.damages[0].row, Row::TailLost);
    assert_eq!(plan.touched().count(), 0);
    let after = log.repaired(&plan);
    assert_eq!(after.read().records, left.records);
    assert_eq!(sound[..left.records.len()], left.records);
    // What goes on behind a start begins with a list that still tells what was released.
    let mut disk = after.disk();
    let start = read_back(&mut disk).unwrap().recovered.unwrap();
    assert!(start.history.has_released);
    let ends: Vec<u64> = start
        .history
        .segments
        .iter()
        .map(|it| it.end.sequence)
        .collect();
    assert_eq!(ends, after.sequences());
}

#[test]
fn a_last_segment_that_is_all_zeros_costs_its_records_alone_if_an_earlier_list_names_every_release()
{
    let log = CleanedLog::until(1_500, |log| {
        read_back(&mut log.without_last().disk()).is_ok()
    });
    let cut = log.without_last();
    let left = cut.read();
    let left_lsn = left.recovered.unwrap().start.last_lsn;
    let damage = cut.damage();
    let [
        RecoveryError::TailLost {
            end: Some(_),
            lsn_from,
            ..
        },
    ] = damage[..]
    else {
        panic!("{damage:?}")
    };
    assert_eq!(lsn_from, Lsn(left_lsn.0 + 1));
    let plan = cut.plan();
    let lost = Loss::Records {
        log_id: LOG_ID,
        from: lsn_from,
        to: Some(log.last_lsn),
    };
    assert_eq!(losses(&plan), [lost]);
    assert_eq!(cut.repaired(&plan).read().records, left.records);
}

/// The only list that told of the last releases is gone: nothing proves them any more, so they are
/// named.
#[test]
fn a_release_that_only_a_lost_list_named_is_priced_and_no_segment_that_is_there_is_called_lost() {
    let log = CleanedLog::until(8_000, |log| {
        read_back(&mut log.without_last().disk()).is_err()
    });
    let cut = log.without_last();
    let headers = cut.headers();
    let end = log.last().1.previous_end_lsn;
    let damage = cut.damage();
    let [
        RecoveryError::SegmentMissing { sequence, .. },
        RecoveryError::TailLost {
            end: Some((file, _)),
            lsn_from,
            ..
        },
    ] = damage[..]
    else {
        panic!("{damage:?}")
    };
    assert!(!headers.contains_key(&sequence));
    assert_eq!((file, lsn_from), (cut.last().0, Lsn(end.0 + 1)));
    let text = damage[0].to_string();
    assert!(
        text.contains("if cleaning has released it, the list that tells so is lost"),
        "{text}"
    );

    let plan = cut.plan();
    let (tail, missing) = plan.damages.split_last().unwrap();
    assert_eq!(tail.row, Row::TailLost);
    assert_eq!(tail.lost_records, Some(log.last_records()));
    assert!(
        missing
            .iter()
            .all(|damage| damage.row == Row::SegmentMissing)
    );
    for loss in missing.iter().filter_map(|damage| damage.loss) {
        let Loss::Records {
            from, to: Some(to), ..
        } = loss
        else {
            panic!("{loss}")
        };
        let is_there = |header: &SegmentHeader| (from..=to).contains(&header.first_lsn);
        assert!(
            !headers.values().any(|(_, header)| is_there(header)),
            "{loss}"
        );
    }
    let sound = log.read().records;
    let left = cut.repaired(&plan).read().records;
    let in_last = usize::try_from(log.last_records()).unwrap();
    assert!(
        left.len() >= sound.len() - in_last,
        "all that is there stays"
    );
}

/// A repair frame takes the place of the list, and tells nothing of releases.
#[test]
fn a_damaged_list_in_the_last_segment_is_repaired_if_an_earlier_one_lists_every_release() {
    let is_listed = |log: &CleanedLog| {
        log.last_records() > 10 && read_back(&mut log.without_last().disk()).is_ok()
    };
    let mut log = CleanedLog::until(1_500, is_listed);
    let sound = log.read().records;
    log.files.get_mut(&log.last().0).unwrap()[BLOCK_BYTES + 100] ^= 1;
    let plan = log.plan();
    assert_eq!(losses(&plan), []);
    assert_eq!(plan.damages[0].row, Row::LastDamaged);
    assert_eq!(log.repaired(&plan).read().records, sound);
}

//! One step of a SCAN, and the reads that its pages wait for.

use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyHead;
use penstock_net::request::{Verb, Version};
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;
use penstock_storage::io::{Blocks, Completion};
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{AdmitError, part_read};
use penstock_storage::version::{last_slot_of_partition, partition_of};

use crate::accounts::answers::Asked;
use crate::cluster::Redirect;
use crate::event::Outbox;
use crate::execution::Execution;
use crate::execution::operation::level_of;
use crate::execution::reads::{bytes_read, not_read, not_written};
use crate::now::Now;
use crate::replication::Needed;
use crate::requests::parking::Parked;
use crate::scanning::{ColdKey, Reading, Scan, ScanRead, Unread, Wanted};
use crate::scans::page::Halt;

impl<P: Blocks> Execution<P> {
    /// The level of a step of a scan, which is at least that of a GET of each key that it may tell,
    /// and whom its page waits for; otherwise why it is refused.
    pub(crate) fn leave_of_step(
        &self,
        asked: AckLevel,
        is_unleveled: bool,
        slot: u16,
        prefix: &[u8],
    ) -> Result<(AckLevel, Option<Needed>), (Status, String)> {
        let settings = self.store.keyspaces().within(slot, prefix);
        let level = settings
            .map(|settings| level_of(settings, is_unleveled))
            .fold(asked, AckLevel::max);
        let level = self.reachable(level);
        let linked = self.linked.as_ref();
        let needed = linked.and_then(|linked| linked.needed(level, true));
        if let Some(needed) = needed {
            self.may_wait_for(partition_of(slot), needed)?;
        }
        Ok((level, needed))
    }

    /// The last slot that a page tells which begins in this slot: behind it another shard or
    /// another node goes on.
    pub(crate) fn last_scanned(&self, slot: u16) -> Result<u16, Redirect> {
        let last = self.setup.config().topology.last_slot(slot);
        match &self.linked {
            Some(linked) => linked.last_served(slot, last),
            None => Ok(last),
        }
    }

    /// Writes the answer to a step of a scan, if it needs no read.
    pub(crate) fn step_of_scan(&mut self, now: Now, scan: &Scan, out: &mut Vec<u8>) -> Stepped {
        let Parked {
            address,
            deadline_us,
            slot,
            ..
        } = scan.parked;
        let head = |status, level| ReplyHead::new(status, address.item, level, Version::default());
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        let rights = scan.parked.rights.as_deref();
        if let Err(denied) = rights.map_or(Ok(()), |rights| rights.judge_scan(&request)) {
            self.stats.refuse(SCAN, Status::Denied);
            head(Status::Denied, scan.parked.level).write_message(out, &denied);
            return Stepped::Answered(Lsn(0));
        }
        if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
            self.stats.refuse(SCAN, status);
            head(status, scan.parked.level).write_message(out, &message);
            return Stepped::Answered(Lsn(0));
        }
        // Another node may have taken over since the step came, and a keyspace may have changed.
        let last_slot = match self.last_scanned(slot) {
            Ok(last_slot) => last_slot,
            Err(elsewhere) => {
                self.stats.refuse(SCAN, elsewhere.status());
                ReplyHead {
                    version: elsewhere.version(),
                    ..head(elsewhere.status(), scan.parked.level)
                }
                .write_message(out, &elsewhere);
                return Stepped::Answered(Lsn(0));
            }
        };
        let (asked, is_unleveled) = (scan.parked.level, address.is_unleveled);
        let (level, needed) = match self.leave_of_step(asked, is_unleveled, slot, request.prefix) {
            Ok(leave) => leave,
            Err((status, message)) => {
                self.stats.refuse(SCAN, status);
                head(status, asked).write_message(out, &message);
                return Stepped::Answered(Lsn(0));
            }
        };
        let last_slot = match needed {
            // Each partition has members of its own to wait for.
            Some(_) => last_slot.min(last_slot_of_partition(slot)),
            None => last_slot,
        };
        let limits = self.setup.limits();
        let page = self.scans.page(&self.store, scan, limits, last_slot);
        match page.write(out) {
            Ok(gate) => {
                self.stats.answer(SCAN, Status::Ok);
                head(Status::Ok, level).patch(out, 0);
                match needed {
                    Some(needed) => Stepped::AwaitsMembers(needed),
                    None => Stepped::Answered(self.gate(level, gate)),
                }
            }
            Err(Halt::Unread(Unread { status, message })) => {
                self.stats.answer(SCAN, status);
                out.clear();
                head(status, level).write_message(out, &message);
                Stepped::Answered(Lsn(0))
            }
            Err(Halt::Reads(wanted)) => Stepped::Lacks(wanted),
        }
    }

    /// A read for a scan ended.
    pub(crate) fn scan_read(
        &mut self,
        completion: &Completion<P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let (read, scan) = self.scans.steps.finished(completion.token);
        let mut read = match read {
            Reading::Part(read) => read,
            Reading::Block(read) => {
                let bytes = bytes_read(completion, None).unwrap_or_default();
                let block = self.scans.tables.take_in(read.file, read.block, bytes);
                if block.is_none() {
                    self.scans.give_up_table(read.file, &mut outbox.key_tables);
                }
                self.scans.steps.learn_block(&read, block);
                return;
            }
        };
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        let place = read.place();
        let judge = |read: &ScanRead, bytes: &[u8]| {
            part_read(read.at, read.packed, bytes, |key| {
                self.setup.hash().home_of(key)
            })
            .map(|part| ColdKey::of(&part, &request))
            .map_err(|AdmitError::Corrupt| Unread {
                status: Status::Corrupt,
                message: not_written(place),
            })
        };
        let brought = read.brought();
        let key = match bytes_read(completion, brought) {
            Ok(bytes) => match read.take_in(bytes) {
                Some(all) => judge(&read, &all),
                None => {
                    self.scans.steps.read_on(completion.token, read);
                    return;
                }
            },
            Err(failure) => Err(Unread {
                status: Status::Io,
                message: not_read(place, failure),
            }),
        };
        if key.is_err() && brought.is_none() && !is_planted(Bug::ReadOnce) {
            self.stats.read_again();
            self.scans.steps.read_again(completion.token, read);
            return;
        }
        if let Err(unread) = &key {
            self.chores.note_bad_place(read.at, place, unread.status);
        }
        self.scans.steps.learn(&read, key);
    }
}

/// What answers count as.
pub(crate) const SCAN: Asked = Asked::Verb(Verb::Scan);

/// What became of a step of a scan.
pub(crate) enum Stepped {
    /// Its answer is written and waits for this record.
    Answered(Lsn),
    /// Its page is written and waits for members.
    AwaitsMembers(Needed),
    /// It needs these reads.
    Lacks(Vec<Wanted>),
}

//! Pages of SCAN, step by step.

use penstock_net::reply::ReplyHead;
use penstock_net::request::{Verb, Version};
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;
use penstock_storage::io::{Blocks, Completion};
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{AdmitError, part_read};

use crate::answers::Asked;
use crate::busy::Told;
use crate::cluster::Redirect;
use crate::requests::parking::{Origin, Parked};
use crate::scanning::{ColdKey, Reading, STEPS_A_TURN_MAX, ScanRead, Unread, slot_of_cursor};
use crate::scans::page::Halt;

use super::operation::{Operation, Step};
use super::reads::{bytes_read, not_read, not_written};
use super::{Now, Outbox, Shard};

/// What answers count as.
const SCAN: Asked = Asked::Verb(Verb::Scan);

impl<P: Blocks> Shard<P> {
    /// Takes a step of a scan in, or sends it to the shard whose slots it has come to.
    #[cold]
    pub(super) fn begin_scan(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        let request = match ScanRequest::read(operation.item) {
            Ok(request) => request,
            Err(refusal) => {
                let status = refusal.status();
                return self.refuse_item(SCAN, operation, status, &refusal, out);
            }
        };
        if let Some(rights) = operation.rights
            && let Err(denied) = rights.judge_scan(&request)
        {
            return self.deny(SCAN, operation, &denied, out);
        }
        if let Some((status, message)) = self.comes_too_late(now, operation.deadline_us) {
            return self.refuse_item(SCAN, operation, status, &message, out);
        }
        let slot = slot_of_cursor(request.cursor);
        let owner = self.setup.owner(slot);
        if owner != self.setup.shard() {
            return self.mail_request(owner, operation, slot, true, out);
        }
        if let Err(elsewhere) = self.last_scanned(slot) {
            return self.refuse_elsewhere(SCAN, operation, &elsewhere, out);
        }
        if operation.level.waits_for_members() {
            let message = format!(
                "a SCAN has no ack level {}: read the keys by GET at that level",
                operation.level.name()
            );
            let status = Status::Unsupported;
            return self.refuse_item(SCAN, operation, status, &message, out);
        }
        if self.scans.steps.is_full() {
            let message = format!(
                "{} scans are under way, which is the limit",
                self.scans.steps.len()
            );
            return self.refuse_item(SCAN, operation, Status::Busy, &message, out);
        }
        // The number of scans bounds what they hold.
        self.scans.steps.begin(operation.parked(slot, 0));
        Step::Later
    }

    /// The last slot that a page tells which begins in this slot: behind it another shard or
    /// another node goes on.
    fn last_scanned(&self, slot: u16) -> Result<u16, Redirect> {
        let last = self.setup.config().topology.last_slot(slot);
        match &self.linked {
            Some(linked) => linked.last_served(slot, last),
            None => Ok(last),
        }
    }

    /// Runs the steps that are ready, up to a number in each turn.
    pub(super) fn scan(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        for _ in 0..STEPS_A_TURN_MAX {
            let Some(mut scan) = self.scans.steps.next_ready() else {
                break;
            };
            let Parked {
                origin,
                address,
                level,
                deadline_us,
                came_us,
                ..
            } = scan.parked;
            if origin == Origin::Here && self.sessions.get_open(address.session).is_none() {
                continue;
            }
            self.renew_rights(&mut scan.parked);
            let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
            let rights = scan.parked.rights.as_deref();
            let judged = rights.map_or(Ok(()), |rights| rights.judge_scan(&request));
            let mut pieces = self.requests.take_scratch();
            let out = pieces.written();
            let head = |status| ReplyHead::new(status, address.item, level, Version::default());
            let gate = if let Err(denied) = judged {
                self.stats.refuse(SCAN, Status::Denied);
                head(Status::Denied).write_message(out, &denied);
                Some(Lsn(0))
            } else if let Some((status, message)) = self.comes_too_late(now, deadline_us) {
                self.stats.refuse(SCAN, status);
                head(status).write_message(out, &message);
                Some(Lsn(0))
            } else {
                // Another node may have taken over since the step came.
                let last_slot = self.last_scanned(scan.parked.slot);
                let page = last_slot.map_err(Halt::Elsewhere).and_then(|last_slot| {
                    let limits = self.setup.limits();
                    let page = self.scans.page(&self.store, &scan, limits, last_slot);
                    page.write(out)
                });
                match page {
                    Ok(gate) => {
                        self.stats.answer(SCAN, Status::Ok);
                        head(Status::Ok).patch(out, 0);
                        Some(self.gate(level, gate))
                    }
                    Err(Halt::Unread(Unread { status, message })) => {
                        self.stats.answer(SCAN, status);
                        out.clear();
                        head(status).write_message(out, &message);
                        Some(Lsn(0))
                    }
                    Err(Halt::Elsewhere(elsewhere)) => {
                        self.stats.refuse(SCAN, elsewhere.status());
                        ReplyHead {
                            version: elsewhere.version(),
                            ..head(elsewhere.status())
                        }
                        .write_message(out, &elsewhere);
                        Some(Lsn(0))
                    }
                    Err(Halt::Reads(wanted)) => {
                        self.scans.steps.wait(scan, &wanted);
                        None
                    }
                }
            };
            if let Some(gate) = gate {
                self.stats.answer_later(now.us, came_us);
                self.answer_detached(origin, address, Told::behind(gate), &pieces, outbox);
            }
            self.requests.give_scratch(pieces);
        }
    }

    /// A read for a scan ended.
    pub(super) fn scan_read(
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
            let of = (read.at.slot, read.at.hash);
            part_read(of, read.packed, bytes, |key| self.setup.hash().home_of(key))
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
            let home = (read.at.slot, read.at.hash);
            self.chores.note_bad_place(home, place, unread.status);
        }
        self.scans.steps.learn(&read, key);
    }
}

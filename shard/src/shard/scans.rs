//! Pages of SCAN, step by step.

use penstock_net::refusal::Refusal;
use penstock_net::scan::{SCAN as SCAN_VERB, ScanRequest};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;

use crate::accounts::busy::AnswerTerms;
use crate::execution::operation::{Disposition, Operation};
use crate::execution::scans::{SCAN, Stepped};
use crate::now::Now;
use crate::requests::parking::{Origin, Parked};
use crate::scanning::{STEPS_A_TURN_MAX, slot_of_cursor};
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// Takes a step of a scan in, or sends it to the shard whose slots it has come to.
    #[cold]
    pub(super) fn begin_scan(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let request = match ScanRequest::read(operation.item) {
            Ok(request) => request,
            Err(refusal) => {
                let status = refusal.status();
                return self
                    .execution
                    .refuse_item(SCAN, operation, status, &refusal, out);
            }
        };
        if request.wants_types && !self.is_of_process(operation) {
            let refusal = Refusal::OperationFlags {
                operation: SCAN_VERB,
                flags: operation.item[3],
            };
            let status = refusal.status();
            return self
                .execution
                .refuse_item(SCAN, operation, status, &refusal, out);
        }
        if let Some(rights) = operation.rights
            && let Err(denied) = rights.judge_scan(&request)
        {
            return self.deny(SCAN, operation, &denied, out);
        }
        if let Some((status, message)) = self.execution.comes_too_late(now, operation.deadline_us) {
            return self
                .execution
                .refuse_item(SCAN, operation, status, &message, out);
        }
        let slot = slot_of_cursor(request.cursor);
        let owner = self.execution.setup.owner(slot);
        if owner != self.execution.setup.shard() {
            return self.mail_request(owner, operation, slot, true, out);
        }
        if let Err(elsewhere) = self.execution.last_scanned(slot) {
            return self
                .execution
                .refuse_elsewhere(SCAN, operation, &elsewhere, out);
        }
        let is_unleveled = operation.address.is_unleveled;
        if let Err((status, message)) =
            self.execution
                .leave_of_step(operation.level, is_unleveled, slot, request.prefix)
        {
            return self
                .execution
                .refuse_item(SCAN, operation, status, &message, out);
        }
        if self.execution.scans.steps.is_full() {
            let message = format!(
                "{} scans are under way, which is the limit",
                self.execution.scans.steps.len()
            );
            return self
                .execution
                .refuse_item(SCAN, operation, Status::Busy, &message, out);
        }
        // The number of scans bounds what they hold.
        self.execution.scans.steps.begin(operation.parked(slot, 0));
        Disposition::Later
    }

    /// Runs the steps that are ready, up to a number in each turn.
    pub(super) fn scan(&mut self, step: &mut Step<'_, P::Block>) {
        for _ in 0..STEPS_A_TURN_MAX {
            let Some(mut scan) = self.execution.scans.steps.next_ready() else {
                break;
            };
            let Parked {
                origin,
                address,
                came_us,
                ..
            } = scan.parked;
            if origin == Origin::Here && self.front.sessions.get_open(address.session).is_none() {
                continue;
            }
            self.front.renew_rights(&mut scan.parked);
            let mut pieces = self.execution.requests.take_scratch();
            match self
                .execution
                .step_of_scan(step.now, &scan, pieces.written())
            {
                Stepped::Answered(gate) => {
                    self.execution.stats.answer_later(step.now.us, came_us);
                    self.answer_detached(
                        origin,
                        address,
                        AnswerTerms::behind(gate),
                        &pieces,
                        step.outbox,
                    );
                }
                Stepped::AwaitsMembers(needed) => {
                    let page = pieces.split_off(0);
                    self.page_at_members(step.now, &scan.parked, needed, page);
                }
                Stepped::Lacks(wanted) => self.execution.scans.steps.wait(scan, &wanted),
            }
            self.execution.requests.give_scratch(pieces);
        }
    }
}

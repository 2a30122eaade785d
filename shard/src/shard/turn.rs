//! The end of a turn: the chores of a shard in their order, and when the next turn is due.

use penstock_storage::io::Blocks;

use crate::keyspaces::{Owned, Writer};
use crate::now::Now;
use crate::shard::Shard;
use crate::shard::joint::JointStep;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// All that was ready has been handed over. Each chore does its part and says in `outbox` what
    /// is to be done.
    ///
    /// What must hold of the order: what reads have brought for armed keys is used before cells
    /// leave; cells leave the cache only in `settle`, between two operations;
    /// what links bring comes before the log is pumped, and what was sealed is shipped behind it;
    /// mail and replies leave when all that ran in this turn is appended.
    pub(super) fn turn_ends(&mut self, step: &mut Step<'_, P::Block>) {
        self.execution.fire_due(step);
        self.retry(step);
        JointStep(self).step_joint(step);
        self.execution.settle();
        self.scan(step);
        self.execution.issue_reads(step.outbox);
        self.execution.take_in_links(step);
        self.log_keyspaces(step);
        self.execution.check_tokens(step);
        self.execution.clean(step);
        self.execution.take_over(step.outbox);
        self.execution.scrub(step);
        self.execution.report_damage(step.outbox);
        let ran = self.execution.items_of_turn();
        self.execution.take_snapshot(step, ran == 0);
        self.execution.close_when_done(step.now);
        self.execution
            .store
            .log_mut()
            .pump(step.now.us, &mut step.outbox.io);
        self.execution.give_out_links(step);
        if self.execution.phase.fatal().is_some() {
            return;
        }
        self.release_replicas(step);
        self.send_mail(step);
        self.execution.owe_check(step.outbox);
        self.front.close_voided(step.outbox);
        self.execution.request_segments(step.outbox);
        self.sweep(step);
        step.outbox.is_stopped =
            self.execution.phase.is_stopping() && self.execution.store.log().is_closed();
        let durable = self.execution.store.log().durable();
        let on_disk = self.execution.stats.end_turn(step.now.us, ran, durable);
        self.front.admission.turn_ends(step.now.us, ran, on_disk);
        self.front
            .sessions
            .mark_ready(step.now.us, &step.outbox.sendable);
        self.front
            .audit
            .end_turn(&mut step.outbox.audited, &mut step.outbox.audited_beyond);
    }

    /// When [`super::Event::TurnEnds`] is to be given at the latest, if nothing else happens.
    #[must_use]
    pub fn deadline_us(&self, now: Now) -> Option<u64> {
        let is_serving = !self.execution.phase.is_stopping();
        let store = &self.execution.store;
        let has_deadlines =
            self.front.sessions.is_any_open() || !self.execution.requests.is_empty();
        let sweep_us = self.execution.chores.next_sweep_us().max(now.us + 1);
        let tokens_us = self.execution.chores.tokens.next_us().max(now.us + 1);
        let is_due = self.is_turn_due()
            || self.execution.scans.steps.has_ready()
            || self.front.sessions.has_voided();
        let linked = self.execution.linked.as_ref().filter(|_| is_serving);
        [
            store.log().deadline_us(),
            has_deadlines.then_some(sweep_us),
            (store.keys().tokens() > 0 && is_serving).then_some(tokens_us),
            store.cleaning().deadline_us().filter(|_| is_serving),
            store
                .scrubbing()
                .deadline_us(store.log())
                .filter(|_| is_serving),
            is_due.then_some(now.us),
            store
                .data()
                .may_clear(store.log().durable())
                .then_some(now.us),
            self.execution
                .firing_deadline_us(now)
                .filter(|_| is_serving),
            self.execution.chores.snapshots.deadline_us(now, store),
            self.execution.scans.tables.deadline_us(now),
            linked.and_then(|it| it.deadline_us(now.us)),
            self.execution.replica_waits.deadline_us(),
            self.execution.keyspaces.deadline_us(),
            self.execution.joint.deadline_us(now.us),
            self.execution
                .tracking
                .deadline_us(now, store.data().time_ms()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether something ended since the last turn, and what waits for that goes on in the next
    /// one.
    #[must_use]
    pub fn is_turn_due(&self) -> bool {
        self.execution.phase.has_progress()
            && (self.execution.requests.waits_for_room()
                || self.front.sessions.has_paused()
                || self.owes_credit()
                || !self.execution.joint.is_idle()
                || self.execution.scans.steps.has_unissued()
                || self.execution.keyspaces.has_work())
    }

    /// Lets operations and connections try again that wait for room, if something ended.
    fn retry(&mut self, step: &mut Step<'_, P::Block>) {
        if self.execution.phase.take_progress() {
            self.run_postponed(step);
            self.run_held(step);
            self.front.sessions.resume(&mut step.outbox.resume);
        }
    }

    /// Logs settings of keyspaces that other shards told or that this one decided.
    fn log_keyspaces(&mut self, step: &mut Step<'_, P::Block>) {
        if self.execution.phase.is_stopping() {
            return;
        }
        let linked = self.execution.linked.as_ref();
        let owned = Owned {
            shard: self.execution.setup.shard(),
            shards: self.execution.setup.config().topology.shards(),
            partitions: self.execution.setup.partitions(),
            writer: |partition| linked.map_or(Writer::Here, |it| it.writer_of(partition)),
            served: linked.map_or(0, |it| it.served_changes()),
        };
        self.execution
            .keyspaces
            .check_records(&mut self.execution.store, &owned);
        let own = self
            .execution
            .keyspaces
            .turn(step.now.us, &mut self.execution.store, &owned);
        self.execution
            .phase
            .note_progress(self.execution.keyspaces.may_go_on());
        if let Some(done) = own {
            self.keyspace_done(done, step.outbox);
        }
        self.end_late_keyspace(step);
    }

    /// Looks at the deadlines of operations and connections, if it is time.
    fn sweep(&mut self, step: &mut Step<'_, P::Block>) {
        if !self.execution.chores.begins_sweep(step.now.us) {
            return;
        }
        self.expire(step);
        self.front
            .sessions
            .resume_expired(step.now.us, &mut step.outbox.resume);
        let is_short = self.is_short_of_room();
        self.front
            .sessions
            .check_peers(step.now.us, is_short, &mut step.outbox.probes);
        step.outbox
            .close
            .extend(self.front.sessions.overdue(step.now.us));
    }
}

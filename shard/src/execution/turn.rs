//! The chores of a turn's end that no connection has a part in.

use penstock_storage::io::Blocks;

use crate::event::Fatal;
use crate::event::Outbox;
use crate::execution::Execution;
use crate::now::Now;
use crate::step::Step;

impl<P: Blocks> Execution<P> {
    /// Whether the loop may stand still for the device at the end of this turn. On a node alone its
    /// disk decides. On a node of a cluster somebody must wait here for what is written, which
    /// nobody does for what a member applies; and no reply of this turn may wait for the loop,
    /// because then others are at work.
    #[must_use]
    pub fn may_wait_for_device(&self, outbox: &Outbox<P::Block>) -> bool {
        let is_awaited = || self.stats.waits_for_disk() || !self.replica_waits.is_empty();
        let is_alone = || outbox.sendable.is_empty() && outbox.mail.is_empty();
        self.linked.is_none() || (is_awaited() && is_alone())
    }

    /// Lets cells leave the cache.
    pub(crate) fn settle(&mut self) {
        let hash = self.setup.hash();
        let is_cleared = self.store.settle(&|key| hash.home_of(key));
        // A flush waits until the one before is cleared.
        self.phase.note_progress(is_cleared);
    }

    /// Emits the reads for which there is memory: those that operations wait for before those of
    /// scans, because the client of an operation knows the key that it wants.
    pub(crate) fn issue_reads(&mut self, outbox: &mut Outbox<P::Block>) {
        let mut waits_for_memory = self.store.data().is_memory_short();
        while let Some((token, place, start)) = self.requests.parking.next_read() {
            // A second attempt is counted since the first.
            let under_way = self.requests.parking.bytes_under_way();
            let has_room = start.is_some() || self.store.data().has_room_to_read(under_way);
            if !has_room || !self.read(token, place, start, outbox) {
                self.requests.parking.not_issued(token);
                waits_for_memory |= !has_room;
                break;
            }
        }
        while !self.requests.parking.has_unissued()
            && !waits_for_memory
            && let Some((token, place, brought)) = self.scans.steps.next_read()
            && self.read(token, place, brought, outbox)
        {
            self.scans.steps.issued();
            match place.file.segment_of_table() {
                None if brought.is_none() => self.scans.tables.reads_part(place.file),
                None => {}
                Some(_) => self.scans.tables.reads_block(),
            }
        }
        if !self.phase.is_stopping() {
            let orders = &mut outbox.key_tables;
            self.scans.tables.step(&self.store, orders);
        }
        self.check_memory(waits_for_memory);
    }

    /// Applies what links have brought.
    pub(crate) fn take_in_links(&mut self, step: &mut Step<'_, P::Block>) {
        if let Some(linked) = &mut self.linked
            && !self.phase.is_stopping()
        {
            if let Some(plan) = linked.take_deferred(step.now.us) {
                self.setup.place(plan.placement());
                linked.replan(step.now.us, plan, &self.store);
            }
            let (io, links) = (&mut step.outbox.io, &mut step.outbox.links);
            linked.take_in(step.now.us, &mut self.store, self.setup.hash(), io, links);
        }
    }

    /// Looks through sealed segments.
    pub(crate) fn scrub(&mut self, step: &mut Step<'_, P::Block>) {
        if !self.phase.is_stopping() {
            self.store.scrub(step.now.us, &mut step.outbox.io);
        }
    }

    /// Tells people of damage that was found.
    pub(crate) fn report_damage(&mut self, outbox: &mut Outbox<P::Block>) {
        while let Some(rotten) = self.store.scrubbing_mut().take_rotten() {
            outbox.rotten.push(rotten);
        }
        outbox.bad_places.extend(self.chores.take_bad_places());
    }

    /// How many items ran in this turn. A member has work without a client: what it applies counts.
    pub(crate) fn items_of_turn(&mut self) -> u64 {
        let linked = self.linked.as_ref();
        let applied = linked.map_or(0, |it| it.link_set().counters().applied);
        self.chores.ran(self.stats.items() + applied)
    }

    /// Goes on with a snapshot of the index, or begins one if it is due.
    pub(crate) fn take_snapshot(&mut self, step: &mut Step<'_, P::Block>, is_idle: bool) {
        if self.store.data().is_clearing() {
            return;
        }
        let writes = &mut step.outbox.snapshots;
        self.chores
            .snapshots
            .step(step.now, &mut self.store, is_idle, writes);
    }

    /// Seals the log of a shard that stops when nothing is under way any more.
    pub(crate) fn close_when_done(&mut self, now: Now) {
        if self.phase.is_stopping()
            && self.requests.is_empty()
            && self.joint.is_idle()
            && self.scans.steps.is_empty()
            && self.chores.snapshots.may_stop(now, &mut self.store)
        {
            self.store.log_mut().close();
        }
    }

    /// Ships what was sealed. A node that another one has seen further than it is here ends.
    pub(crate) fn give_out_links(&mut self, step: &mut Step<'_, P::Block>) {
        if let Some(linked) = &mut self.linked
            && !self.phase.is_stopping()
        {
            let (io, links) = (&mut step.outbox.io, &mut step.outbox.links);
            let waits = &self.replica_waits;
            let is_waited_for = |partition| waits.is_waited_for(partition);
            let hash = self.setup.hash();
            linked.give_out(step.now.us, &mut self.store, hash, is_waited_for, io, links);
            if linked.has_gone_back() {
                self.phase.end(Fatal::GoneBack);
                step.outbox.fatal = Some(Fatal::GoneBack);
            }
        }
    }

    /// Asks for the segment files that the log is going to need.
    pub(crate) fn request_segments(&mut self, outbox: &mut Outbox<P::Block>) {
        if !self.phase.is_stopping() {
            outbox.spares += self.files.request(self.store.log().spares_wanted());
        }
    }
}

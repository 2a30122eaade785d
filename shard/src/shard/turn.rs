//! The end of a turn: the chores of a shard in their order, and when the next turn is due.

use penstock_storage::io::Blocks;

use crate::keyspaces::{Owned, Writer};

use super::{Fatal, Now, Outbox, Shard};

impl<P: Blocks> Shard<P> {
    /// All that was ready has been handed over. Each chore does its part and says in `outbox` what
    /// is to be done.
    ///
    /// What must hold of the order: what reads have brought for armed keys is used before cells
    /// leave; cells leave the cache only in `settle`, between two operations;
    /// what links bring comes before the log is pumped, and what was sealed is shipped behind it;
    /// mail and replies leave when all that ran in this turn is appended.
    pub(super) fn turn_ends(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        self.fire_due(now, outbox);
        self.retry(now, outbox);
        self.settle();
        self.scan(now, outbox);
        self.issue_reads(outbox);
        self.take_in_links(now, outbox);
        self.log_keyspaces(now, outbox);
        self.mind_tokens(now, outbox);
        self.clean(now, outbox);
        self.take_over(outbox);
        self.scrub(now, outbox);
        self.tell_damage(outbox);
        let ran = self.items_of_turn();
        self.take_snapshot(now, ran == 0, outbox);
        self.close_when_done(now);
        self.store.log_mut().pump(now.us, &mut outbox.io);
        self.give_out_links(now, outbox);
        if self.phase.fatal().is_some() {
            return;
        }
        self.release_replicas(now, outbox);
        self.send_mail(now, outbox);
        self.owe_check(outbox);
        self.close_voided(outbox);
        self.request_segments(outbox);
        self.sweep(now, outbox);
        outbox.is_stopped = self.phase.is_stopping() && self.store.log().is_closed();
        let durable = self.store.log().durable();
        let on_disk = self.stats.end_turn(now.us, ran, durable);
        self.admission.turn_ends(now.us, ran, on_disk);
        self.sessions.mark_ready(now.us, &outbox.sendable);
        self.audit
            .end_turn(&mut outbox.audited, &mut outbox.audited_beyond);
    }

    /// When [`super::Event::TurnEnds`] is to be given at the latest, if nothing else happens.
    #[must_use]
    pub fn deadline_us(&self, now: Now) -> Option<u64> {
        let is_serving = !self.phase.is_stopping();
        let store = &self.store;
        let has_deadlines = self.sessions.is_any_open() || !self.requests.is_empty();
        let sweep_us = self.chores.next_sweep_us().max(now.us + 1);
        let tokens_us = self.chores.tokens.next_us().max(now.us + 1);
        let is_due =
            self.is_turn_due() || self.scans.steps.has_ready() || self.sessions.has_voided();
        let linked = self.linked.as_ref().filter(|_| is_serving);
        [
            store.log().deadline_us(),
            has_deadlines.then_some(sweep_us),
            (store.tokens() > 0 && is_serving).then_some(tokens_us),
            store.cleaning_deadline_us().filter(|_| is_serving),
            store.scrub_deadline_us().filter(|_| is_serving),
            is_due.then_some(now.us),
            self.firing_deadline_us(now).filter(|_| is_serving),
            self.chores.snapshots.deadline_us(now, store),
            self.scans.tables.deadline_us(now),
            linked.and_then(|it| it.deadline_us(now.us)),
            self.replica_waits.deadline_us(),
            self.keyspaces.deadline_us(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

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

    /// Whether something ended since the last turn, and what waits for that goes on in the next
    /// one.
    #[must_use]
    pub fn is_turn_due(&self) -> bool {
        self.phase.has_progress()
            && (self.requests.waits_for_room()
                || self.sessions.has_paused()
                || self.owes_credit()
                || self.scans.steps.has_unissued()
                || self.keyspaces.has_work())
    }

    /// Lets operations and connections try again that wait for room, if something ended.
    fn retry(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if self.phase.take_progress() {
            self.run_postponed(now, outbox);
            self.run_held(now, outbox);
            self.sessions.resume(&mut outbox.resume);
        }
    }

    /// Lets cells leave the cache.
    fn settle(&mut self) {
        let hash = self.setup.hash();
        self.store.settle(&|key| hash.home_of(key));
    }

    /// Emits the reads for which there is memory: those that operations wait for before those of
    /// scans, because the client of an operation knows the key that it wants.
    fn issue_reads(&mut self, outbox: &mut Outbox<P::Block>) {
        let mut waits_for_memory = self.store.is_memory_short();
        while let Some((token, place, start)) = self.requests.parking.next_read() {
            // A second attempt is counted since the first.
            let under_way = self.requests.parking.bytes_under_way();
            let has_room = start.is_some() || self.store.has_room_to_read(under_way);
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
        self.mind_memory(waits_for_memory);
    }

    /// Applies what links have brought.
    fn take_in_links(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if let Some(linked) = &mut self.linked
            && !self.phase.is_stopping()
        {
            if let Some(plan) = linked.take_deferred(now.us) {
                self.setup.place(plan.placement());
                linked.replan(now.us, plan, &self.store);
            }
            let (io, links) = (&mut outbox.io, &mut outbox.links);
            linked.take_in(now.us, &mut self.store, self.setup.hash(), io, links);
        }
    }

    /// Logs settings of keyspaces that other shards told or that this one decided.
    fn log_keyspaces(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if self.phase.is_stopping() {
            return;
        }
        let linked = self.linked.as_ref();
        let owned = Owned {
            shard: self.setup.shard(),
            shards: self.setup.config().topology.shards(),
            partitions: self.setup.partitions(),
            writer: |partition| linked.map_or(Writer::Here, |it| it.writer_of(partition)),
            served: linked.map_or(0, |it| it.served_changes()),
        };
        self.keyspaces.look(&mut self.store, &owned);
        let own = self.keyspaces.turn(now.us, &mut self.store, &owned);
        self.phase.note_progress(self.keyspaces.may_go_on());
        if let Some(done) = own {
            self.keyspace_done(done, outbox);
        }
        self.end_late_keyspace(now, outbox);
    }

    /// Looks through sealed segments.
    fn scrub(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if !self.phase.is_stopping() {
            self.store.scrub(now.us, &mut outbox.io);
        }
    }

    /// Tells people of damage that was found.
    fn tell_damage(&mut self, outbox: &mut Outbox<P::Block>) {
        while let Some(rotten) = self.store.take_rotten() {
            outbox.rotten.push(rotten);
        }
        outbox.bad_places.extend(self.chores.take_bad_places());
    }

    /// How many items ran in this turn. A member has work without a client: what it applies counts.
    fn items_of_turn(&mut self) -> u64 {
        let linked = self.linked.as_ref();
        let applied = linked.map_or(0, |it| it.link_set().counters().applied);
        self.chores.ran(self.stats.items() + applied)
    }

    /// Goes on with a snapshot of the index, or begins one if it is due.
    fn take_snapshot(&mut self, now: Now, is_idle: bool, outbox: &mut Outbox<P::Block>) {
        let writes = &mut outbox.snapshots;
        self.chores
            .snapshots
            .step(now, &mut self.store, is_idle, writes);
    }

    /// Seals the log of a shard that stops when nothing is under way any more.
    fn close_when_done(&mut self, now: Now) {
        if self.phase.is_stopping()
            && self.requests.is_empty()
            && self.scans.steps.is_empty()
            && self.chores.snapshots.may_stop(now, &mut self.store)
        {
            self.store.log_mut().close();
        }
    }

    /// Ships what was sealed. A node that another one has seen further than it is here ends.
    fn give_out_links(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if let Some(linked) = &mut self.linked
            && !self.phase.is_stopping()
        {
            let (io, links) = (&mut outbox.io, &mut outbox.links);
            let waits = &self.replica_waits;
            let is_waited_for = |partition| waits.is_waited_for(partition);
            let hash = self.setup.hash();
            linked.give_out(now.us, &mut self.store, hash, is_waited_for, io, links);
            if linked.has_gone_back() {
                self.phase.end(Fatal::GoneBack);
                outbox.fatal = Some(Fatal::GoneBack);
            }
        }
    }

    /// Asks for the segment files that the log is going to need.
    fn request_segments(&mut self, outbox: &mut Outbox<P::Block>) {
        if !self.phase.is_stopping() {
            outbox.spares += self.files.request(self.store.log().spares_wanted());
        }
    }

    /// Looks at the deadlines of operations and connections, if it is time.
    fn sweep(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        if !self.chores.begins_sweep(now.us) {
            return;
        }
        self.expire(now, outbox);
        self.sessions.resume_expired(now.us, &mut outbox.resume);
        let is_short = self.is_short_of_room();
        self.sessions
            .look_at_peers(now.us, is_short, &mut outbox.looks);
        outbox.close.extend(self.sessions.overdue(now.us));
    }
}

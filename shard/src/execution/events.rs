//! What comes from outside and changes no connection: segment files, plans, links, schemas.

use std::sync::Arc;

use penstock_net::program::ServedSchema;
use penstock_storage::io::Blocks;
use penstock_storage::place::FileId;
use penstock_storage::planted::{Bug, is_planted};

use crate::cluster::Plan;
use crate::event::{Event, Outbox};
use crate::execution::Execution;
use crate::now::Now;
use crate::spare_failure::SpareFailure;

impl<P: Blocks> Execution<P> {
    /// A step begins in which something comes to be that depends on the time.
    #[inline]
    pub(crate) fn step_begins(&mut self, now: Now, may_execute: bool) {
        self.store.data_mut().observe(now.us, now.unix_ms);
        self.stats.event(now.us);
        if let Some(linked) = &mut self.linked {
            linked.steps(now.us, &self.store, may_execute);
        }
    }

    /// A segment file is ready.
    pub(crate) fn spare_came(&mut self, file: FileId, salt: u64, bytes: u64, is_reused: bool) {
        let log = self.store.log_mut();
        match is_reused {
            true => log.add_reused_spare(file, salt, bytes),
            false => log.add_spare(file, salt, bytes),
        }
        self.files.came(log.is_low());
        self.firing.room_came();
        self.phase.note_progress(!is_planted(Bug::SpareWakesNobody));
    }

    /// No segment file can be made ready now.
    pub(crate) fn spare_refused(&mut self, failure: Option<SpareFailure>) {
        self.files.refused(failure);
        self.store.log_mut().spare_refused();
        if self.files.has_leaving() {
            self.store.log_mut().removal_goes_on();
        }
        self.phase.note_progress(true);
    }

    /// The inherited logs are void.
    pub(crate) fn forget_inherited(&mut self, outbox: &mut Outbox<P::Block>) {
        for file in self.store.forget_inherited() {
            self.scans.forget_table(file, &mut outbox.key_tables);
            outbox.forgotten.push(file);
        }
    }

    /// Who writes and who holds what has changed in the cluster.
    pub(crate) fn replan(&mut self, now: Now, plan: Arc<Plan>) {
        if let Some(linked) = &mut self.linked
            && !linked.defer(now.us, &plan)
        {
            self.setup.place(plan.placement());
            linked.replan(now.us, plan, &self.store);
            self.tracking.is_replanned();
        }
    }

    /// A link has come or gone, or has brought something.
    pub(crate) fn link_changed(&mut self, event: Event<'_, P::Block>) {
        if let (Event::LinkUp { peer, .. }, Some(linked)) = (&event, &self.linked) {
            linked.meet(peer);
        }
        let Some(links) = self.links() else {
            return;
        };
        match event {
            Event::LinkUp {
                link,
                peer,
                is_outgoing: true,
            } => links.connected(link, peer),
            Event::LinkUp { link, peer, .. } => links.accepted(link, peer),
            Event::LinkReceived { link, bytes } => links.came(link, bytes),
            Event::LinkDown { link } => links.closed(link),
            Event::DivergedKept { partition, link } => links.diverged_kept(partition, link),
            _ => unreachable!("the caller hands over events of links"),
        }
    }

    /// Runs the programs of this schema from now on.
    pub fn serve_schema(&mut self, schema: Arc<ServedSchema>) {
        self.programs.replace(schema);
    }
}

//! How far a member is with one partition, as its source sees it.

use penstock_net::link::{Mode, PartitionSet, Position, RefusalCode, Rewind};
use penstock_storage::place::Lsn;

use crate::replication::PartitionId;
use crate::replication::epoch::Epoch;
use crate::replication::receiver::LinkRefusal;
use crate::replication::record::ShippedRecord;
use crate::replication::standing::LinkState;
use crate::replication::summarized_map::Summarized;

/// One partition on one link.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) epoch: Epoch,
    pub(super) phase: Phase,
    /// The last record that was shipped, dense.
    pub(super) shipped: Position,
    /// What the member has asked to be written anew.
    pub(super) rewind: Option<Rewinding>,
    /// The frame of JOIN, and the record up to which all was shipped with it.
    joined: Option<(u64, Lsn)>,
    /// The last frame with a record of the partition.
    pub(super) shipped_in: u64,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// OPEN was sent.
    Asked,
    /// STATE has come; BEGIN goes when the log is durable up to here.
    Known {
        when: Lsn,
        mode: Mode,
        from: Position,
    },
    CatchingUp(Mode),
    Live,
    /// A higher epoch was promised there, or the partition was handed over.
    Over,
}

/// Keys that are written anew for the member.
#[derive(Debug, Default)]
pub(super) struct Rewinding {
    /// REWIND with keys was taken, and not answered yet.
    is_due: bool,
    is_last: bool,
    /// The last record that was written for it.
    lsn: Lsn,
}

impl Rewinding {
    /// REWIND has come. Whether it has a place here.
    fn ask(&mut self, is_last: bool) -> bool {
        if self.is_due || self.is_last {
            return false;
        }
        (self.is_due, self.is_last) = (true, is_last);
        true
    }

    /// The keys of the last REWIND are written, the last of them as this record.
    pub(super) fn written(&mut self, lsn: Lsn) {
        self.is_due = false;
        self.lsn = self.lsn.max(lsn);
    }

    /// Whether all keys are written by records up to this one.
    fn is_over(&self, lsn: Lsn) -> bool {
        self.is_last && !self.is_due && self.lsn <= lsn
    }
}

/// The partitions of a link by how far the member is with them.
#[derive(Debug, Default)]
pub(super) struct ProgressOverview {
    /// STATE has come, and BEGIN was not sent.
    pub(super) known: PartitionSet,
    pub(super) catching_up: PartitionSet,
    pub(super) live: PartitionSet,
    /// JOIN was sent.
    pub(super) announced: PartitionSet,
    /// A scan is under way, or about to begin.
    pub(super) wanting_deletions: PartitionSet,
}

impl Summarized for Progress {
    type Summary = ProgressOverview;

    fn note(&self, number: PartitionId, overview: &mut ProgressOverview) {
        let is_known = matches!(self.phase, Phase::Known { .. });
        let wants_deletions = self.wants_deletions();
        overview.known.set(number, is_known);
        overview.catching_up.set(number, self.is_catching_up());
        overview.live.set(number, self.is_live());
        overview.announced.set(number, self.joined.is_some());
        overview.wanting_deletions.set(number, wants_deletions);
    }
}

impl Progress {
    /// A partition that is offered in this epoch.
    pub(super) fn asked(epoch: Epoch) -> Self {
        Progress {
            epoch,
            phase: Phase::Asked,
            shipped: Position::default(),
            rewind: None,
            joined: None,
            shipped_in: 0,
        }
    }

    /// A partition that the member is to write in this epoch, with all up to `at`.
    pub(super) fn handed_over(epoch: Epoch, at: Position) -> Self {
        Progress {
            phase: Phase::Over,
            shipped: at,
            ..Progress::asked(epoch)
        }
    }

    /// Nothing more of it is shipped.
    pub(super) fn end(&mut self) {
        self.phase = Phase::Over;
        self.joined = None;
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    pub(super) fn is_catching_up(&self) -> bool {
        matches!(self.phase, Phase::CatchingUp(_))
    }

    pub(super) fn is_scan(&self) -> bool {
        matches!(self.phase, Phase::CatchingUp(Mode::Scan))
    }

    /// Whether it is caught up in the order of the log.
    pub(super) fn is_delta(&self) -> bool {
        matches!(self.phase, Phase::CatchingUp(Mode::Dense))
    }

    /// Whether a scan is under way, or about to begin.
    fn wants_deletions(&self) -> bool {
        let is_known = matches!(
            self.phase,
            Phase::Known {
                mode: Mode::Scan,
                ..
            }
        );
        is_known || self.is_scan()
    }

    pub(super) fn link_state(&self) -> LinkState {
        match self.phase {
            Phase::Asked | Phase::Known { .. } | Phase::Over => LinkState::Handshake,
            Phase::CatchingUp(_) => LinkState::CatchingUp,
            Phase::Live => LinkState::Live,
        }
    }

    /// The frame of JOIN, and the record up to which all was shipped with it, if the member has
    /// told frames up to `durable` durable and JOIN is one of them.
    pub(super) fn joined_by(&self, durable: u64) -> Option<Lsn> {
        self.joined
            .filter(|(frame, _)| *frame <= durable)
            .map(|(_, lsn)| lsn)
    }

    /// Takes a REWIND. Whether its keys are to be written anew; `None` if it has no place here.
    pub(super) fn take_rewind(&mut self, rewind: &Rewind<'_>) -> Option<bool> {
        // For an OPEN before this one.
        if !self.is_catching_up() {
            return Some(false);
        }
        let rewinding = self.rewind.as_mut()?;
        rewinding.ask(rewind.is_last).then_some(true)
    }

    /// The ring has dropped what is next: the member lacks records as if it had never joined. What
    /// was shipped is remembered.
    pub(super) fn overtaken(&mut self) {
        self.phase = Phase::CatchingUp(Mode::Dense);
        self.joined = None;
    }

    /// Whether JOIN may go now that all up to `at` was shipped. `judged` bounds what a scan left
    /// out.
    pub(super) fn may_join(&self, at: Lsn, judged: Lsn, newest: Position) -> bool {
        let is_rewound = self.rewind.as_ref().is_none_or(|it| it.is_over(at));
        is_rewound && (self.is_delta() || judged <= at) && newest.epoch <= self.epoch.0
    }

    /// JOIN goes at this position.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the last records of the partition were released before they were read.
    pub(super) fn go_live(
        &mut self,
        partition: PartitionId,
        at: Position,
    ) -> Result<(), LinkRefusal> {
        if self.is_delta() && self.shipped != at {
            return Err(gap(partition, at, self.shipped));
        }
        self.phase = Phase::Live;
        self.rewind = None;
        self.shipped = at;
        Ok(())
    }

    /// JOIN went in this frame, behind all up to this record.
    pub(super) fn joined(&mut self, frame: u64, at: Lsn) {
        self.joined = Some((frame, at));
    }

    /// The next record of the partition is shipped.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the own log has a gap, which must not be shipped over.
    pub(super) fn follow(&mut self, record: &ShippedRecord<'_>) -> Result<(), LinkRefusal> {
        if !record.follows(self.shipped.sequence) {
            return Err(gap(record.partition, record.position, self.shipped));
        }
        self.shipped = record.position;
        Ok(())
    }
}

fn gap(partition: PartitionId, found: Position, shipped: Position) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Records,
        text: format!(
            "partition {partition}: {found:?} does not follow {shipped:?} in the log of the source"
        ),
    }
}

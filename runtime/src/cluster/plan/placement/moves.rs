//! Changes of who writes a partition: switches and promotions.

use penstock_net::link::Membership;
use penstock_shard::cluster::Assignment;

use crate::cluster::plan::file::{ClusterFileError, GENERATION_MAX};
use crate::cluster::plan::placement::Draft;
use crate::cluster::plan::placement::standings::Standing;

/// How a node comes to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The node that writes hands over, when the other one has all: nothing is lost, and both must
    /// be there.
    HandedOver,
    /// The node begins with the records that it has received. Records that the old primary had not
    /// shipped are missing.
    Forced {
        /// What else may be missing.
        accepted: Accepted,
        /// The node that wrote stays in the sync set: level `replica` waits until it is back and
        /// has all.
        is_sync_kept: bool,
    },
}

/// What may be missing where a node begins by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Accepted {
    /// Nothing that was acknowledged at level `replica`: it has followed since it started and is in
    /// the sync set.
    Nothing,
    /// It may have started since it last followed, or be a learner.
    Loss,
    /// It may be in the middle of a scan or a rewind, or have nothing at all.
    Incomplete,
}

/// What was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The partitions that another node is to write now.
    pub partitions: Vec<u16>,
    /// The nodes that have written them, but for the one that is to.
    pub from: Vec<u8>,
    /// In which generation they are written from now on.
    pub generation: u32,
}

impl Draft {
    /// Lets node `to` write these partitions in the next generation. Partitions that the node
    /// writes already stay as they are, except that a wait for a handover or for an accepted loss
    /// may end.
    ///
    /// # Errors
    /// Why not; nothing is changed.
    pub fn move_partitions(
        &mut self,
        partitions: &[u16],
        to: u8,
        takeover: Takeover,
    ) -> Result<Moved, ClusterFileError> {
        self.known(to)?;
        let accepted = match takeover {
            Takeover::HandedOver => Accepted::Nothing,
            Takeover::Forced { accepted, .. } => accepted,
        };
        let mut moved = Moved {
            partitions: Vec::new(),
            from: Vec::new(),
            generation: 0,
        };
        for &partition in partitions {
            let assignment = self.assignment(partition)?;
            let is_named = assignment.primary == to;
            // It may wait for a handover that never comes, or for somebody to accept a loss.
            let is_eased = takeover != Takeover::HandedOver
                && (assignment.is_handed_over || accepted > accepted_by(assignment));
            if is_named && !is_eased {
                continue;
            }
            if !is_named {
                self.check_successor(partition, to, takeover, accepted)?;
                moved.from.push(assignment.primary);
            }
            moved.generation = moved.generation.max(assignment.generation + 1);
            moved.partitions.push(partition);
        }
        moved.from.sort_unstable();
        moved.from.dedup();
        if u64::from(moved.generation) > GENERATION_MAX {
            return Err(self.fail("the generations of its partitions are used up"));
        }
        for &partition in &moved.partitions {
            let assignment = &mut self.file.assignments[usize::from(partition)];
            if assignment.primary != to {
                let before = assignment.primary;
                let members = &mut assignment.members;
                members.retain(|&(node, _)| node != to);
                self.file.joining[usize::from(partition)].retain(|&node| node != to);
                // In the order in which they are read: the sync set, who joins it, learners.
                match takeover {
                    Takeover::Forced {
                        is_sync_kept: false,
                        ..
                    } => members.push((before, Membership::Learner)),
                    _ => members.insert(0, (before, Membership::Sync)),
                }
            }
            assignment.generation = moved.generation;
            assignment.primary = to;
            assignment.is_handed_over = takeover == Takeover::HandedOver;
            assignment.is_loss_accepted = accepted >= Accepted::Loss;
            assignment.is_incomplete_accepted = accepted >= Accepted::Incomplete;
        }
        Ok(moved)
    }

    /// Whether a node may write a partition after another one.
    fn check_successor(
        &self,
        partition: u16,
        to: u8,
        takeover: Takeover,
        accepted: Accepted,
    ) -> Result<(), ClusterFileError> {
        let what = match self.standing(partition, to) {
            Some(Standing::Sync) => return Ok(()),
            Some(_) if accepted >= Accepted::Loss => return Ok(()),
            Some(Standing::Joining) => "still joins the sync set of",
            Some(Standing::Learner) => "is a learner of",
            None => "does not hold",
        };
        let advice = match takeover {
            _ if what == "does not hold" => {
                format!("`penstock cluster learner --node {to}` lets it")
            }
            Takeover::HandedOver => format!(
                "`penstock cluster sync --node {to}` makes it one of \
                 the sync set"
            ),
            Takeover::Forced { .. } => "level replica did not always wait for it, so it may lack \
                what was acknowledged there. Promote a node of the sync set if there is one with \
                as much (`penstock cluster status`), otherwise give --accept-loss"
                .into(),
        };
        Err(self.fail(&format!("node {to} {what} partition {partition}: {advice}")))
    }
}

fn accepted_by(assignment: &Assignment) -> Accepted {
    match (
        assignment.is_loss_accepted,
        assignment.is_incomplete_accepted,
    ) {
        (_, true) => Accepted::Incomplete,
        (true, false) => Accepted::Loss,
        (false, false) => Accepted::Nothing,
    }
}

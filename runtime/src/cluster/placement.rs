//! Changes the plan of a cluster: who writes what, who holds it, which nodes there are.
//!
//! The plan is the only thing that is changed, and the nodes read it anew: so a node that is down
//! when it is changed finds the same when it starts, and there is one place to look at. Comments
//! and the order of what stands in it stay.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use penstock_net::link::Membership;
use penstock_shard::cluster::Assignment;
use toml_edit::{DocumentMut, Item};

use super::document::{edit_nodes, edit_placements, note_change};
use super::file::{ClusterFile, ClusterFileError, ClusterNode, GENERATION_MAX, numbers_of};
use super::home::{PlanHome, PlanPlace, Revision, StoredPlan, Swapped};

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

/// What a node that does not write is to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Level `replica` waits for it, and it may be promoted.
    Sync,
    /// Level `replica` waits for it, and it may not be promoted yet.
    Joining,
    /// It gets what is written, and nobody waits for it.
    Learner,
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

/// The plan of a cluster, to be changed.
pub struct Draft {
    place: PlanPlace,
    home: Box<dyn PlanHome>,
    /// What the change is to replace.
    revision: Revision,
    /// Who changes it.
    author: String,
    document: DocumentMut,
    /// As it is now.
    before: ClusterFile,
    /// As it is to be.
    file: ClusterFile,
}

/// The nodes of a cluster, and where clients find each.
///
/// # Errors
/// The plan.
pub fn nodes_of(place: &PlanPlace) -> Result<Vec<(u8, String)>, ClusterFileError> {
    nodes_in(place, text_of(place)?)
}

/// The same of a document that stands there, or could.
///
/// # Errors
/// What is wrong with it.
pub fn nodes_in(place: &PlanPlace, text: String) -> Result<Vec<(u8, String)>, ClusterFileError> {
    let nodes = ClusterFile::of(place, text)?.nodes;
    let nodes = nodes.into_iter().map(|node| (node.number, node.clients));
    Ok(nodes.collect())
}

/// The document of the plan, as it stands there.
///
/// # Errors
/// Why it cannot be read.
pub fn text_of(place: &PlanPlace) -> Result<String, ClusterFileError> {
    let home = place.open().map_err(|cause| failed(place, &cause));
    Ok(load(place, home?.as_mut())?.text)
}

fn load(place: &PlanPlace, home: &mut dyn PlanHome) -> Result<StoredPlan, ClusterFileError> {
    let stored = home
        .load()
        .map_err(|error| failed(place, &error.to_string()))?;
    stored.ok_or_else(|| {
        let cause = match place.file() {
            Some(_) => "cannot be read: there is no such file",
            None => "there is none: `penstock cluster init` or `import` writes the first one",
        };
        failed(place, cause)
    })
}

impl Draft {
    /// Reads the plan as it is. `author` is who changes it, and by what command.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(place: &PlanPlace, author: &str) -> Result<Draft, ClusterFileError> {
        let place = match place {
            // What stands behind a symbolic link is changed, and not the link.
            PlanPlace::File(path) => PlanPlace::File(
                path.canonicalize()
                    .map_err(|error| failed(place, &format!("cannot be read: {error}")))?,
            ),
            etcd => etcd.clone(),
        };
        let mut home = place.open().map_err(|cause| failed(&place, &cause))?;
        let stored = load(&place, home.as_mut())?;
        let file = ClusterFile::of(&place, stored.text)?;
        let document = file
            .text
            .parse::<DocumentMut>()
            .map_err(|error| failed(&place, &error.to_string().replace('\n', ", ")))?;
        for name in ["node", "placement"] {
            if !document.get(name).is_some_and(Item::is_array_of_tables) {
                return Err(failed(
                    &place,
                    &format!("to be changed, each {name} must be written as [[{name}]]"),
                ));
            }
        }
        Ok(Draft {
            place,
            home,
            revision: stored.revision,
            author: author.into(),
            document,
            before: file.clone(),
            file,
        })
    }

    /// The numbers of the nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<u8> {
        self.file.nodes.iter().map(|node| node.number).collect()
    }

    /// Where clients find a node.
    ///
    /// # Errors
    /// The file has no such node.
    pub fn clients_of(&self, node: u8) -> Result<String, ClusterFileError> {
        self.known(node).map(|node| node.clients.clone())
    }

    /// Who writes a partition.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn primary_of(&self, partition: u16) -> Result<u8, ClusterFileError> {
        Ok(self.assignment(partition)?.primary)
    }

    /// What a node that does not write a partition is to it.
    #[must_use]
    pub fn standing(&self, partition: u16, node: u8) -> Option<Standing> {
        let partition = usize::from(partition);
        let assignment = self.file.assignments.get(partition)?;
        let mut members = assignment.members.iter();
        let (_, membership) = members.find(|(member, _)| *member == node)?;
        Some(match membership {
            Membership::Learner => Standing::Learner,
            Membership::Sync if self.file.joining[partition].contains(&node) => Standing::Joining,
            Membership::Sync => Standing::Sync,
        })
    }

    /// The nodes that level `replica` waits for in all of these partitions together, ascending, and
    /// whether there is one without any.
    #[must_use]
    pub fn waited_for(&self, partitions: &[u16]) -> (Vec<u8>, bool) {
        let mut nodes = Vec::new();
        let mut is_one_empty = false;
        for &partition in partitions {
            let members = &self.file.assignments[usize::from(partition)].members;
            let sync = members.iter().filter(|(_, it)| *it == Membership::Sync);
            let before = nodes.len();
            nodes.extend(sync.map(|&(node, _)| node));
            is_one_empty |= nodes.len() == before;
        }
        nodes.sort_unstable();
        nodes.dedup();
        (nodes, is_one_empty)
    }

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

    /// Makes a node a learner of those of these partitions of whose sync set it is.
    pub fn leave_sync(&mut self, partitions: &[u16], node: u8) {
        for &partition in partitions {
            let standing = self.standing(partition, node);
            if matches!(standing, Some(Standing::Sync | Standing::Joining)) {
                self.place(partition..=partition, node, Standing::Learner)
                    .expect("a member does not write it");
            }
        }
    }

    /// Makes a node, which writes none of these partitions, a member or learner of them. Returns
    /// how many were changed.
    ///
    /// # Errors
    /// The node writes one of the partitions. Nothing is changed.
    pub fn place(
        &mut self,
        partitions: RangeInclusive<u16>,
        node: u8,
        standing: Standing,
    ) -> Result<usize, ClusterFileError> {
        self.known(node)?;
        for partition in partitions.clone() {
            if self.assignment(partition)?.primary == node {
                return Err(self.fail(&format!(
                    "node {node} writes partition {partition}: let another node write it first, \
                     with `penstock cluster switch`, or `promote` if it is lost"
                )));
            }
        }
        let mut changed = 0;
        for partition in partitions {
            if self.standing(partition, node) == Some(standing) {
                continue;
            }
            changed += 1;
            let at = usize::from(partition);
            let members = &mut self.file.assignments[at].members;
            let joining = &mut self.file.joining[at];
            members.retain(|&(member, _)| member != node);
            joining.retain(|&member| member != node);
            let is_sync = |it: &&(u8, Membership)| it.1 == Membership::Sync;
            let sync = members.iter().filter(is_sync).count();
            match standing {
                Standing::Sync => members.insert(sync - joining.len(), (node, Membership::Sync)),
                Standing::Joining => {
                    members.insert(sync, (node, Membership::Sync));
                    joining.push(node);
                }
                Standing::Learner => members.push((node, Membership::Learner)),
            }
        }
        Ok(changed)
    }

    /// Adds a node, which holds nothing yet.
    ///
    /// # Errors
    /// The number or an address is taken.
    pub fn add(
        &mut self,
        number: u8,
        links: SocketAddr,
        clients: &str,
        resp: Option<&str>,
    ) -> Result<(), ClusterFileError> {
        let taken = self.file.nodes.iter();
        if let Some(other) = taken
            .clone()
            .find(|it| it.number == number || it.links == links)
        {
            return Err(self.fail(&format!(
                "node {number} with links = {links}: there is node {} with links = {}",
                other.number, other.links
            )));
        }
        self.file.nodes.push(ClusterNode {
            number,
            links,
            clients: clients.into(),
            resp: resp.map(str::to_string),
        });
        Ok(())
    }

    /// Takes a node that writes nothing out of the cluster.
    ///
    /// # Errors
    /// The node writes a partition, or there is no such node.
    pub fn drop_node(&mut self, number: u8) -> Result<(), ClusterFileError> {
        self.known(number)?;
        let mut written = self.file.assignments.iter();
        if let Some(partition) = written.position(|it| it.primary == number) {
            return Err(self.fail(&format!(
                "node {number} writes partition {partition}: let another node write it first, \
                 with `penstock cluster switch`, or `promote` if it is lost"
            )));
        }
        self.file.nodes.retain(|node| node.number != number);
        for assignment in &mut self.file.assignments {
            assignment.members.retain(|&(node, _)| node != number);
        }
        for joining in &mut self.file.joining {
            joining.retain(|&node| node != number);
        }
        Ok(())
    }

    /// The partitions whose primary is to go on in a new generation, because the sync set has
    /// another node since and none that may be promoted: [`Assignment::needs_generation`]. None of
    /// those that are given a new generation anyway.
    #[must_use]
    pub fn renewals(&self) -> Vec<u16> {
        let is_renewed = |at: &usize| {
            let (before, now) = (&self.before.assignments[*at], &self.file.assignments[*at]);
            before.generation == now.generation
                && before.needs_generation(now, &self.file.joining[*at])
        };
        let all = 0..self.file.assignments.len();
        let renewed = all.filter(is_renewed);
        renewed.map(|at| u16::try_from(at).expect("256")).collect()
    }

    /// Whether one of these partitions may still wait to be handed over to its primary.
    #[must_use]
    pub fn is_one_handed_over(&self, partitions: &[u16]) -> bool {
        let mut all = partitions.iter();
        all.any(|&it| self.file.assignments[usize::from(it)].is_handed_over)
    }

    fn renew(&mut self) -> Result<(), ClusterFileError> {
        for partition in self.renewals() {
            let assignment = &mut self.file.assignments[usize::from(partition)];
            if u64::from(assignment.generation) >= GENERATION_MAX {
                return Err(self.fail("the generations of its partitions are used up"));
            }
            assignment.renew();
        }
        Ok(())
    }

    /// Replaces the plan by what it is to be, at once and durably, unless somebody else has changed
    /// it since it was read. Partitions among the [`Draft::renewals`] are in their next generation
    /// then.
    ///
    /// # Errors
    /// Why it was not replaced, or that nobody knows.
    pub fn write(mut self) -> Result<(), ClusterFileError> {
        self.renew()?;
        edit_nodes(&mut self.document, &self.before, &self.file);
        edit_placements(&mut self.document, &self.before, &self.file);
        note_change(&mut self.document, self.before.revision, &self.author);
        let text = self.document.to_string();
        // What the nodes will read is what is meant.
        let read = ClusterFile::of(&self.place, text.clone())?;
        if !read.is_same(&self.file) {
            return Err(self.fail("was not changed: what was to be written says something else"));
        }
        match self.home.compare_and_swap(Some(&self.revision), &text) {
            Ok(Swapped::Done(_)) => Ok(()),
            Ok(Swapped::Conflict(there)) => Err(failed(&self.place, &conflict(&self.place, there))),
            Err(error) => Err(self.fail(&error.to_string())),
        }
    }

    fn known(&self, number: u8) -> Result<&ClusterNode, ClusterFileError> {
        self.file.node(number).ok_or_else(|| {
            self.fail(&format!(
                "there is no node {number}: it has {}",
                numbers_of(&self.file.nodes)
            ))
        })
    }

    fn assignment(&self, partition: u16) -> Result<&Assignment, ClusterFileError> {
        let assignment = self.file.assignments.get(usize::from(partition));
        assignment.ok_or_else(|| {
            self.fail(&format!(
                "there is no partition {partition}: they are 0 to 255"
            ))
        })
    }

    fn fail(&self, cause: &str) -> ClusterFileError {
        failed(&self.place, cause)
    }
}

/// What is told of a change that met another one.
pub(super) fn conflict(place: &PlanPlace, there: Option<StoredPlan>) -> String {
    let Some(there) = there else {
        return "it is gone since it was read; nothing was changed".into();
    };
    let by = match ClusterFile::of(place, there.text) {
        Ok(file) if !file.changed.by.is_empty() => {
            format!(" at {} by {}", file.changed.at, file.changed.by)
        }
        _ => String::new(),
    };
    format!(
        "it was changed meanwhile{by}; this command has changed nothing: look at the plan, and \
         give the command again"
    )
}

pub(super) fn failed(place: &PlanPlace, cause: &str) -> ClusterFileError {
    ClusterFileError::new(format!("{place}: {cause}"))
}

pub(super) fn failed_at(path: &Path, cause: &str) -> ClusterFileError {
    ClusterFileError::new(format!("{}: {cause}", path.display()))
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    const HEAD: &str = "# Ours.
version = 1
cluster_id = \"000102030405060708090a0b0c0d0e0f\"
secret_file = \"secret\"

[[node]]
number = 1
links = \"127.0.0.1:7414\"
clients = \"127.0.0.1:7411\" # here
[[node]]
number = 2
links = \"127.0.0.1:7415\"
clients = \"127.0.0.1:7511\"
[[node]]
number = 3
links = \"127.0.0.1:7416\"
clients = \"127.0.0.1:7611\"

";

    const PLACED: &str = "# Who writes.
[[placement]]
partitions = [0, 255] # all
generation = 4
primary = 1   # the large machine
sync = [ 2 ]
learners = [3]
";

    const FORCED: Takeover = Takeover::Forced {
        accepted: Accepted::Nothing,
        is_sync_kept: false,
    };

    fn accepting(accepted: Accepted) -> Takeover {
        Takeover::Forced {
            accepted,
            is_sync_kept: false,
        }
    }

    /// A file in a folder of its own.
    struct Example(PathBuf);

    impl Drop for Example {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(self.0.parent().expect("a folder")));
        }
    }

    impl Example {
        fn new(name: &str, text: &str) -> Example {
            let unique = format!("penstock-placed-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(unique);
            fs::create_dir_all(&folder).expect("made");
            let secret = folder.join("secret");
            fs::write(&secret, [b's'; 32]).expect("written");
            fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).expect("set");
            fs::write(folder.join("cluster.toml"), text).expect("written");
            Example(folder.join("cluster.toml"))
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.0).expect("there")
        }

        fn draft(&self) -> Draft {
            Draft::read(&PlanPlace::File(self.0.clone()), "a test").expect("good")
        }

        fn moved(
            &self,
            partitions: RangeInclusive<u16>,
            to: u8,
            takeover: Takeover,
        ) -> Result<Moved, String> {
            let mut draft = self.draft();
            let partitions: Vec<u16> = partitions.collect();
            let moved = draft.move_partitions(&partitions, to, takeover);
            let moved = moved.map_err(|error| error.to_string())?;
            draft.write().expect("written");
            Ok(moved)
        }
    }

    #[test]
    fn another_node_writes_in_a_generation_of_its_own_and_comments_and_order_stay() {
        // The placements stand before the nodes.
        let (head, nodes) = HEAD.split_at(HEAD.find("[[node]]").expect("there"));
        let example = Example::new("switch", &format!("{head}{PLACED}\n{nodes}"));
        let moved = example
            .moved(100..=255, 2, Takeover::HandedOver)
            .expect("moved");
        assert_eq!(moved.partitions, (100..=255).collect::<Vec<u16>>());
        assert_eq!((moved.from.as_slice(), moved.generation), (&[1][..], 5));
        let first = PLACED.replace("[0, 255]", "[0, 99]");
        let second = "\n[[placement]]\npartitions = [100, 255]\ngeneration = 5\nprimary = 2\n\
            sync = [1]\nlearners = [3]\nhandover = true\n";
        assert_eq!(example.text(), format!("{head}{first}{second}\n{nodes}"));

        // Partitions that the node writes already stay, except that it no longer waits for a
        // handover.
        let moved = example
            .moved(0..=255, 2, Takeover::HandedOver)
            .expect("moved");
        assert_eq!((moved.partitions.len(), moved.generation), (100, 5));
        let whole = PLACED
            .replace("generation = 4", "generation = 5")
            .replace("primary = 1 ", "primary = 2 ")
            .replace("[ 2 ]", "[1]");
        let whole = format!("{head}{whole}handover = true\n\n{nodes}");
        assert_eq!(example.text(), whole, "they are alike and one again");
        let loss = accepting(Accepted::Loss);
        let moved = example.moved(0..=9, 2, loss).expect("moved");
        assert_eq!((moved.from.len(), moved.generation), (0, 6), "{moved:?}");
        let text = example.text();
        assert_eq!(text.matches("accept_loss = true").count(), 1, "{text}");
        assert_eq!(text.matches("handover = true").count(), 1, "{text}");
        assert_eq!(
            example.moved(0..=255, 2, loss).expect("").partitions.len(),
            246
        );
        assert!(
            example
                .moved(0..=255, 2, loss)
                .expect("nothing to do")
                .partitions
                .is_empty()
        );
    }

    #[test]
    fn who_is_lost_leaves_the_sync_set_unless_it_is_to_stay_and_a_return_is_seen_to() {
        let example = Example::new("lost", &format!("{HEAD}{PLACED}"));
        example.moved(0..=255, 2, FORCED).expect("moved");
        let text = example.text();
        assert!(
            text.contains("sync = []\nlearners = [3, 1]\n"),
            "nobody is waited for in silence: {text}"
        );
        let (nodes, is_one_empty) = example.draft().waited_for(&[0, 255]);
        assert!(nodes.is_empty() && is_one_empty);

        // It may not write again before it has joined.
        let refused = example.moved(0..=255, 1, FORCED).expect_err("a learner");
        assert!(refused.contains("is a learner of partition 0"), "{refused}");
        let place = |standing| {
            let mut draft = example.draft();
            let changed = draft.place(0..=255, 1, standing).expect("placed");
            draft.write().expect("written");
            changed
        };
        assert_eq!(
            (place(Standing::Joining), place(Standing::Joining)),
            (256, 0)
        );
        let text = example.text();
        assert!(text.contains("sync = []\nlearners = [3]\njoining = [1]\n"));
        // Nobody who is waited for knows of what was acknowledged before.
        assert!(text.contains("generation = 6\nprimary = 2 "), "{text}");
        assert_eq!(example.draft().waited_for(&[7]), (vec![1], false));
        let refused = example.moved(0..=255, 1, FORCED).expect_err("not yet");
        assert!(refused.contains("still joins"), "{refused}");
        assert_eq!(place(Standing::Sync), 256);
        let text = example.text();
        assert!(text.contains("sync = [1]\nlearners = [3]\n"), "{text}");
        assert!(!text.contains("joining"), "{text}");
        assert!(text.contains("generation = 6\n"), "it is proven: {text}");
        let kept = Takeover::Forced {
            accepted: Accepted::Nothing,
            is_sync_kept: true,
        };
        example.moved(0..=255, 1, kept).expect("moved");
        let text = example.text();
        assert!(text.contains("sync = [2]\nlearners = [3]\n"), "{text}");
        assert!(text.contains("# the large machine"), "{text}");
    }

    #[test]
    fn a_sync_set_in_which_nobody_may_be_promoted_begins_in_a_generation_of_its_own() {
        let example = Example::new("renewed", &format!("{HEAD}{PLACED}handover = true\n"));
        let place = |partitions, node, standing| {
            let mut draft = example.draft();
            draft.place(partitions, node, standing).expect("placed");
            let renewed = draft.renewals();
            assert_eq!(draft.is_one_handed_over(&renewed), !renewed.is_empty());
            draft.write().expect("written");
            renewed
        };
        assert!(place(0..=255, 3, Standing::Joining).is_empty());
        assert!(example.text().contains("generation = 4\n"));
        let renewed = place(0..=99, 2, Standing::Learner);
        assert_eq!(renewed, (0..=99).collect::<Vec<u16>>());
        let text = example.text();
        assert!(text.contains("[0, 99] # all\ngeneration = 5\n"), "{text}");
        assert_eq!(text.matches("generation = 4\n").count(), 1, "{text}");
        assert_eq!(text.matches("handover = true").count(), 1, "{text}");

        // Where a partition has a new generation anyway it has no second one.
        let mut draft = example.draft();
        let moved = draft.move_partitions(&[200], 2, accepting(Accepted::Loss));
        assert_eq!(moved.expect("moved").generation, 5);
        draft.leave_sync(&[200], 1);
        assert!(draft.renewals().is_empty());
        let mut draft = example.draft();
        draft.drop_node(2).expect("it writes nothing");
        assert_eq!(draft.renewals(), (100..=255).collect::<Vec<u16>>());
    }

    #[test]
    fn nodes_come_and_go_and_leave_what_is_written_of_the_others() {
        let example = Example::new("nodes", &format!("{HEAD}{PLACED}"));
        let mut draft = example.draft();
        draft
            .add(
                7,
                "127.0.0.1:7417".parse().expect("good"),
                "seven:7411",
                Some("seven:7413"),
            )
            .and_then(|()| draft.place(0..=255, 7, Standing::Learner))
            .expect("added");
        draft.write().expect("written");
        let added = "\n[[node]]\nnumber = 7\nlinks = \"127.0.0.1:7417\"\nclients = \"seven:7411\"\n\
                     resp = \"seven:7413\"\n";
        let placed = PLACED.replace("[3]", "[3, 7]");
        let text = example.text();
        assert!(text.contains(&format!("7611\"\n{added}")), "{text}");
        assert!(text.ends_with(&placed), "{text}");
        let mut draft = example.draft();
        draft.drop_node(7).expect("it writes nothing");
        draft.write().expect("written");
        assert_eq!(example.text(), format!("{HEAD}{PLACED}"));

        let mut draft = example.draft();
        draft.drop_node(2).expect("it writes nothing");
        draft.write().expect("written");
        let text = example.text();
        assert!(
            text.contains("sync = []") && !text.contains("7415"),
            "{text}"
        );
        assert!(text.contains("# here") && text.contains("# all"), "{text}");
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let text = format!("{HEAD}{PLACED}");
        let example = Example::new("refused", &text);
        for (partitions, to, takeover, named) in [
            (
                0..=255,
                3,
                Takeover::HandedOver,
                "makes it one of the sync set",
            ),
            (0..=255, 3, FORCED, "--accept-loss"),
            (0..=255, 4, FORCED, "no node 4: it has 1, 2, 3"),
            (0..=256, 2, FORCED, "no partition 256"),
        ] {
            let cause = example.moved(partitions, to, takeover).expect_err(named);
            assert!(cause.contains(named), "{cause}");
        }
        let mut draft = example.draft();
        let links = |port| SocketAddr::from(([127, 0, 0, 1], port));
        for (refused, named) in [
            (draft.drop_node(1), "writes partition 0"),
            (draft.drop_node(9), "no node 9"),
            (
                draft.place(0..=9, 1, Standing::Sync).map(drop),
                "writes partition 0",
            ),
            (draft.add(2, links(1), "here", None), "there is node 2"),
            (draft.add(9, links(7416), "here", None), "there is node 3"),
        ] {
            let cause = refused.expect_err(named).to_string();
            assert!(cause.contains(named), "{cause}");
        }
        assert_eq!(example.text(), text);
        assert_eq!(
            fs::read_dir(example.0.parent().expect("a folder"))
                .expect("there")
                .count(),
            2
        );

        // A learner may, if what it lacks is known to be lost.
        example
            .moved(0..=255, 3, accepting(Accepted::Loss))
            .expect("moved");
        let text = example.text();
        assert!(
            text.contains("sync = [ 2 ]\nlearners = [1]\naccept_loss = true\n"),
            "{text}"
        );
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_to_it_stays_one() {
        use std::os::unix::fs::symlink;
        let example = Example::new("mode", &format!("{HEAD}{PLACED}"));
        fs::set_permissions(&example.0, fs::Permissions::from_mode(0o640)).expect("set");
        let link = example.0.with_file_name("link.toml");
        symlink(&example.0, &link).expect("linked");
        let mut draft = Draft::read(&PlanPlace::File(link.clone()), "a test").expect("good");
        let some: Vec<u16> = (0..=9).collect();
        draft.move_partitions(&some, 2, FORCED).expect("moved");
        draft.write().expect("written");
        let mode = |path: &Path| {
            fs::symlink_metadata(path)
                .expect("there")
                .permissions()
                .mode()
        };
        assert_eq!(mode(&example.0) & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert!(example.text().contains("partitions = [10, 255]"));
    }
}

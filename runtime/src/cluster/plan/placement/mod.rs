//! Changes the plan of a cluster: who writes what, who holds it, which nodes there are.
//!
//! The plan is the only thing that is changed, and the nodes read it anew: so a node that is down
//! when it is changed finds the same when it starts, and there is one place to look at. Comments
//! and the order of what stands in it stay.

mod failover;
mod moves;
mod nodes;
mod standings;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use penstock_shard::cluster::Assignment;
use toml_edit::DocumentMut;

pub use self::failover::{FailoverSettings, FailoverStep};
pub use self::moves::{Accepted, Moved, Takeover};
pub use self::standings::Standing;
use crate::cluster::plan::document::{
    document_of, edit_failover, edit_nodes, edit_placements, note_change,
};
use crate::cluster::plan::file::{
    ClusterFile, ClusterFileError, ClusterNode, GENERATION_MAX, numbers_of,
};
use crate::cluster::plan::home::{NO_PLAN, PlanHome, PlanPlace, Revision, StoredPlan, Swapped};

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

/// The number of a plan, 0 if it has none; the nodes of the cluster, and where clients find each.
///
/// # Errors
/// Why it cannot be read.
pub fn nodes_of(place: &PlanPlace) -> Result<(u64, Vec<(u8, String)>), ClusterFileError> {
    let file = ClusterFile::of(place, text_of(place)?)?;
    Ok((file.revision, nodes_and_clients(file)))
}

fn nodes_and_clients(file: ClusterFile) -> Vec<(u8, String)> {
    let nodes = file.nodes.into_iter();
    nodes.map(|node| (node.number, node.clients)).collect()
}

/// The nodes of a document that stands there, or could.
///
/// # Errors
/// What is wrong with it.
pub fn nodes_in(place: &PlanPlace, text: String) -> Result<Vec<(u8, String)>, ClusterFileError> {
    Ok(nodes_and_clients(ClusterFile::of(place, text)?))
}

/// Nodes that read `resp_ports` of a `[[node]]` for the first time when a plan is written.
pub struct CorePortsReaders {
    /// Each node, and where clients find it. None if the plan has no `resp_ports`, or had one.
    pub nodes: Vec<(u8, String)>,
    /// Whether there was a plan, so that each node has read one.
    pub had_plan: bool,
}

impl CorePortsReaders {
    fn of(before: Option<ClusterFile>, after: &ClusterFile) -> CorePortsReaders {
        let has = |file: &ClusterFile| file.nodes.iter().any(|it| it.resp_ports.is_some());
        let (had_plan, had) = (before.is_some(), before.as_ref().is_some_and(has));
        let readers = before.unwrap_or_else(|| after.clone());
        let nodes = if has(after) && !had {
            nodes_and_clients(readers)
        } else {
            Vec::new()
        };
        CorePortsReaders { nodes, had_plan }
    }

    /// Those of a plan that `import` would put into `place`.
    ///
    /// # Errors
    /// What is wrong with the plan of the file.
    pub fn of_import(place: &PlanPlace, from: &Path) -> Result<CorePortsReaders, ClusterFileError> {
        let text = std::fs::read_to_string(from)
            .map_err(|error| failed_at(from, &format!("cannot be read: {error}")))?;
        let after = ClusterFile::without_secret(text).map_err(|cause| failed_at(from, &cause))?;
        let mut home = place.open().map_err(|cause| failed(place, &cause))?;
        let stored = home
            .load()
            .map_err(|error| failed(place, &error.to_string()))?;
        // What is no plan at all is replaced.
        let before = stored.and_then(|it| ClusterFile::of(place, it.text).ok());
        Ok(CorePortsReaders::of(before, &after))
    }
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
            None => NO_PLAN,
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
        let document = document_of(&file.text).map_err(|cause| failed(&place, &cause))?;
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

    /// Who reads `resp_ports` for the first time when this is written.
    #[must_use]
    pub fn core_ports_readers(&self) -> CorePortsReaders {
        CorePortsReaders::of(Some(self.before.clone()), &self.file)
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

    /// Where others take up links with a node, and where clients find it.
    ///
    /// # Errors
    /// The file has no such node.
    pub fn addresses_of(&self, node: u8) -> Result<(SocketAddr, String), ClusterFileError> {
        let node = self.known(node)?;
        Ok((node.links, node.clients.clone()))
    }

    /// Who writes a partition.
    ///
    /// # Errors
    /// There is no such partition.
    pub fn primary_of(&self, partition: u16) -> Result<u8, ClusterFileError> {
        Ok(self.assignment(partition)?.primary)
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
        edit_failover(
            &mut self.document,
            &self.before.failover,
            &self.file.failover,
        );
        let now = SystemTime::now();
        note_change(&mut self.document, self.before.revision, &self.author, now);
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
pub(crate) fn conflict(place: &PlanPlace, there: Option<StoredPlan>) -> String {
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

pub(crate) fn failed(place: &PlanPlace, cause: &str) -> ClusterFileError {
    ClusterFileError::new(format!("{place}: {cause}"))
}

pub(crate) fn failed_at(path: &Path, cause: &str) -> ClusterFileError {
    ClusterFileError::new(format!("{}: {cause}", path.display()))
}

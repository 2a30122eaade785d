//! Names another primary in the cluster's file: who hands over what, or who begins without being handed it.
//!
//! The file is the only thing that is changed, and the nodes read it anew: so a node that is down when it is
//! changed finds the same when it starts, and there is one place to look at.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use penstock_net::link::Membership;
use penstock_shard::linked::Assignment;

use super::file::{ClusterFile, ClusterFileError, GENERATION_MAX};

/// How a node comes to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The node that writes hands over, when the other one has all: nothing is lost, and both must be there.
    HandedOver,
    /// It begins with what it has received: what the node that wrote had not shipped is missing.
    Forced {
        /// Also if it has started since it last followed, so that what it had only received may be gone.
        is_loss_accepted: bool,
    },
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
    /// Where clients find the node that is to write.
    pub clients: String,
}

/// Where clients find a node of a cluster.
///
/// # Errors
/// The file, or that it has no such node.
pub fn clients_of(path: &Path, node: u8) -> Result<String, ClusterFileError> {
    let file = ClusterFile::read(path)?;
    match file.node(node) {
        Some(node) => Ok(node.clients.clone()),
        None => Err(failed(path, &format!("there is no node {node}"))),
    }
}

/// The nodes of a cluster, and where clients find each.
///
/// # Errors
/// The file.
pub fn nodes_of(path: &Path) -> Result<Vec<(u8, String)>, ClusterFileError> {
    let nodes = ClusterFile::read(path)?.nodes;
    let nodes = nodes.into_iter().map(|node| (node.number, node.clients));
    Ok(nodes.collect())
}

/// Lets node `to` write these partitions, in the next generation. Those that it writes already stay as they are.
/// Comments among the placements do not.
///
/// # Errors
/// Why the file was not changed.
pub fn move_partitions(
    path: &Path,
    partitions: RangeInclusive<u16>,
    to: u8,
    takeover: Takeover,
) -> Result<Moved, ClusterFileError> {
    let fail = |cause: &str| failed(path, cause);
    let mut file = ClusterFile::read(path)?;
    let clients = clients_of(path, to)?;
    let mut moved = Moved {
        partitions: Vec::new(),
        from: Vec::new(),
        generation: 0,
        clients,
    };
    for partition in partitions {
        let Some(assignment) = file.assignments.get(usize::from(partition)) else {
            return Err(fail(&format!("there is no partition {partition}")));
        };
        let is_named = assignment.primary == to;
        // It may wait for a handover that never comes, or for somebody to accept a loss.
        let is_eased = match takeover {
            Takeover::HandedOver => false,
            Takeover::Forced { is_loss_accepted } => {
                assignment.is_handed_over || (is_loss_accepted && !assignment.is_loss_accepted)
            }
        };
        if is_named && !is_eased {
            continue;
        }
        if !is_named && !assignment.members.contains(&(to, Membership::Sync)) {
            return Err(fail(&format!(
                "node {to} is not in the sync set of partition {partition}"
            )));
        }
        moved.partitions.push(partition);
        if !is_named {
            moved.from.push(assignment.primary);
        }
        moved.generation = moved.generation.max(assignment.generation + 1);
    }
    moved.from.sort_unstable();
    moved.from.dedup();
    if moved.partitions.is_empty() {
        return Ok(moved);
    }
    if u64::from(moved.generation) > GENERATION_MAX {
        return Err(fail("the generations of its partitions are used up"));
    }
    for &partition in &moved.partitions {
        let assignment = &mut file.assignments[usize::from(partition)];
        if assignment.primary != to {
            assignment.members.retain(|&(node, _)| node != to);
            let before = (assignment.primary, Membership::Sync);
            // The sync set comes first, as it is read.
            assignment.members.insert(0, before);
        }
        assignment.generation = moved.generation;
        assignment.primary = to;
        assignment.is_handed_over = takeover == Takeover::HandedOver;
        let is_loss_accepted = Takeover::Forced {
            is_loss_accepted: true,
        };
        assignment.is_loss_accepted = takeover == is_loss_accepted;
    }

    let text = fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
    let begin = text
        .lines()
        .take_while(|line| !line.trim_start().starts_with("[[placement]]"))
        .map(|line| line.len() + 1)
        .sum::<usize>();
    let head = text.get(..begin).unwrap_or_default();
    let text = format!("{head}{}", placements(&file.assignments));
    let is_same = |new: &ClusterFile| {
        (new.cluster_id, &new.nodes, &new.assignments)
            == (file.cluster_id, &file.nodes, &file.assignments)
            && (new.replica_timeout_us, new.backlog_bytes_max)
                == (file.replica_timeout_us, file.backlog_bytes_max)
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!("{name}.new"));
    write(&temporary, &text).map_err(|error| fail(&error.to_string()))?;
    let read_again = ClusterFile::read(&temporary);
    if !read_again.is_ok_and(|new| is_same(&new)) {
        drop(fs::remove_file(&temporary));
        return Err(fail(
            "the placements are to stand behind everything else, each as [[placement]]",
        ));
    }
    fs::rename(&temporary, path).map_err(|error| fail(&error.to_string()))?;
    Ok(moved)
}

fn failed(path: &Path, cause: &str) -> ClusterFileError {
    ClusterFileError::new(format!("{}: {cause}", path.display()))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// As they stand in the file, neighbours that are alike together.
fn placements(assignments: &[Assignment]) -> String {
    let mut text = String::new();
    let mut first = 0;
    for group in assignments.chunk_by(|one, other| one == other) {
        let last = first + group.len() - 1;
        let one = &group[0];
        let nodes = |of: Membership| {
            let members = one.members.iter().filter(|(_, it)| *it == of);
            let nodes: Vec<String> = members.map(|(node, _)| node.to_string()).collect();
            nodes.join(", ")
        };
        let (generation, primary) = (one.generation, one.primary);
        let _ = write!(
            text,
            "[[placement]]\npartitions = [{first}, {last}]\ngeneration = {generation}\nprimary = {primary}\nsync = [{}]\n",
            nodes(Membership::Sync)
        );
        let learners = nodes(Membership::Learner);
        if !learners.is_empty() {
            let _ = writeln!(text, "learners = [{learners}]");
        }
        if one.is_handed_over {
            text.push_str("handover = true\n");
        }
        if one.is_loss_accepted {
            text.push_str("accept_loss = true\n");
        }
        text.push('\n');
        first = last + 1;
    }
    text
}

#[cfg(test)]
mod tests {
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

    fn folder(name: &str, text: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("secret"), [b's'; 32]).expect("written");
        fs::write(folder.join("cluster.toml"), text).expect("written");
        folder
    }

    #[test]
    fn another_node_writes_in_a_generation_of_its_own_and_the_rest_stays() {
        let whole = format!(
            "{HEAD}[[placement]]\npartitions = [0, 255]\ngeneration = 4\nprimary = 1\nsync = [2]\nlearners = [3]\n"
        );
        let folder = folder("placed", &whole);
        let path = folder.join("cluster.toml");
        let moved = move_partitions(&path, 100..=255, 2, Takeover::HandedOver).expect("moved");
        assert_eq!(moved.partitions, (100..=255).collect::<Vec<u16>>());
        assert_eq!((moved.from.as_slice(), moved.generation), (&[1][..], 5));
        assert_eq!(moved.clients, "127.0.0.1:7511");
        let expected = format!(
            "{HEAD}[[placement]]\npartitions = [0, 99]\ngeneration = 4\nprimary = 1\nsync = [2]\nlearners = [3]\n
[[placement]]\npartitions = [100, 255]\ngeneration = 5\nprimary = 2\nsync = [1]\nlearners = [3]\nhandover = true\n\n"
        );
        assert_eq!(fs::read_to_string(&path).expect("there"), expected);

        // What it writes already stays, but for a handover that it waits for and is not to.
        let moved = move_partitions(&path, 0..=255, 2, Takeover::HandedOver).expect("moved");
        assert_eq!((moved.partitions.len(), moved.generation), (100, 5));
        let takeover = Takeover::Forced {
            is_loss_accepted: true,
        };
        let moved = move_partitions(&path, 0..=9, 2, takeover).expect("moved");
        assert_eq!((moved.from.len(), moved.generation), (0, 6), "{moved:?}");
        let text = fs::read_to_string(&path).expect("there");
        assert_eq!(text.matches("accept_loss = true").count(), 1, "{text}");
        assert_eq!(text.matches("handover = true").count(), 1, "{text}");
        let moved = move_partitions(&path, 0..=255, 2, takeover).expect("moved");
        assert_eq!(moved.partitions.len(), 246);
        let moved = move_partitions(&path, 0..=255, 2, takeover).expect("nothing to do");
        assert!(moved.partitions.is_empty());
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let placement =
            "[[placement]]\npartitions = [0, 255]\ngeneration = 1\nprimary = 1\nsync = [2]\n";
        let (head, nodes) = HEAD.split_at(HEAD.find("[[node]]").expect("there"));
        let between = format!("{head}{placement}{nodes}");
        let behind = format!("{HEAD}{placement}learners = [3]\n");
        for (name, text, partitions, to, named) in [
            ("learner", &behind, 0..=255, 3, "not in the sync set"),
            ("stranger", &behind, 0..=255, 4, "no node 4"),
            ("beyond", &behind, 0..=256, 2, "no partition 256"),
            ("between", &between, 0..=255, 2, "behind everything else"),
        ] {
            let folder = folder(name, text);
            let path = folder.join("cluster.toml");
            let refused = move_partitions(&path, partitions, to, Takeover::HandedOver);
            let cause = refused.expect_err(name).to_string();
            assert!(cause.contains(named), "{cause}");
            assert_eq!(&fs::read_to_string(&path).expect("there"), text);
            assert_eq!(fs::read_dir(&folder).expect("there").count(), 2);
            fs::remove_dir_all(folder).expect("removed");
        }
    }
}

//! Who a data directory is in its cluster, and the highest start of each other node that was seen,
//! in a file of it: no start goes on as another node, and an old copy of another node's directory
//! is refused, also behind a start of this one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use penstock_net::link::NodeStart;
use penstock_shard::replication::handshake::Peer;
use penstock_shard::replication::receiver::LinkRefusal;

/// The name of the file in the data directory.
pub(crate) const NAME: &str = "PEERS";
/// What the line begins with that tells whose the directory is.
const SELF: &str = "self";

/// Who a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whose {
    pub(crate) cluster_id: [u8; 16],
    pub(crate) node: u8,
}

/// An id as people and the file write it.
pub(crate) fn hex(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// What the file says.
#[derive(Clone, Debug, Default)]
struct Peers {
    whose: Option<Whose>,
    /// The highest start of other nodes, by their ids.
    starts: BTreeMap<[u8; 16], NodeStart>,
}

impl Peers {
    fn read(directory: &Path) -> io::Result<Peers> {
        let text = match fs::read_to_string(directory.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let damaged = || io::Error::other(format!("{NAME} has a line that is none of its own"));
        let id = |hex: &str| u128::from_str_radix(hex, 16).map_err(|_| damaged());
        let mut peers = Peers::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [SELF, cluster, node] => {
                    peers.whose = Some(Whose {
                        cluster_id: id(cluster)?.to_be_bytes(),
                        node: node.parse().map_err(|_| damaged())?,
                    });
                }
                [node_id, incarnation, ref start_id @ ..] if start_id.len() <= 1 => {
                    let number = |word: &str| word.parse().map_err(|_| damaged());
                    let start = NodeStart {
                        incarnation: number(incarnation)?,
                        // Earlier versions did not write it down.
                        start_id: start_id.first().map_or(Ok(0), |word| number(word))?,
                    };
                    peers.starts.insert(id(node_id)?.to_be_bytes(), start);
                }
                _ => return Err(damaged()),
            }
        }
        Ok(peers)
    }

    /// Durable when this returns.
    fn write(&self, directory: &Path) -> io::Result<()> {
        let whose = self
            .whose
            .iter()
            .map(|whose| format!("{SELF} {} {}\n", hex(whose.cluster_id), whose.node));
        let starts = self.starts.iter();
        let starts = starts
            .map(|(id, start)| format!("{} {} {}\n", hex(*id), start.incarnation, start.start_id));
        let text: String = whose.chain(starts).collect();
        let temporary = directory.join(format!("{NAME}.tmp"));
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, directory.join(NAME))?;
        File::open(directory)?.sync_all()
    }
}

/// Holds a directory against who it is to be, nobody for a node alone. Changes nothing.
///
/// # Errors
/// What the system said.
pub(crate) fn check(directory: &Path, whose: Option<Whose>) -> io::Result<Result<(), Whose>> {
    let peers = Peers::read(directory)?;
    Ok(match peers.whose {
        Some(other) if Some(other) != whose => Err(other),
        _ => Ok(()),
    })
}

/// Notes who a directory is, if it is nobody's yet.
///
/// # Errors
/// What the system said, and that it is somebody else's by now.
pub(crate) fn claim(directory: &Path, whose: Whose) -> io::Result<()> {
    let mut peers = Peers::read(directory)?;
    match peers.whose {
        Some(other) if other != whose => Err(io::Error::other(format!(
            "it is node {} of cluster {} by now",
            other.node,
            hex(other.cluster_id)
        ))),
        Some(_) => Ok(()),
        None => {
            peers.whose = Some(whose);
            peers.write(directory)
        }
    }
}

/// The starts of other nodes that were seen.
pub(crate) struct Seen {
    directory: PathBuf,
    peers: Mutex<Peers>,
}

impl Seen {
    /// What was seen until now.
    pub(crate) fn read(directory: &Path) -> io::Result<Seen> {
        Ok(Seen {
            directory: directory.into(),
            peers: Mutex::new(Peers::read(directory)?),
        })
    }

    /// Judges the start of a node that has proven itself by the highest one that was seen, and
    /// notes it: durable when this returns. In one step, for several links are made at once, and of
    /// two copies of a directory one is to be refused.
    ///
    /// # Errors
    /// What the system said, or that the peer is to be told.
    pub(crate) fn admit(&self, peer: &Peer) -> io::Result<Result<(), LinkRefusal>> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = peers.starts.get(&peer.node_id).copied().unwrap_or_default();
        if let Err(refusal) = peer.judge_start(seen) {
            return Ok(Err(refusal));
        }
        if seen != peer.start {
            let mut next = peers.clone();
            next.starts.insert(peer.node_id, peer.start);
            next.write(&self.directory)?;
            *peers = next;
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(node_id: [u8; 16], incarnation: u32, start_id: u32) -> Peer {
        Peer {
            node_id,
            node: node_id[0],
            start: NodeStart {
                incarnation,
                start_id,
            },
            shard: 0,
            shards: 1,
            frame_bytes_max: 0,
            link_version: 3,
        }
    }

    /// Whether it is let in.
    fn admits(seen: &Seen, incarnation: u32, start_id: u32) -> bool {
        let peer = peer([1; 16], incarnation, start_id);
        seen.admit(&peer).expect("written").is_ok()
    }

    #[test]
    fn of_two_starts_of_one_number_that_are_judged_at_once_one_is_let_in() {
        let directory = std::env::temp_dir().join(format!("penstock-once-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        let seen = Seen::read(&directory).expect("nothing yet");
        for start in 1..20 {
            let both = std::sync::Barrier::new(2);
            let admitted = |start_id| {
                both.wait();
                admits(&seen, start, start_id)
            };
            let (one, other) = std::thread::scope(|scope| {
                let one = scope.spawn(|| admitted(11));
                let other = scope.spawn(|| admitted(22));
                (one.join().expect("done"), other.join().expect("done"))
            });
            assert!(one != other, "start {start}");
        }
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn the_highest_start_is_found_again() {
        let directory = std::env::temp_dir().join(format!("penstock-seen-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        let seen = Seen::read(&directory).expect("nothing yet");
        let start = |incarnation| NodeStart {
            incarnation,
            start_id: incarnation * 11,
        };
        let of = |seen: &Seen, id: [u8; 16]| {
            let peers = seen.peers.lock().expect("no test fails with it");
            peers.starts.get(&id).copied()
        };
        assert_eq!(of(&seen, [1; 16]), None);
        for (incarnation, is_admitted) in [(3, true), (5, true), (4, false), (5, true)] {
            let is = admits(&seen, incarnation, incarnation * 11);
            assert_eq!(is, is_admitted, "start {incarnation}");
        }
        assert!(!admits(&seen, 5, 1));
        let other = seen.admit(&peer([0xFF; 16], 1, 11)).expect("written");
        assert!(other.is_ok());
        let again = Seen::read(&directory).expect("read");
        let found = (of(&again, [1; 16]), of(&again, [0xFF; 16]));
        assert_eq!(found, (Some(start(5)), Some(start(1))));

        // Whose it is stays, whatever else is noted.
        let one = Whose {
            cluster_id: [7; 16],
            node: 1,
        };
        let two = Whose { node: 2, ..one };
        let checked = |whose| check(&directory, whose).expect("read");
        assert_eq!((checked(None), checked(Some(one))), (Ok(()), Ok(())));
        claim(&directory, one).expect("written");
        assert!(admits(&Seen::read(&directory).expect("read"), 9, 99));
        assert_eq!((checked(None), checked(Some(two))), (Err(one), Err(one)));
        assert_eq!(checked(Some(one)), Ok(()));
        claim(&directory, one).expect("read");
        assert!(claim(&directory, two).is_err());
        let again = Seen::read(&directory).expect("read");
        assert_eq!(of(&again, [1; 16]), Some(start(9)));
        // As versions did that knew nothing of it.
        let older = format!("{} 7\n", hex([2; 16]));
        fs::write(directory.join(NAME), older).expect("written");
        let again = Seen::read(&directory).expect("read");
        let unknown = NodeStart {
            incarnation: 7,
            start_id: 0,
        };
        assert_eq!(of(&again, [2; 16]), Some(unknown));
        fs::write(directory.join(NAME), "nonsense").expect("written");
        assert!(Seen::read(&directory).is_err());
        fs::remove_dir_all(&directory).expect("removed");
    }
}

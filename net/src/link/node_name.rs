//! The name of a node in its certificate.

use std::fmt;

/// The name of a node in its cluster: `node-3.00112233445566778899aabbccddeeff.penstock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeName {
    /// Number of the node, 1 to 255.
    pub node: u8,
    /// Id of the cluster.
    pub cluster_id: [u8; 16],
}

/// What each such name ends with. No certificate of a client may have a name that does.
const SUFFIX: &str = ".penstock";

impl NodeName {
    /// Reads a name as [`NodeName`] writes it, and no other spelling.
    #[must_use]
    pub fn parse(name: &str) -> Option<NodeName> {
        let (node, id) = name
            .strip_prefix("node-")?
            .strip_suffix(SUFFIX)?
            .split_once('.')?;
        if id.len() != 32 || !id.is_ascii() {
            return None;
        }
        let mut cluster_id = [0; 16];
        for (at, byte) in cluster_id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&id[2 * at..2 * at + 2], 16).ok()?;
        }
        let node = node.parse().ok().filter(|node| *node > 0)?;
        let read = NodeName { node, cluster_id };
        (read.to_string() == name).then_some(read)
    }

    /// Whether a name is kept for nodes, whatever stands in front.
    #[must_use]
    pub fn is_kept_for_nodes(name: &str) -> bool {
        let ending = name.len().checked_sub(SUFFIX.len());
        ending
            .and_then(|at| name.get(at..))
            .is_some_and(|it| it.eq_ignore_ascii_case(SUFFIX))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}.", self.node)?;
        for byte in self.cluster_id {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(SUFFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_in_no_other_spelling() {
        let mut cluster_id = [0xC1; 16];
        cluster_id[0] = 0x07;
        for node in 1..=255 {
            let name = NodeName { node, cluster_id };
            assert_eq!(NodeName::parse(&name.to_string()), Some(name));
            assert!(NodeName::is_kept_for_nodes(&name.to_string()));
        }
        let id = "07c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";
        assert!(NodeName::parse(&format!("node-3.{id}.penstock")).is_some());
        for other in [
            format!("node-0.{id}.penstock"),
            format!("node-03.{id}.penstock"),
            format!("node-+3.{id}.penstock"),
            format!("node-256.{id}.penstock"),
            format!("node-.{id}.penstock"),
            format!("*.{id}.penstock"),
            format!("node-3.{}.penstock", id.to_uppercase()),
            format!("node-3.{}.penstock", &id[2..]),
            format!("node-3.{id}0.penstock"),
            format!("node-3.x.{id}.penstock"),
            format!("node-3.{id}.penstock."),
            format!("Node-3.{id}.penstock"),
            format!("node-3.{id}"),
            format!("node-3.+{}.penstock", &id[1..]),
            "node-3.ääääääääääääääää.penstock".to_string(),
            String::new(),
        ] {
            assert_eq!(NodeName::parse(&other), None, "{other}");
        }
        for kept in ["*.x.PENSTOCK", ".penstock", "node-3.x.penstock"] {
            assert!(NodeName::is_kept_for_nodes(kept), "{kept}");
        }
        for free in ["penstock", "a.penstock.example", "ä", ""] {
            assert!(!NodeName::is_kept_for_nodes(free), "{free}");
        }
    }
}

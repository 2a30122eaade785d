//! Which nodes there are.

use std::net::SocketAddr;

use super::super::file::{ClusterFileError, ClusterNode};
use super::Draft;

impl Draft {
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
            stays_learner: false,
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
}

//! Which nodes there are.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::cluster::plan::file::{ClusterFileError, ClusterNode, GENERATION_MAX};
use crate::cluster::plan::new_cluster::NewNode;
use crate::cluster::plan::placement::Draft;

impl Draft {
    /// Adds a node, which holds nothing yet.
    ///
    /// # Errors
    /// The number or an address is taken.
    pub fn add(&mut self, node: &NewNode) -> Result<(), ClusterFileError> {
        let (number, links) = (node.number, node.links);
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
            clients: node.clients.clone(),
            resp: node.resp.clone(),
            resp_ports: node.resp_ports,
            stays_learner: false,
        });
        Ok(())
    }

    /// Lets the others find a node elsewhere. Returns whether that is a change.
    ///
    /// # Errors
    /// There is no such node, or another one has the address. What clients can be told is judged
    /// with the whole plan: [`Draft::write`].
    pub fn set_address(
        &mut self,
        number: u8,
        links: Option<SocketAddr>,
        clients: Option<&str>,
    ) -> Result<bool, ClusterFileError> {
        let before = self.known(number)?.clone();
        let links = links.unwrap_or(before.links);
        let mut others = self.file.nodes.iter().filter(|it| it.number != number);
        if let Some(other) = others.find(|it| it.links == links) {
            return Err(self.fail(&format!(
                "node {number} with links = {links}: node {} has that address",
                other.number
            )));
        }
        let mut nodes = self.file.nodes.iter_mut();
        let node = nodes.find(|it| it.number == number).expect("it is known");
        node.links = links;
        if let Some(clients) = clients {
            node.clients = clients.into();
        }
        Ok(*node != before)
    }

    /// Lets the primaries of these partitions go on in one generation: that behind the newest of
    /// them.
    ///
    /// # Errors
    /// One has none left. Nothing is changed.
    pub fn renew_all(&mut self, partitions: RangeInclusive<u16>) -> Result<(), ClusterFileError> {
        for partition in partitions.clone() {
            if u64::from(self.assignment(partition)?.generation) >= GENERATION_MAX {
                return Err(self.fail(&format!(
                    "the generations of partition {partition} are used up: deploy/FAILOVER.md \
                     tells how a cluster begins anew"
                )));
            }
        }
        // One generation for all: what takeovers at different times have split is one placement
        // again where it says the same.
        let range = usize::from(*partitions.start())..=usize::from(*partitions.end());
        let all = &mut self.file.assignments[range];
        let newest = all.iter().map(|it| it.generation).max();
        for assignment in all {
            assignment.renew();
            assignment.generation = newest.map_or(assignment.generation, |it| it + 1);
        }
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

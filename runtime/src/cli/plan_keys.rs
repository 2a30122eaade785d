//! Keys of a plan that earlier builds refuse: a command writes one when each node has offered to
//! read the key.

use penstock::cluster::plan::placement::CorePortsReaders;
use penstock_net::hello::FEATURE_PLAN_CORE_PORTS;

use super::Failure;
use super::partitions::ANSWER;
use super::server::ServerAddress;

/// Refuses `resp_ports` by the name of a node that does not read the key. A node that does not
/// answer may be of an earlier build, unless no node has read a plan yet.
///
/// # Errors
/// The first such node, and what to do.
pub(super) fn check_core_ports(readers: CorePortsReaders) -> Result<(), Failure> {
    for (node, clients) in readers.nodes {
        let cause = match ServerAddress::at(&clients).within(ANSWER).connect_node() {
            Ok(server) if server.hello().features & FEATURE_PLAN_CORE_PORTS != 0 => continue,
            Ok(_) => "is of an earlier build, which refuses a plan with resp_ports".to_string(),
            Err(_) if !readers.had_plan => continue,
            Err(failure) => format!(
                "may be of an earlier build, which refuses a plan with resp_ports: {}",
                failure.line
            ),
        };
        return Err(Failure::no(format!(
            "node {node} at {clients} {cause}. Upgrade and start it first, or leave resp_ports \
             out; nothing was changed"
        )));
    }
    Ok(())
}

//! Begins the links to the other nodes of a cluster.

use std::net::TcpListener;
use std::sync::Arc;

use penstock_net::link::NodeName;
use tracing::warn;

use super::error::{ServeError, system};
use crate::cluster::plan::home::PlanPlace;
use crate::cluster::{Deliver, Dialing, LinkTls, NodePlan, RelayParts, Reread};
use crate::startup::node::{Node, OpenError};
use crate::system::lines::print_line;
use crate::tls::{ServedTls, TlsFiles};

/// Reads the certificate for links, if there is one.
pub(super) fn open_link_tls(node: &Node) -> Result<Option<LinkTls>, ServeError> {
    let Some((file, me)) = node.cluster() else {
        return Ok(None);
    };
    let name = NodeName {
        node: me.node,
        cluster_id: file.cluster_id,
    };
    let config = &node.config;
    let opened = TlsFiles::of_links(config, name).map(ServedTls::open);
    let opened = opened.transpose();
    let served = opened.map_err(|error| OpenError::Option(error.to_string()))?;
    Ok(served.map(|served| LinkTls {
        served: Arc::new(served),
        is_optional: config.cluster_tls_optional,
    }))
}

/// Starts the threads that make links to the other nodes.
pub(super) fn dial(
    node: &Node,
    (listener, tls): (TcpListener, Option<LinkTls>),
    parts: (Deliver, Option<RelayParts>),
    reread: Reread,
) -> Result<Dialing, ServeError> {
    let failed = |(action, error)| ServeError::from(OpenError::System { action, error });
    listener
        .set_nonblocking(false)
        .map_err(system("prepare the address of links"))?;
    let (file, me) = node.cluster().expect("it has an address for links");
    let address = listener
        .local_addr()
        .map_err(system("read the address of links"))?;
    let others = file.nodes.len() - 1;
    print_line!(
        "cluster      node {}, with {others} other{}, links on {address} {}",
        me.node,
        if others == 1 { "" } else { "s" },
        match &tls {
            None => "without TLS",
            Some(tls) if tls.is_optional => "with TLS, and without where another node has none",
            Some(_) => "with TLS alone",
        }
    );
    if node.config.cluster_new && me.start.incarnation > 1 {
        warn!(
            "--cluster-new is given, and this directory has been started before: leave it out, so \
             that a lost directory is never taken for that of a new cluster"
        );
    }
    let plan = NodePlan {
        place: PlanPlace::of(&node.config).expect("it has a cluster"),
        directory: node.config.data.clone(),
    };
    let data = &node.config.data;
    Dialing::start(
        (plan, file),
        (listener, tls),
        data,
        me,
        parts,
        node.lease_parts(),
        reread,
    )
    .map_err(failed)
}

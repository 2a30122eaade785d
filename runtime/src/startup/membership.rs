//! Who the directory is in its cluster: by the plan, and by what an earlier start noted.

use penstock_shard::opening::OpeningError;

use super::error::OpenError;
use crate::cluster::plan::file::{ClusterFile, numbers_of};
use crate::cluster::plan::first_plan::first_plan;
use crate::cluster::plan::home::PlanPlace;
use crate::cluster::plan::seen::{NAME as PEERS, Whose, check, hex};
use crate::config::Config;
use crate::directory::DirectoryError;

/// Reads the plan of the cluster, if there is one.
pub(super) fn read_cluster(config: &Config) -> Result<Option<ClusterFile>, OpenError> {
    let Some(place) = PlanPlace::of(config) else {
        return match config.cluster_node {
            0 if config.cluster_new => Err(OpenError::Option(
                "--cluster-new is given, and no --cluster".into(),
            )),
            0 => Ok(None),
            number => Err(OpenError::Option(format!(
                "--cluster-node {number} is given, and no --cluster"
            ))),
        };
    };
    let file = first_plan(&place, &config.data);
    let file = file.map_err(|error| OpenError::Option(error.to_string()))?;
    match file.node(config.cluster_node) {
        Some(_) => Ok(Some(file)),
        None if config.cluster_node == 0 => {
            let given = match place.file() {
                Some(path) => format!("--cluster {}", path.display()),
                None => "--etcd-endpoints".into(),
            };
            Err(OpenError::Option(format!(
                "{given} is given, and no --cluster-node: it has {}",
                numbers_of(&file.nodes)
            )))
        }
        None => Err(OpenError::Option(format!(
            "--cluster-node {}: {place} has no such node, it has {}",
            config.cluster_node,
            numbers_of(&file.nodes)
        ))),
    }
}

/// Who the directory is to be in its cluster.
pub(super) fn whose(config: &Config, cluster: &ClusterFile) -> Whose {
    Whose {
        cluster_id: cluster.cluster_id,
        node: config.cluster_node,
    }
}

/// Refuses a directory of another node or of another cluster, and that of a node of a cluster to a
/// node alone.
pub(super) fn check_directory(
    config: &Config,
    cluster: Option<&ClusterFile>,
) -> Result<(), OpenError> {
    if !config.data.is_dir() {
        // New, or none: the opening tells.
        return Ok(());
    }
    let checked = check(&config.data, cluster.map(|cluster| whose(config, cluster)));
    let peers = config.data.join(PEERS);
    let Err(other) = checked.map_err(|error| {
        OpenError::Directory(DirectoryError::io(&peers, "read", error).of(&config.data))
    })?
    else {
        return Ok(());
    };
    let (data, node) = (config.data.display(), config.cluster_node);
    Err(match cluster {
        None => OpenError::Opening(OpeningError::OfCluster),
        Some(cluster) if other.cluster_id == cluster.cluster_id => OpenError::Option(format!(
            "--cluster-node {node}: {data} holds the data of node {}; a node starts with its own \
             directory or with an empty one",
            other.node
        )),
        Some(cluster) => OpenError::Option(format!(
            "{data} holds the data of node {} of cluster {}, and the cluster's file is that of {}",
            other.node,
            hex(other.cluster_id),
            hex(cluster.cluster_id)
        )),
    })
}

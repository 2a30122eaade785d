//! Who the directory is in its cluster: by the cluster's file, and by what an earlier start noted.

use penstock_shard::opening::OpeningError;

use super::error::OpenError;
use crate::cluster::file::{ClusterFile, numbers_of};
use crate::cluster::seen::{NAME as PEERS, Whose, check, hex};
use crate::config::Config;
use crate::directory::DirectoryError;

/// Reads the cluster's file, if there is one.
pub(super) fn read_cluster(config: &Config) -> Result<Option<ClusterFile>, OpenError> {
    let Some(path) = &config.cluster else {
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
    let file = ClusterFile::read(path).map_err(|error| OpenError::Option(error.to_string()))?;
    match file.node(config.cluster_node) {
        Some(_) => Ok(Some(file)),
        None if config.cluster_node == 0 => Err(OpenError::Option(format!(
            "--cluster {} is given, and no --cluster-node: it has {}",
            path.display(),
            numbers_of(&file.nodes)
        ))),
        None => Err(OpenError::Option(format!(
            "--cluster-node {}: {} has no such node, it has {}",
            config.cluster_node,
            path.display(),
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

//! The partitions of a cluster: which of them, as a command names them, who writes them by the
//! file, and how they are by the account of a node.

use std::time::Duration;

use penstock::cluster::plan::placement::Draft;
use serde_json::Value;

use super::Failure;
use super::server::ServerAddress;
use super::status::info_of;

/// How long a node may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

pub(super) fn first_last(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && last <= 255 => Ok((first, last)),
        _ => Err("FIRST-LAST or one number is wanted, 0 to 255, the lower one first".into()),
    }
}

/// What a node is to these partitions, by its own account.
pub(super) fn states_of(
    server: &ServerAddress,
    (first, last): (u16, u16),
) -> Result<Vec<Value>, Failure> {
    let is_asked = |it: &Value| {
        let number = |name: &str| it[name].as_u64().unwrap_or(u64::MAX);
        number("first") <= u64::from(last) && number("last") >= u64::from(first)
    };
    let mut partitions = partitions_of(server)?;
    partitions.retain(is_asked);
    Ok(partitions)
}

/// Refuses to change a plan that is older than the one by which a node acts, as behind a restored
/// etcd: no node would take the change.
pub(super) fn check_revision(draft: &Draft, node: u8, info: &Value) -> Result<(), Failure> {
    let acts_by = info["replication"]["plan"]["revision"].as_u64();
    match acts_by.filter(|&acts_by| acts_by > draft.revision()) {
        None => Ok(()),
        Some(acts_by) => Err(Failure::no(format!(
            "node {node} acts by revision {acts_by} of the plan, and revision {} stands there: \
             `penstock cluster import DATA/PLAN` of that node puts the newer one back; nothing was \
             changed",
            draft.revision()
        ))),
    }
}

/// Who writes these partitions by the file, ascending.
pub(super) fn writers(draft: &Draft, (first, last): (u16, u16)) -> Result<Vec<u8>, Failure> {
    let writers = (first..=last).map(|partition| draft.primary_of(partition));
    let mut writers = writers
        .collect::<Result<Vec<u8>, _>>()
        .map_err(Failure::usage)?;
    writers.sort_unstable();
    writers.dedup();
    Ok(writers)
}

/// What a node is to its partitions.
fn partitions_of(server: &ServerAddress) -> Result<Vec<Value>, Failure> {
    let info = info_of(server)?;
    Ok(info["partitions"].as_array().cloned().unwrap_or_default())
}

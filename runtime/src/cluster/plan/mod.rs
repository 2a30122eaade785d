//! The plan of the cluster: its text and its checks, the homes where it may stand, and the edits of
//! operators and of nodes.

mod document;
mod failover_keys;
pub(crate) mod file;
pub(crate) mod first_plan;
pub mod home;
mod judge;
pub(crate) mod kept_plan;
pub mod new_cluster;
pub mod placement;
pub(crate) mod plan_watch;
pub(crate) mod renewing;
pub(crate) mod replacing;
pub(crate) mod seen;
mod toml_values;
pub(crate) mod wished;

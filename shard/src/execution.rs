//! What is asked: the store of this core, the requests that wait, and everything that works on the
//! store beside them. Knows no connection.

pub(crate) mod answer_bytes;
pub(crate) mod batch_run;
pub(crate) mod direct_answers;
mod events;
mod fire;
pub(crate) mod flush;
mod links;
pub(crate) mod mailed;
mod members;
mod memory;
pub(crate) mod operation;
mod prefetch_items;
mod queries;
pub(crate) mod reads;
mod refusals;
pub(crate) mod repeats;
pub(crate) mod scans;
pub(crate) mod settings;
pub(crate) mod slice;
mod tokens;
mod turn;
pub(crate) mod verbs;
pub(crate) mod window;

use penstock_storage::io::Blocks;
use penstock_storage::store::Store;

use crate::accounts::stats::Stats;
use crate::chores::Chores;
use crate::cluster::ClusterMember;
use crate::execution::slice::Slice;
use crate::execution::verbs::script::ReplyBuffer;
use crate::firing::Firing;
use crate::joint::Joint;
use crate::keyspaces::Keyspaces;
use crate::phase::Phase;
use crate::programs::ProgramRunner;
use crate::publisher::Publications;
use crate::replica_waits::ReplicaWaits;
use crate::requests::Requests;
use crate::scans::Scans;
use crate::scripts::Scripts;
use crate::segment_files::SegmentFiles;
use crate::setup::Setup;
use crate::tracking::Tracking;

/// The side of the shard that faces its store.
pub struct Execution<P: Blocks> {
    pub(crate) setup: Setup,
    pub(crate) phase: Phase,
    pub(crate) store: Store<P>,
    pub(crate) requests: Requests,
    /// Changes over several shards.
    pub joint: Joint,
    pub(crate) scans: Scans,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) firing: Firing,
    pub(crate) programs: ProgramRunner,
    pub(crate) linked: Option<Box<ClusterMember<P::Block>>>,
    pub(crate) replica_waits: ReplicaWaits,
    pub(crate) files: SegmentFiles,
    pub(crate) chores: Chores,
    pub(crate) stats: Stats,
    /// Who runs scripts; `None` while one runs, and in a store that runs none.
    pub(crate) scripts: Option<Box<dyn Scripts>>,
    /// What scripts publish.
    pub(crate) publications: Publications,
    /// Who is told of keys that change.
    pub(crate) tracking: Tracking,
    /// Room for the reply of a script, and for the APPLY that it becomes.
    pub(crate) script_reply: ReplyBuffer,
    pub(crate) script_item: Vec<u8>,
    /// What the scripts of this event have taken.
    pub(crate) slice: Slice,
}

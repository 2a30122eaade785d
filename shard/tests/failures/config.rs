//! How the servers of these tests are set up.

use penstock_net::hello::{AUTH_NONE, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_shard::{ShardConfig, SnapshotPolicy, Topology};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{LogConfig, SyncMethod};
use penstock_storage::segment::Owner;

pub const OWNER: Owner = Owner {
    cluster_id: [1; 16],
    node_id: [2; 16],
};
/// Bytes of operations that wait for reads, at most.
pub const PARKED_BYTES_MAX: usize = 256 << 10;
/// What replies to the client may hold before nothing more is read from it.
pub const OUTPUT_BYTES_MAX: usize = 8 << 10;
/// Within which a client takes some of its replies.
pub const WRITE_STALL_US_MAX: u64 = 1_000_000_000;
/// Bytes of a value, at most.
pub const VALUE_BYTES_MAX: u32 = 2 << 10;

/// How the server writes its log.
pub fn log_config(sync: SyncMethod, incarnation: u64) -> LogConfig {
    LogConfig {
        owner: OWNER,
        incarnation,
        log_id: 1,
        // Of two blocks, so that some parts stand in both.
        frame_bytes: 2 * BLOCK_BYTES,
        record_bytes_max: BLOCK_BYTES - 64,
        frames_in_flight_max: 2,
        frames_sealed_max: 3,
        sync,
        interval_us: 1_000,
        idle_mark_us: 5_000,
    }
}

/// How a shard is set up without snapshots.
pub fn shard_config(shard: u16, shards: u16, incarnation: u64) -> ShardConfig {
    shard_config_with(shard, shards, incarnation, 0)
}

/// Each run of a server without snapshots has its keys in another order.
pub fn shard_config_with(
    shard: u16,
    shards: u16,
    incarnation: u64,
    snapshot_bytes: u64,
) -> ShardConfig {
    let topology = Topology::new(shards);
    let hello = ServerHello {
        protocol: 1,
        shard,
        shard_count: shards,
        auth_methods: AUTH_NONE,
        cluster_id: OWNER.cluster_id,
        node_id: OWNER.node_id,
        incarnation: 1,
        features: 0,
        nonce: [0; 32],
        limits: Limits {
            frame_bytes_max: 4 << 10,
            value_bytes_max: VALUE_BYTES_MAX,
        },
        time_ms: 0,
        interval_ms: 1,
        slots: topology.ranges(|shard| 7420 + shard),
        placement: None,
    };
    ShardConfig {
        shard,
        topology,
        hello,
        level_min: AckLevel::None,
        output_bytes_max: OUTPUT_BYTES_MAX,
        token_horizon_ms: 3_600_000,
        shared_bytes_min: 1,
        partial_frame_us_max: 1_000_000_000,
        write_stall_us_max: WRITE_STALL_US_MAX,
        idle_us_max: 0,
        replies_bytes_max: 64 << 20,
        input_bytes_max: 64 << 20,
        parked_bytes_max: PARKED_BYTES_MAX,
        mailed_items_max: 64,
        memory_max: 0,
        hash_seed: if snapshot_bytes > 0 {
            7
        } else {
            6 + incarnation
        },
        cleaning: penstock_storage::cleaning::CleaningConfig::default(),
        snapshots: SnapshotPolicy {
            log_bytes: snapshot_bytes,
            stop_us_max: 0,
        },
        takes_several_shards: false,
        cluster: None,
    }
}

/// Plants the bug of a store that PENSTOCK_PLANT names: a test that looks for it must fail then.
#[cfg(feature = "planted")]
pub fn plant_by_name() {
    use penstock_storage::planted::{Bug, plant};

    let Ok(name) = std::env::var("PENSTOCK_PLANT") else {
        return;
    };
    let bug = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
    plant(Some(bug.expect("the name of a bug")));
}

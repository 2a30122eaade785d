//! The numbers of the links with a node, from the one table below.

use penstock_shard::replication::PeerStatus;

use super::figures::{Growth, SECOND_IN_US};

/// A number of links, by node, as a shard knows it.
pub(crate) struct PeerFigure {
    /// What INFO calls it.
    pub(crate) name: &'static str,
    /// Its family in `/metrics` and what it means; counters without the `_total`.
    pub(crate) metric: (&'static str, &'static str),
    pub(crate) growth: Growth,
    pub(crate) unit: f64,
    /// Several shards together.
    pub(super) fold: fn(u64, u64) -> u64,
    pub(crate) read: fn(&PeerStatus) -> Option<u64>,
}

const fn of_peer(
    name: &'static str,
    metric: (&'static str, &'static str),
    read: fn(&PeerStatus) -> Option<u64>,
) -> PeerFigure {
    PeerFigure {
        name,
        metric,
        growth: Growth::Gauge,
        unit: 1.0,
        fold: |one, other| one + other,
        read,
    }
}

const fn counted(
    name: &'static str,
    metric: (&'static str, &'static str),
    read: fn(&PeerStatus) -> Option<u64>,
) -> PeerFigure {
    PeerFigure {
        growth: Growth::Counter,
        ..of_peer(name, metric, read)
    }
}

/// A time in microseconds; of several shards the longest.
const fn longest(
    name: &'static str,
    metric: (&'static str, &'static str),
    read: fn(&PeerStatus) -> Option<u64>,
) -> PeerFigure {
    PeerFigure {
        unit: SECOND_IN_US,
        fold: |one, other| if one < other { other } else { one },
        ..of_peer(name, metric, read)
    }
}

/// Microseconds of `ms`, or 0 if it is negative.
fn microseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000)
}

/// Every number of the links with a node, in the order in which INFO shows them.
pub(crate) const PEER_FIGURES: &[PeerFigure] = &[
    of_peer(
        "partitions",
        (
            "penstock_replication_peer_partitions",
            "Partitions that are shipped to the node, or by it if its role is primary.",
        ),
        |it| Some(it.partitions),
    ),
    of_peer(
        "lag_records",
        (
            "penstock_replication_lag_records",
            "Records that the node has not told to have received: what its promotion would lose. \
             Not told before it has said where it stands.",
        ),
        |it| Some(it.lag?.records),
    ),
    of_peer(
        "lag_bytes",
        (
            "penstock_replication_lag_bytes",
            "Bytes of the log behind the first of those, of what was appended since the start.",
        ),
        |it| Some(it.lag?.bytes),
    ),
    longest(
        "lag_us",
        (
            "penstock_replication_lag_seconds",
            "How long ago the first of those was appended; 0 without any.",
        ),
        |it| Some(it.lag?.us),
    ),
    of_peer(
        "durable_lag_records",
        (
            "penstock_replication_durable_lag_records",
            "Records that the node has not told to have on its disk.",
        ),
        |it| Some(it.durable_lag?.records),
    ),
    of_peer(
        "durable_lag_bytes",
        (
            "penstock_replication_durable_lag_bytes",
            "Bytes of the log behind the first of those.",
        ),
        |it| Some(it.durable_lag?.bytes),
    ),
    longest(
        "durable_lag_us",
        (
            "penstock_replication_durable_lag_seconds",
            "How long ago the first of those was appended; 0 without any.",
        ),
        |it| Some(it.durable_lag?.us),
    ),
    longest(
        "staleness_us",
        (
            "penstock_replication_staleness_seconds",
            "How old what is here of the partitions that the node writes is, at most, for those \
             who read it here. Not told while one of them may not be read here.",
        ),
        |it| it.staleness_us,
    ),
    longest(
        "clock_ahead_us",
        (
            "penstock_replication_clock_ahead_seconds",
            "By how much the time of the node's store is ahead of the clock here, less what a \
             frame takes. Told of nodes that ship to this one.",
        ),
        |it| it.clock_ahead_ms.map(microseconds),
    ),
    longest(
        "clock_behind_us",
        (
            "penstock_replication_clock_behind_seconds",
            "By how much it is behind the clock here, and what a frame takes.",
        ),
        |it| {
            it.clock_ahead_ms
                .map(|it| microseconds(it.saturating_neg()))
        },
    ),
    counted(
        "links",
        (
            "penstock_replication_links_made",
            "Links with the node that have proven themselves: the first one and each that took \
             the place of one that ended.",
        ),
        |it| Some(it.traffic.links),
    ),
    counted(
        "sent_bytes",
        (
            "penstock_replication_sent_bytes",
            "Bytes sent to the node behind handshakes.",
        ),
        |it| Some(it.traffic.sent_bytes),
    ),
    counted(
        "received_bytes",
        (
            "penstock_replication_received_bytes",
            "Bytes received from the node behind handshakes.",
        ),
        |it| Some(it.traffic.received_bytes),
    ),
    counted(
        "sent_frames",
        (
            "penstock_replication_sent_frames",
            "Frames sent to the node.",
        ),
        |it| Some(it.traffic.sent_frames),
    ),
    counted(
        "received_frames",
        (
            "penstock_replication_received_frames",
            "Frames received from the node.",
        ),
        |it| Some(it.traffic.received_frames),
    ),
];

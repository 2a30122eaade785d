//! A cluster of two nodes: one writes all partitions, the other one holds them.

use std::sync::Arc;

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Membership, NodeStart};
use penstock_shard::Event;
use penstock_shard::cluster::{Assignment, ClusterConfig, Plan};
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_shard::replication::link_set::LinkSetConfig;
use penstock_shard::replication::{LinkId, PENDING_BYTES_MAX};

use crate::{OWNER, Server, counted_link_output};

pub const WRITER: u8 = 1;
pub const MEMBER: u8 = 2;

const LINK: LinkId = LinkId(1);
const FRAME_BYTES_MAX: u32 = 4 << 20;

fn introduction(node: u8) -> Introduction {
    Introduction {
        log_format: 1,
        cluster_id: OWNER.cluster_id,
        node_id: [node; 16],
        start: NodeStart {
            incarnation: 1,
            start_id: u32::from(node),
        },
        node,
        shard: 0,
        shards: 1,
        record_bytes_max: 128 << 10,
        frame_bytes_max: FRAME_BYTES_MAX,
    }
}

/// How this node takes part. Nobody waits for the other one at level `disk`.
pub fn config(node: u8) -> ClusterConfig {
    let assignment = Assignment {
        generation: 1,
        primary: WRITER,
        members: vec![(MEMBER, Membership::Sync)],
        is_handed_over: false,
        is_loss_accepted: false,
        is_incomplete_accepted: false,
    };
    let plan = Plan {
        partitions: vec![assignment; usize::from(LINK_PARTITIONS)],
        clients: [WRITER, MEMBER]
            .map(|node| (node, format!("node {node}")))
            .to_vec(),
        number: 0,
        is_leased: false,
        min_sync: 0,
    };
    ClusterConfig {
        links: LinkSetConfig {
            me: introduction(node),
            ring_bytes_max: 16 << 20,
            backlog_bytes_max: 0,
            catch_up_bytes_per_s: 0,
            pending_bytes_max: PENDING_BYTES_MAX,
        },
        plan: Arc::new(plan),
        leases: Arc::default(),
        offers: Arc::default(),
        replica_timeout_us: 1_000_000,
        is_new: true,
    }
}

/// Connects the writer to the member.
pub fn link(writer: &mut Server, member: &mut Server) {
    let peer = |node| {
        let it = introduction(node);
        Peer {
            node_id: it.node_id,
            node: it.node,
            start: it.start,
            shard: it.shard,
            shards: it.shards,
            frame_bytes_max: FRAME_BYTES_MAX,
            link_version: 3,
        }
    };
    let up = |node, is_outgoing| Event::LinkUp {
        link: LINK,
        peer: peer(node),
        is_outgoing,
    };
    writer.step(up(MEMBER, true));
    member.step(up(WRITER, false));
}

/// Ends the link between them.
pub fn part(writer: &mut Server) {
    writer.step(Event::LinkDown { link: LINK });
}

/// Brings to each what the other one has for it.
pub fn exchange(writer: &mut Server, member: &mut Server) {
    carry(writer, member);
    carry(member, writer);
}

fn carry(from: &mut Server, to: &mut Server) {
    let links = std::mem::take(&mut from.outbox.links);
    assert!(links.ended.is_empty(), "{:?}", links.notices);
    if links.sendable.is_empty() {
        return;
    }
    // As in the server, one buffer is filled while the other one is sent.
    let mut bytes = std::mem::take(&mut from.link_output);
    match from.is_counted {
        true => counted_link_output(&mut from.shard, LINK, &mut bytes),
        false => from
            .shard
            .execution_mut()
            .take_link_output(LINK, &mut bytes),
    }
    if !bytes.is_empty() {
        to.step(Event::LinkReceived {
            link: LINK,
            bytes: &bytes,
        });
    }
    bytes.clear();
    from.link_output = bytes;
}

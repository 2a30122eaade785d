//! Whom a shard of an embedding process talks to: callers in this memory, and the other shards.

use penstock_shard::audit::Audited;
use penstock_shard::replication::{LinkId, PartitionId};
use penstock_shard::{Mail, Network, SessionId, Shard};

use super::mailbox::Mailbox;
use crate::disk::arena::Arena;
use crate::event_loop::engine::Peers;

/// Nothing reaches a caller while the turn is carried out: the thread of the shard takes the
/// replies behind it, straight out of the outbox. There is no other node.
pub(super) struct Callers<'a> {
    /// To the other shards, if there may be any.
    pub(super) mailbox: Option<&'a Mailbox>,
}

impl Peers for Callers<'_> {
    fn send_links_at_once(&mut self, _: &mut Shard<Arena>) {}
}

impl Network for Callers<'_> {
    fn send(&mut self, _: &mut Vec<SessionId>) {}

    fn resume(&mut self, _: &mut Vec<SessionId>) {}

    fn close(&mut self, sessions: &mut Vec<(SessionId, &'static str)>) {
        assert!(sessions.is_empty(), "frames are whole and taken at once");
    }

    fn probe_peers(&mut self, sessions: &mut Vec<SessionId>) {
        assert!(sessions.is_empty(), "nobody takes replies slowly here");
    }

    fn deliver(&mut self, mail: &mut Vec<(u16, Mail)>) {
        match self.mailbox {
            Some(mailbox) => mailbox.send_mail(mail),
            None => assert!(mail.is_empty(), "there is no other shard"),
        }
    }

    fn report_audit(&mut self, audited: &mut Vec<Audited>, _: u64) {
        assert!(audited.is_empty(), "nobody reads an audit log here");
    }

    fn report_links(&mut self, notices: &mut Vec<String>) {
        assert!(notices.is_empty(), "there is no other node");
    }

    fn keep_diverged(&mut self, records: &mut Vec<(PartitionId, Vec<u8>)>) {
        assert!(records.is_empty(), "there is no other node");
    }

    fn sync_diverged(&mut self, partitions: &mut Vec<(PartitionId, Option<LinkId>)>) {
        assert!(partitions.is_empty(), "there is no other node");
    }

    fn send_links(&mut self, links: &mut Vec<LinkId>) {
        assert!(links.is_empty(), "there is no other node");
    }

    fn end_links(&mut self, links: &mut Vec<(LinkId, Vec<u8>)>) {
        assert!(links.is_empty(), "there is no other node");
    }
}

//! Whom a shard of the server talks to: the tasks of its connections and links, the other cores.

use std::time::Instant;

use penstock_shard::audit::Audited;
use penstock_shard::replication::{LinkId, PartitionId};
use penstock_shard::{Mail, Network, SessionId, Shard};
use tracing::warn;

use super::core::Core;
use super::messages::Letter;
use crate::cluster::lostfound::Found;
use crate::disk::arena::Arena;
use crate::event_loop::engine::Peers;

/// What a link sends before a write that the loop waits for, at most. A link with more catches up,
/// and nobody waits for that.
const AT_ONCE_BYTES_MAX: usize = 64 << 10;

impl Peers for &Core {
    fn send_links_at_once(&mut self, shard: &mut Shard<Arena>) {
        let mut bytes = self.link_bytes.borrow_mut();
        for link in self.links.borrow().iter() {
            let ready = shard.execution().link_output_bytes(link.link);
            if (1..=AT_ONCE_BYTES_MAX).contains(&ready) && link.may_send_at_once() {
                shard
                    .execution_mut()
                    .take_link_output(link.link, &mut bytes);
                link.send_at_once(&mut bytes);
            }
        }
    }
}

impl Network for &Core {
    fn send(&mut self, sessions: &mut Vec<SessionId>) {
        for session in sessions.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.has_output.set();
            }
        }
    }

    fn resume(&mut self, sessions: &mut Vec<SessionId>) {
        for session in sessions.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.may_resume.set();
            }
        }
    }

    fn close(&mut self, sessions: &mut Vec<(SessionId, &'static str)>) {
        for (session, _) in sessions.drain(..) {
            if let Some(connection) = self.connection(session) {
                connection.shut_down();
            }
        }
    }

    /// The core answers them behind the turn.
    fn probe_peers(&mut self, _: &mut Vec<SessionId>) {}

    fn deliver(&mut self, mail: &mut Vec<(u16, Mail)>) {
        for (to, mail) in mail.drain(..) {
            // The shards' credits bound what is in a mailbox; a core that is gone needs no mail.
            let _ = self.outboxes[usize::from(to)].send(Letter::Mail(mail));
        }
    }

    fn report_audit(&mut self, audited: &mut Vec<Audited>, beyond: u64) {
        self.audit.drop_lines(beyond);
        for audited in audited.drain(..) {
            self.audit.report_shard(self.shard, &audited);
        }
    }

    fn report_links(&mut self, notices: &mut Vec<String>) {
        for text in notices.drain(..) {
            // A link that is refused is made again, five times in a second.
            let mut lately = self.lately.borrow_mut();
            if let Some(text) = lately.line(&text, &text, Instant::now()) {
                warn!(shard = self.shard, "shard {}: {text}", self.shard);
            }
        }
    }

    fn keep_diverged(&mut self, records: &mut Vec<(PartitionId, Vec<u8>)>) {
        if let Some(lostfound) = &self.lostfound
            && !records.is_empty()
        {
            let mut all = Vec::new();
            for (_, record) in records.drain(..) {
                all.extend_from_slice(&record);
            }
            let _ = lostfound.send(Found::Records(all));
        }
    }

    fn sync_diverged(&mut self, partitions: &mut Vec<(PartitionId, Option<LinkId>)>) {
        if let Some(lostfound) = &self.lostfound {
            for (partition, link) in partitions.drain(..) {
                let _ = lostfound.send(Found::Sync(partition, link));
            }
        }
    }

    fn send_links(&mut self, links: &mut Vec<LinkId>) {
        let all = self.links.borrow();
        for link in all.iter() {
            // There may be room for more of what it has brought.
            link.may_read.set();
        }
        for id in links.drain(..) {
            let link = all.iter().find(|link| link.link == id);
            link.inspect(|link| link.has_output.set());
        }
    }

    fn end_links(&mut self, links: &mut Vec<(LinkId, Vec<u8>)>) {
        let all = self.links.borrow();
        for (id, last_words) in links.drain(..) {
            if let Some(link) = all.iter().find(|link| link.link == id) {
                link.end(last_words);
            }
        }
    }
}

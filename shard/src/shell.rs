//! What stands around a shard: a core of the server, an embedding process, a simulator.
//!
//! [`carry_out`] is the one place that takes an [`Outbox`] apart. A new field does not compile
//! until it is carried out here. That takes a method of [`Shell`] or [`Network`], and no shell
//! compiles without it.

use penstock_storage::cleaning::Damaged;
use penstock_storage::io::Io;
use penstock_storage::place::FileId;
use penstock_storage::recovery::Corruption;

use crate::audit::Audited;
use crate::bad_places::BadPlace;
use crate::cluster::LinkOutbox;
use crate::event::{Fatal, Outbox, TokenHorizon};
use crate::firing::FailedEffects;
use crate::key_tables::KeyTableOrder;
use crate::mail::{Mail, SessionId};
use crate::replication::{LinkId, PartitionId};
use crate::snapshots::SnapshotWrite;

/// Does what a shard wants done.
///
/// The order of the calls stands in [`carry_out`]. A method takes the entries out of its list and
/// leaves the list's memory. What it leaves in the list is for the driver to take behind the turn,
/// or comes again in the next one. No method steps the shard over the same outbox.
pub trait Shell {
    /// What the shard's disk requests carry.
    type Block;
    /// Why a turn ends before all is carried out.
    type End;
    /// Connections, other shards and links.
    type Network: Network;

    /// Whom the shard talks to.
    fn network(&mut self) -> &mut Self::Network;

    /// Nothing may be acknowledged any more: the process is to end, loudly. Nothing else of the
    /// turn is carried out. `notices` is what people should know of links.
    ///
    /// # Errors
    /// How the shell ends.
    fn fail(&mut self, fatal: Fatal, notices: &mut Vec<String>) -> Result<(), Self::End>;

    /// The clean stop is complete. Called only then.
    fn stopped(&mut self);

    /// Submits disk requests, in order.
    ///
    /// # Errors
    /// The disk takes no more requests.
    fn submit(&mut self, requests: &mut Vec<Io<Self::Block>>) -> Result<(), Self::End>;

    /// Answers connections and their requests with the server's state: [`crate::Event::Info`].
    fn inform(&mut self, requests: &mut Vec<(SessionId, u64)>);

    /// Removes the files of released segments.
    fn remove(&mut self, files: &mut Vec<FileId>);

    /// Forgets the descriptors of files of inherited logs.
    fn forget(&mut self, files: &mut Vec<FileId>);

    /// The shard needs the inherited logs no more: [`crate::Event::InheritedGone`]. Called once.
    fn taken_over(&mut self);

    /// Tells people what was found damaged: by cleaning, by looking through sealed segments, and by
    /// requests.
    ///
    /// # Errors
    /// A simulator knows that nothing is damaged.
    fn report_damage(
        &mut self,
        cleaning: &mut Vec<Damaged>,
        scrub: &mut Vec<Corruption>,
        requests: &mut Vec<BadPlace>,
    ) -> Result<(), Self::End>;

    /// Tells people for how long tokens are kept from now on.
    fn report_token_horizon(&mut self, horizon: TokenHorizon);

    /// Tells people of armed keys that ended without their effects.
    fn report_failed_effects(&mut self, failed: &mut Vec<FailedEffects>);

    /// Writes the next piece of a snapshot: [`crate::Event::SnapshotWritten`].
    fn write_snapshot(&mut self, writes: &mut Vec<SnapshotWrite>);

    /// Loads, makes and removes key tables, in order: [`crate::Event::KeyTable`].
    fn order_key_tables(&mut self, orders: &mut Vec<KeyTableOrder>);

    /// Makes so many spare segments: [`crate::Event::Spare`].
    fn make_spares(&mut self, spares: usize);
}

/// Delivers what a shard has for its connections, for other shards and for other nodes. The rules
/// of [`Shell`] hold.
pub trait Network {
    /// Sends what connections have to send: [`crate::Shard::take_pieces`].
    fn send(&mut self, sessions: &mut Vec<SessionId>);

    /// Hands over again the bytes of connections that were not consumed.
    fn resume(&mut self, sessions: &mut Vec<SessionId>);

    /// Closes connections for a reason. Their replies have been taken or are void.
    fn close(&mut self, sessions: &mut Vec<(SessionId, &'static str)>);

    /// Asks what the peers of connections have not acknowledged:
    /// [`crate::Event::Unacknowledged`].
    fn probe_peers(&mut self, sessions: &mut Vec<SessionId>);

    /// Delivers batches to other shards, those to one shard in their order.
    fn deliver(&mut self, mail: &mut Vec<(u16, Mail)>);

    /// Tells the audit log of what happened, and of how many events more. Called only where
    /// something did.
    fn report_audit(&mut self, audited: &mut Vec<Audited>, beyond: u64);

    /// Tells people what they should know of links.
    fn report_links(&mut self, notices: &mut Vec<String>);

    /// Keeps diverged records of partitions.
    fn keep_diverged(&mut self, records: &mut Vec<(PartitionId, Vec<u8>)>);

    /// Makes durable what was kept of partitions: [`crate::Event::DivergedKept`].
    fn sync_diverged(&mut self, partitions: &mut Vec<(PartitionId, Option<LinkId>)>);

    /// Sends what links have to send: [`crate::Shard::take_link_output`].
    fn send_links(&mut self, links: &mut Vec<LinkId>);

    /// Ends links, with what is to be sent before.
    fn end_links(&mut self, links: &mut Vec<(LinkId, Vec<u8>)>);
}

/// Has a shell do what a shard wants done in a turn. Called behind each
/// [`crate::Event::TurnEnds`].
///
/// # Errors
/// How the shell ended the turn. What it did not carry out stays in the outbox.
#[inline]
pub fn carry_out<S: Shell>(outbox: &mut Outbox<S::Block>, shell: &mut S) -> Result<(), S::End> {
    // Each field by name: one that is forgotten here does not compile.
    let Outbox {
        io,
        sendable,
        resume,
        probes,
        close,
        mail,
        info,
        spares,
        removals,
        has_taken_over,
        forgotten,
        damaged,
        rotten,
        bad_places,
        token_horizon,
        failed_effects,
        audited,
        audited_beyond,
        links:
            LinkOutbox {
                sendable: sendable_links,
                ended,
                kept,
                to_sync,
                notices,
            },
        snapshots,
        key_tables,
        is_stopped,
        fatal,
    } = outbox;
    if let Some(fatal) = *fatal {
        return shell.fail(fatal, notices);
    }
    if *is_stopped {
        shell.stopped();
    }
    shell.submit(io)?;
    shell.network().send(sendable);
    shell.network().resume(resume);
    shell.network().close(close);
    shell.network().probe_peers(probes);
    shell.network().deliver(mail);
    shell.inform(info);
    shell.remove(removals);
    shell.forget(forgotten);
    if std::mem::take(has_taken_over) {
        shell.taken_over();
    }
    shell.report_damage(damaged, rotten, bad_places)?;
    if let Some(horizon) = token_horizon.take() {
        shell.report_token_horizon(horizon);
    }
    shell.report_failed_effects(failed_effects);
    shell.write_snapshot(snapshots);
    shell.order_key_tables(key_tables);
    shell.make_spares(std::mem::take(spares));
    if !audited.is_empty() {
        shell
            .network()
            .report_audit(audited, std::mem::take(audited_beyond));
    }
    shell.network().report_links(notices);
    shell.network().keep_diverged(kept);
    shell.network().sync_diverged(to_sync);
    shell.network().send_links(sendable_links);
    shell.network().end_links(ended);
    Ok(())
}

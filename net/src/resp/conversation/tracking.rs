//! CLIENT TRACKING and its like, the reads that are tracked, and the invalidations that the
//! connection gets.
//!
//! What must hold: a read is noted before its item is sent, and the invalidation of its key stands
//! after its reply. So a client that keeps a value until the invalidation keeps nothing old.

use std::sync::Arc;

use crate::limits::KEY_BYTES_MAX;
use crate::rights::Need;

use super::super::host::Host;
use super::super::local;
use super::super::message::{Kind, Message};
use super::super::parser::Arguments;
use super::super::pushes::Push;
use super::super::reply::Protocol;
use super::super::request::Request;
use super::super::rights::NO_KEY;
use super::super::table;
use super::super::tracking::{
    ClientTracking, Tracking, TrackingAsked, TrackingOptions, TrackingWay, read_tracking,
};
use super::super::words;
use super::multi::Queue;
use super::subscribed::{Received, may_read};
use super::{Conversation, Passed, Talk};

const NOT_TRACKED: &[u8] = b"ERR this node tracks no keys";
const NO_CACHING: &[u8] = b"ERR CLIENT CACHING can be called only when the client is in tracking \
    mode with OPTIN or OPTOUT mode enabled";
const NO_OPT_IN: &[u8] =
    b"ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const NO_OPT_OUT: &[u8] =
    b"ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// What CLIENT asks of the tracking of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Tracking,
    Caching,
    Info,
    Redirect,
}

impl Asked {
    /// Reads the subcommand of CLIENT. `None`: it is another one.
    pub(super) fn read(args: Arguments<'_>) -> Option<Asked> {
        let is = |name: &str| args.get(1).eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("TRACKING") => Some(Asked::Tracking),
            () if is("CACHING") => Some(Asked::Caching),
            () if is("TRACKINGINFO") => Some(Asked::Info),
            () if is("GETREDIR") => Some(Asked::Redirect),
            () => None,
        }
    }

    fn takes(self, arguments: usize) -> bool {
        match self {
            Asked::Tracking => arguments >= 3,
            Asked::Caching => arguments == 3,
            Asked::Info | Asked::Redirect => arguments == 2,
        }
    }
}

/// Who tracks a key that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackedBy {
    /// The connection that gets the key.
    ThisConnection,
    /// Another one, which has named it by REDIRECT.
    AnotherConnection,
}

impl Conversation {
    /// A tracked key has changed; without a key all have. So many bytes are left for the messages
    /// of all.
    pub fn invalidate(
        &mut self,
        key: Option<Arc<Message>>,
        by: TrackedBy,
        messages_left: usize,
    ) -> Received {
        self.talk.invalidate(key, by, messages_left)
    }

    /// The connection of this number is gone. If this one has named it by REDIRECT, it says so.
    pub fn redirect_broke(&mut self, gone: u64, host: &dyn Host) {
        self.talk.redirect_broke(gone, host);
    }
}

impl Talk {
    fn tracking(&self) -> Option<&Tracking> {
        self.subscribed.as_ref()?.tracking.as_ref()
    }

    fn tracking_mut(&mut self) -> Option<&mut Tracking> {
        self.subscribed.as_mut()?.tracking.as_mut()
    }

    /// Whether the connection tracks keys: each of its commands is read by itself then.
    #[inline]
    pub(super) fn is_tracking(&self) -> bool {
        self.subscribed.is_some() && self.tracking().is_some()
    }

    /// Whether the next command may be taken without the parser.
    #[inline]
    pub(super) fn allows_shapes(&self) -> bool {
        let is_paused = self.pauses.of_node.is_some();
        self.options.replies.allows_shapes() && !self.is_tracking() && !is_paused
    }

    /// CLIENT TRACKING and its like.
    #[cold]
    pub(super) fn of_tracking(
        &mut self,
        asked: Asked,
        args: Arguments<'_>,
        host: &dyn Host,
    ) -> Passed {
        if !asked.takes(args.len()) {
            let name = args.get(1).to_ascii_lowercase();
            let name = format!("client|{}", name.escape_ascii());
            return self.refuse_only_with(|out| words::wrong_arity(&name, out));
        }
        match asked {
            Asked::Tracking => match self.track(args, host) {
                Ok(()) => self.ok(),
                Err(text) => return self.refuse_only(&text),
            },
            Asked::Caching => match self.caching(args.get(2)) {
                Ok(()) => self.ok(),
                Err(text) => return self.refuse_only(text),
            },
            Asked::Info => self.reply_tracking_info(),
            Asked::Redirect => {
                let redirect = self.redirect();
                let protocol = self.protocol;
                self.ring
                    .reply(protocol, &mut self.out, |replies| replies.integer(redirect));
            }
        }
        Passed::Whole
    }

    pub(super) fn refuse_only_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Passed {
        let mut text = Vec::new();
        write(&mut text);
        self.refuse_only(&text)
    }

    /// CLIENT TRACKING.
    fn track(&mut self, args: Arguments<'_>, host: &dyn Host) -> Result<(), Vec<u8>> {
        let tracker = host.tracker().ok_or(NOT_TRACKED)?;
        let exists = |id: u64| host.is_client(id);
        let before = self.tracking().map(|it| &it.options);
        match read_tracking(args, before, exists)? {
            TrackingAsked::On(options) => {
                self.check_prefixes(&options)?;
                let client = self.client.id;
                let begun = tracker.begin(client, &options);
                begun.map_err(|refused| refused.text())?;
                self.subscribed_mut().tracking = Some(Tracking {
                    options,
                    ..Tracking::default()
                });
            }
            TrackingAsked::Off => self.stop_tracking(host),
        }
        self.note_tracking(host);
        Ok(())
    }

    /// Whether prefixes are short enough, and the user may read all keys behind them.
    fn check_prefixes(&self, options: &TrackingOptions) -> Result<(), Vec<u8>> {
        for prefix in &options.prefixes {
            let bytes = prefix.len();
            if bytes > KEY_BYTES_MAX {
                return Err(format!(
                    "ERR a prefix has at most {KEY_BYTES_MAX} bytes, and this one has {bytes}"
                )
                .into_bytes());
            }
            let rights = self.rights.as_deref();
            if !rights.is_none_or(|rights| rights.allows(Need::READ, prefix)) {
                return Err(NO_KEY.to_vec());
            }
        }
        Ok(())
    }

    /// CLIENT CACHING.
    fn caching(&mut self, word: &[u8]) -> Result<(), &'static [u8]> {
        let tracking = self.tracking_mut().ok_or(NO_CACHING)?;
        let way = tracking.options.way;
        match () {
            () if word.eq_ignore_ascii_case(b"YES") && way != TrackingWay::OptIn => Err(NO_OPT_IN),
            () if word.eq_ignore_ascii_case(b"NO") && way != TrackingWay::OptOut => Err(NO_OPT_OUT),
            () if word.eq_ignore_ascii_case(b"YES") || word.eq_ignore_ascii_case(b"NO") => {
                tracking.has_caching = true;
                Ok(())
            }
            () => Err(b"ERR syntax error"),
        }
    }

    /// The number of the connection that is told: 0 for this one, -1 if it does not track.
    fn redirect(&self) -> i64 {
        self.tracking().map_or(-1, |tracking| {
            let redirect = tracking.options.redirect.unwrap_or(0);
            i64::try_from(redirect).unwrap_or(i64::MAX)
        })
    }

    /// CLIENT TRACKINGINFO.
    fn reply_tracking_info(&mut self) {
        let (protocol, redirect) = (self.protocol, self.redirect());
        let tracking = self.subscribed.as_ref().and_then(|it| it.tracking.as_ref());
        let flags = tracking.map_or_else(|| vec!["off"], Tracking::flags);
        let prefixes = tracking.map(|it| &it.options.prefixes);
        self.ring.reply(protocol, &mut self.out, |replies| {
            replies.map(3);
            replies.bulk(b"flags");
            replies.set(flags.len());
            flags.iter().for_each(|it| replies.bulk(it.as_bytes()));
            replies.bulk(b"redirect");
            replies.integer(redirect);
            replies.bulk(b"prefixes");
            replies.array(prefixes.map_or(0, |it| it.len()));
            prefixes
                .into_iter()
                .flatten()
                .for_each(|it| replies.bulk(it));
        });
    }

    /// CLIENT LIST tells of it.
    fn note_tracking(&mut self, host: &dyn Host) {
        let shown = self.tracking().map(Tracking::shown).unwrap_or_default();
        self.client.tracking = shown;
        host.client_changed(&self.client);
    }

    /// The connection does not track any more.
    pub(super) fn stop_tracking(&mut self, host: &dyn Host) {
        let tracking = self.subscribed.as_mut().and_then(|it| it.tracking.take());
        if tracking.is_some() {
            self.client.tracking = ClientTracking::Off;
            if let Some(tracker) = host.tracker() {
                tracker.end(self.client.id);
            }
        }
    }

    /// A command was taken, or refused; `None`: nobody knows it. CLIENT CACHING is for one command,
    /// or for all of a MULTI, but subcommands of CLIENT leave it. What a command answers or writes
    /// the connection may keep, unless it is one about connections.
    #[cold]
    pub(super) fn tracked_command(
        &mut self,
        command: Option<&table::Command>,
        args: Arguments<'_>,
    ) {
        let is_of_client = command.is_some_and(|it| it.id == table::Name::Client)
            && args.from(1).next().is_some_and(local::is_of_client);
        let is_kept = is_of_client || self.queue.is_some();
        if let Some(tracking) = self.tracking_mut() {
            tracking.has_caching &= is_kept;
            tracking.knows_all &= command.is_none_or(|it| it.group == "connection");
        }
    }

    /// A read of these keys is about to be sent.
    #[cold]
    pub(super) fn note_reads<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>, host: &dyn Host) {
        let client = self.client.id;
        let Some(tracking) = self.tracking_mut() else {
            return;
        };
        tracking.knows_all = false;
        if !tracking.tracks_reads() {
            return;
        }
        let Some(tracker) = host.tracker() else {
            return;
        };
        let rights = self.rights.as_deref();
        for key in keys {
            // Nobody learns of keys that he may not read.
            if may_read(rights, Kind::Channel, key) {
                tracker.reads(client, key);
            }
        }
    }

    /// The same of a command with keys, if it is a read.
    #[cold]
    pub(super) fn note_request(&mut self, request: &Request<'_>, host: &dyn Host) {
        let mut keys: Vec<&[u8]> = Vec::new();
        if !request.is_change() {
            request.for_each_key(|key| keys.push(key));
        }
        self.note_reads(keys.into_iter(), host);
    }

    /// The same of the commands behind MULTI.
    #[cold]
    pub(super) fn note_queued(&mut self, host: &dyn Host) {
        let Some(queue) = self.queue.take() else {
            return;
        };
        for args in queue.commands() {
            if let Some(command) = table::find(args.get(0))
                && let Ok(Some(request)) = Request::read(command, args)
            {
                self.note_request(&request, host);
            }
        }
        self.queue = Some(queue);
    }

    fn invalidate(
        &mut self,
        key: Option<Arc<Message>>,
        by: TrackedBy,
        messages_left: usize,
    ) -> Received {
        let is_own = by == TrackedBy::ThisConnection;
        // In RESP2 it is a message, for a connection with subscriptions that another one has named.
        let is_taken = self.protocol == Protocol::Resp3 || !is_own && self.is_restricted();
        if !is_taken {
            return Received::Passed;
        }
        // What the user may not read any more has no name for him.
        let rights = self.rights.as_deref();
        let key = key.filter(|key| may_read(rights, Kind::Channel, key.payload()));
        let bytes_max = self.waiting_bytes_max(messages_left);
        let behind = self.pushes_behind();
        let subscribed = self.subscribed_mut();
        let pushes = &mut subscribed.pushes;
        if let Some(key) = key {
            let push = Push::Invalidated(key);
            if pushes.is_empty() || pushes.bytes() + push.bytes() <= bytes_max {
                pushes.add(push, behind);
                return Received::Waits;
            }
        }
        // A null is enough for the own keys until more is asked for; others may have asked since.
        if is_own
            && let Some(tracking) = &mut subscribed.tracking
            && std::mem::replace(&mut tracking.knows_all, true)
        {
            return Received::Passed;
        }
        pushes.drop_invalidations();
        pushes.add(Push::AllInvalidated, behind);
        if pushes.bytes() > bytes_max && !pushes.has_one() {
            pushes.clear();
            return Received::TooMuch;
        }
        Received::Waits
    }

    fn redirect_broke(&mut self, gone: u64, host: &dyn Host) {
        let behind = self.pushes_behind();
        let is_of_resp3 = self.protocol == Protocol::Resp3;
        let Some(subscribed) = &mut self.subscribed else {
            return;
        };
        let Some(tracking) = &mut subscribed.tracking else {
            return;
        };
        if tracking.options.redirect != Some(gone) {
            return;
        }
        tracking.is_broken = true;
        if is_of_resp3 {
            subscribed.pushes.add(Push::RedirectBroken(gone), behind);
        }
        self.note_tracking(host);
    }

    /// Drops what has no form in the protocol that the connection speaks now.
    pub(super) fn drop_undeliverable(&mut self) {
        if self.protocol == Protocol::Resp3 {
            return;
        }
        let has_subscriptions = self.is_restricted();
        let Some(subscribed) = &mut self.subscribed else {
            return;
        };
        subscribed.pushes.drop_broken_redirects();
        if !has_subscriptions {
            subscribed.pushes.drop_invalidations();
            if let Some(tracking) = &mut subscribed.tracking {
                // A null may have been among them.
                tracking.knows_all = false;
            }
        }
    }
}

impl Queue {
    /// The commands, in their order.
    fn commands(&self) -> impl Iterator<Item = Arguments<'_>> {
        self.kept().iter().map(|it| it.view())
    }
}

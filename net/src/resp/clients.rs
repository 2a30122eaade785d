//! CLIENT LIST and CLIENT KILL: the connections of the port, of all cores.

use super::bound::ReplyBound;
use super::host::{Client, Host};
use super::number::read_integer;
use super::parser::Arguments;
use super::reply::Replies;
use super::tracking::{ClientTracking, TrackingWay};

const SYNTAX: &[u8] = b"ERR syntax error";

/// What becomes of the connection behind a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoesOn,
    /// It ends when the reply has left.
    Ends,
}

/// Which connections are meant.
#[derive(Debug, Default)]
struct Filter {
    /// Of these numbers, if any are named.
    ids: Vec<u64>,
    address: Option<String>,
    local_address: Option<String>,
    user: Option<String>,
    /// Opened so many seconds ago, at the least.
    age_s_min: u64,
    /// Of this type alone.
    kind: Option<ClientKind>,
    skips_me: bool,
}

impl Filter {
    /// Reads options with their values from argument `number` on.
    fn read(args: Arguments<'_>, mut number: usize, skips_me: bool) -> Result<Self, Vec<u8>> {
        let mut filter = Filter {
            skips_me,
            ..Filter::default()
        };
        while number < args.len() {
            let option = args.get(number);
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            if number + 1 >= args.len() {
                return Err(SYNTAX.to_vec());
            }
            let value = args.get(number + 1);
            let text = || Some(String::from_utf8_lossy(value).into_owned());
            match () {
                () if is("ID") => {
                    let ids = args.from(number + 1).map_while(read_id);
                    filter.ids.extend(ids);
                    let count = args.from(number + 1).map_while(read_id).count();
                    if count == 0 {
                        return Err(SYNTAX.to_vec());
                    }
                    number += count - 1;
                }
                () if is("ADDR") => filter.address = text(),
                () if is("LADDR") => filter.local_address = text(),
                () if is("USER") => filter.user = text(),
                () if is("MAXAGE") => {
                    let seconds = read_integer(value).and_then(|it| u64::try_from(it).ok());
                    filter.age_s_min = seconds.ok_or(SYNTAX.to_vec())?;
                }
                () if is("TYPE") => filter.kind = Some(read_kind(value)?),
                () if is("SKIPME") => filter.skips_me = read_choice(value)?,
                () => return Err(SYNTAX.to_vec()),
            }
            number += 2;
        }
        Ok(filter)
    }

    fn takes(&self, client: &Client, me: u64, now_s: u64) -> bool {
        let is = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|it| it == has);
        let age_s = now_s.saturating_sub(client.since_s);
        (self.ids.is_empty() || self.ids.contains(&client.id))
            && is(&self.address, &client.address)
            && is(&self.local_address, &client.local_address)
            && is(&self.user, user_of(client))
            && age_s >= self.age_s_min
            && self.kind.is_none_or(|kind| kind == kind_of(client))
            && !(self.skips_me && client.id == me)
    }
}

fn read_id(text: &[u8]) -> Option<u64> {
    let id = read_integer(text)?;
    u64::try_from(id).ok().filter(|id| *id > 0)
}

/// The types of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientKind {
    Normal,
    /// It has subscriptions.
    PubSub,
    /// No connection here is one.
    Replication,
}

fn kind_of(client: &Client) -> ClientKind {
    match client.subscriptions {
        [0, 0, 0] => ClientKind::Normal,
        _ => ClientKind::PubSub,
    }
}

fn read_kind(name: &[u8]) -> Result<ClientKind, Vec<u8>> {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    match () {
        () if is("normal") => Ok(ClientKind::Normal),
        () if is("pubsub") => Ok(ClientKind::PubSub),
        () if ["master", "primary", "slave", "replica"]
            .into_iter()
            .any(is) =>
        {
            Ok(ClientKind::Replication)
        }
        () => Err([b"ERR Unknown client type '", name, b"'"].concat()),
    }
}

fn read_choice(text: &[u8]) -> Result<bool, Vec<u8>> {
    match () {
        () if text.eq_ignore_ascii_case(b"yes") => Ok(true),
        () if text.eq_ignore_ascii_case(b"no") => Ok(false),
        () => Err(SYNTAX.to_vec()),
    }
}

fn user_of(client: &Client) -> &str {
    match client.user.as_str() {
        "" => "default",
        user => user,
    }
}

/// The connections that are meant.
fn filtered(filter: &Filter, me: u64, host: &dyn Host) -> Vec<Client> {
    let now_s = host.unix_us() / 1_000_000;
    let mut clients = host.clients();
    clients.retain(|client| filter.takes(client, me, now_s));
    clients
}

/// CLIENT LIST.
pub(super) fn list(
    args: Arguments<'_>,
    me: &Client,
    bound: ReplyBound,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) {
    let filter = match Filter::read(args, 2, false) {
        Ok(filter) => filter,
        Err(text) => return replies.error(&text),
    };
    let clients = filtered(&filter, me.id, host);
    let mut lines = String::new();
    for client in &clients {
        lines.push_str(&line_of(client, host));
        if lines.len() > bound.bytes_max() {
            let (count, bytes) = (clients.len(), lines.len());
            let text = format!(
                "ERR the list of {count} connections takes more than {bytes} bytes, and {bound}"
            );
            return replies.error(text.as_bytes());
        }
    }
    replies.text(&lines);
}

/// CLIENT KILL. A connection that kills itself gets its reply before.
pub(super) fn kill(
    args: Arguments<'_>,
    me: &Client,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) -> After {
    let is_by_address = args.len() == 3;
    let filter = match is_by_address {
        true => Ok(Filter {
            address: Some(String::from_utf8_lossy(args.get(2)).into_owned()),
            ..Filter::default()
        }),
        false => Filter::read(args, 2, true),
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(text) => {
            replies.error(&text);
            return After::GoesOn;
        }
    };
    let (mut killed, mut after) = (0, After::GoesOn);
    for client in filtered(&filter, me.id, host) {
        if client.id == me.id {
            after = After::Ends;
            killed += 1;
        } else {
            killed += i64::from(host.end_client(client.id));
        }
    }
    match is_by_address {
        true if killed == 0 => replies.error(b"ERR No such client"),
        true => replies.simple("OK"),
        false => replies.integer(killed),
    }
    after
}

/// CLIENT UNBLOCK.
pub(super) fn unblock(args: Arguments<'_>, host: &dyn Host, replies: &mut Replies<'_>) {
    // More arguments than the reason are passed over, as Valkey does.
    let is = |name: &[u8]| args.len() == 4 && args.get(3).eq_ignore_ascii_case(name);
    if args.len() == 4 && !is(b"TIMEOUT") && !is(b"ERROR") {
        return replies.error(b"ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }
    let Some(id) = read_integer(args.get(2)) else {
        return replies.error(b"ERR value is not an integer or out of range");
    };
    let waits = u64::try_from(id).ok().zip(host.waiters());
    let is_ended = waits.is_some_and(|(id, waiters)| waiters.unblock(id, is(b"ERROR")));
    replies.integer(is_ended.into());
}

/// A connection as a line of CLIENT LIST.
pub(super) fn line_of(client: &Client, host: &dyn Host) -> String {
    let age_s = (host.unix_us() / 1_000_000).saturating_sub(client.since_s);
    let (tracks, redirect) = match client.tracking {
        ClientTracking::Off => ("", None),
        ClientTracking::On {
            way,
            redirect,
            is_broken,
        } => {
            let flags = match (is_broken, way == TrackingWay::Broadcast) {
                (false, false) => "t",
                (true, false) => "tR",
                (false, true) => "tB",
                (true, true) => "tRB",
            };
            (flags, Some(redirect.unwrap_or(0)))
        }
    };
    let redirect = redirect.map_or_else(|| "-1".to_string(), |id| id.to_string());
    let subscribes = if kind_of(client) == ClientKind::PubSub {
        "P"
    } else {
        ""
    };
    let is_blocked = client.is_held || client.ticket.is_some();
    let held = if is_blocked { "b" } else { "" };
    let flags = match [subscribes, held, tracks].concat() {
        none if none.is_empty() => "N".to_string(),
        flags => flags,
    };
    let [channels, patterns, shard_channels] = client.subscriptions;
    format!(
        "id={} addr={} laddr={} name={} age={age_s} flags={flags} db=0 sub={channels} \
         psub={patterns} ssub={shard_channels} user={} redir={redirect} lib-name={} lib-ver={} \
         resp={}\n",
        client.id,
        client.address,
        client.local_address,
        client.name,
        user_of(client),
        client.library,
        client.library_version,
        client.protocol
    )
}

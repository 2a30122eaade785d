//! Commands that are answered without a key.

use super::bound::ReplyBound;
use super::clients::{self, After};
use super::cluster;
use super::commands;
use super::config;
use super::host::{Client, Host, is_replica};
use super::info;
use super::number::read_integer;
use super::parser::Arguments;
use super::pubsub;
use super::reply::{Protocol, Replies};
use super::scripts;
use super::slow;
use super::table::Name;
use super::value_read::{answer_memory, answer_object};
use super::words::{REDIS_VERSION, WRONG_PASS, unknown_subcommand, wrong_subcommand};

const HELP: [&str; 44] = [
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are those of LIST, and:",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "LIST [options ...]",
    "    Return information about client connections. Options are:",
    "    * ADDR <ip:port>, LADDR <ip:port>, USER <username>, MAXAGE <seconds>",
    "    * ID <client-id> [<client-id>...]",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "NO-EVICT (ON|OFF)",
    "    Taken and without effect: no connection is ended for its memory alone.",
    "NO-TOUCH (ON|OFF)",
    "    Taken and without effect: a read does not decide what is lost.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
];

/// Bytes of the name, the library and the version of the library of a connection, at most each.
const TEXT_BYTES_MAX: usize = 256;

/// What the server takes and tells, at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Bytes of an argument.
    pub(super) bulk_bytes_max: usize,
    /// The list of connections.
    pub(super) replies: ReplyBound,
}

/// Answers a command, whose number of arguments was checked.
pub(super) fn answer(
    id: Name,
    args: Arguments<'_>,
    client: &mut Client,
    bounds: Bounds,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) -> After {
    match id {
        id if is_queued(id) => answer_queued(id, args, host, replies),
        Name::Auth => auth(args, replies),
        Name::Config => config::answer(args, bounds.bulk_bytes_max, host, replies),
        Name::Client => return client_command(args, client, bounds, host, replies),
        Name::Cluster => cluster::answer(args, host, replies),
        Name::SlowLog => slow::answer(args, host, replies),
        Name::Command => commands::answer(args, replies),
        Name::Script => scripts::answer(args, host, replies),
        Name::PubSub => pubsub::answer(args, bounds.replies, host, replies),
        _ => replies.error(b"ERR this command is answered elsewhere"),
    }
    After::GoesOn
}

/// Whether a command may stand behind MULTI although it names no key: what it answers depends on
/// nothing of the connection, and changes nothing.
pub(super) fn is_queued(id: Name) -> bool {
    matches!(
        id,
        Name::Ping
            | Name::Echo
            | Name::Select
            | Name::Unwatch
            | Name::Time
            | Name::DbSize
            | Name::Info
            | Name::Object
            | Name::Memory
    )
}

/// Answers such a command.
pub(super) fn answer_queued(
    id: Name,
    args: Arguments<'_>,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) {
    match id {
        _ if answer_of_arguments(id, args, replies) => {}
        // EXEC has ended all watches before it runs.
        Name::Unwatch => replies.simple("OK"),
        Name::Time => write_time(host.time_us(), replies),
        Name::DbSize => {
            let keys = host.facts().keys;
            replies.integer(i64::try_from(keys).unwrap_or(i64::MAX));
        }
        Name::Info => replies.text(&info::text(args, host)),
        _ => replies.error(b"ERR Command not allowed inside a transaction"),
    }
}

/// Answers a command whose answer follows from its arguments. `false` if it is no such command.
pub(super) fn answer_of_arguments(
    id: Name,
    args: Arguments<'_>,
    replies: &mut Replies<'_>,
) -> bool {
    match id {
        Name::Ping if args.len() > 2 => wrong_subcommand("ping", replies),
        Name::Ping if args.len() == 2 => replies.bulk(args.get(1)),
        Name::Ping => replies.simple("PONG"),
        Name::Echo => replies.bulk(args.get(1)),
        Name::Select => match read_integer(args.get(1)).map(i32::try_from) {
            None => replies.error(b"ERR value is not an integer or out of range"),
            Some(Ok(0)) => replies.simple("OK"),
            Some(Ok(_)) => replies.error(b"ERR DB index is out of range"),
            Some(Err(_)) => replies
                .error(b"ERR value is out of range, value must between -2147483648 and 2147483647"),
        },
        Name::Object => answer_object(args, replies),
        Name::Memory => answer_memory(args, replies),
        _ => return false,
    }
    true
}

/// The reply of TIME.
pub(super) fn write_time(unix_us: u64, replies: &mut Replies<'_>) {
    replies.array(2);
    replies.bulk((unix_us / 1_000_000).to_string().as_bytes());
    replies.bulk((unix_us % 1_000_000).to_string().as_bytes());
}

fn auth(args: Arguments<'_>, replies: &mut Replies<'_>) {
    match args.len() {
        2 => replies.error(
            b"ERR AUTH <password> called without any password configured for the default user. \
              Are you sure your configuration is correct?",
        ),
        3 if args.get(1) == b"default" => replies.simple("OK"),
        3 => replies.error(WRONG_PASS),
        _ => replies.error(b"ERR syntax error"),
    }
}

/// What HELLO asks for.
#[derive(Default)]
pub(super) struct Hello<'a> {
    pub(super) protocol: Option<Protocol>,
    pub(super) name: Option<String>,
    /// The name and the secret behind AUTH.
    pub(super) login: Option<(&'a [u8], &'a [u8])>,
}

/// Reads a HELLO, or tells why it is refused.
pub(super) fn read_hello(args: Arguments<'_>) -> Result<Hello<'_>, Vec<u8>> {
    let mut hello = Hello::default();
    if args.len() == 1 {
        return Ok(hello);
    }
    let version = read_integer(args.get(1));
    hello.protocol = Some(match version {
        None => return Err(b"ERR Protocol version is not an integer or out of range".to_vec()),
        Some(2) => Protocol::Resp2,
        Some(3) => Protocol::Resp3,
        Some(_) => return Err(b"NOPROTO unsupported protocol version".to_vec()),
    });
    let mut number = 2;
    while number < args.len() {
        let option = args.get(number);
        let left = args.len() - number - 1;
        if option.eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            hello.login = Some((args.get(number + 1), args.get(number + 2)));
            number += 3;
        } else if option.eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            hello.name = Some(checked_name(args.get(number + 1))?);
            number += 2;
        } else {
            return Err([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
        }
    }
    Ok(hello)
}

/// Answers a HELLO.
pub(super) fn write_hello(client: &Client, host: &dyn Host, replies: &mut Replies<'_>) {
    let facts = host.facts();
    replies.map(7);
    replies.bulk(b"server");
    replies.bulk(b"redis");
    replies.bulk(b"version");
    replies.bulk(REDIS_VERSION.as_bytes());
    replies.bulk(b"proto");
    replies.integer(client.protocol.into());
    replies.bulk(b"id");
    replies.integer(i64::try_from(client.id).unwrap_or(i64::MAX));
    replies.bulk(b"mode");
    replies.bulk(if facts.is_clustered {
        b"cluster"
    } else {
        b"standalone"
    });
    replies.bulk(b"role");
    replies.bulk(if is_replica(host) {
        b"replica"
    } else {
        b"master"
    });
    replies.bulk(b"modules");
    replies.array(0);
}

/// A name without blanks and what no terminal shows.
fn checked_name(name: &[u8]) -> Result<String, Vec<u8>> {
    check_length("Client names", name)?;
    match name.iter().all(u8::is_ascii_graphic) {
        true => Ok(String::from_utf8_lossy(name).into_owned()),
        false => {
            Err(b"ERR Client names cannot contain spaces, newlines or special characters.".to_vec())
        }
    }
}

/// The subcommands of CLIENT.
const CLIENT_SUBCOMMANDS: [&str; 18] = [
    "id",
    "getname",
    "setname",
    "setinfo",
    "info",
    "list",
    "kill",
    "pause",
    "unblock",
    "unpause",
    "no-evict",
    "no-touch",
    "help",
    "reply",
    "tracking",
    "caching",
    "trackinginfo",
    "getredir",
];

/// Refuses what a connection says of itself if CLIENT LIST would be long of it.
fn check_length(what: &str, given: &[u8]) -> Result<(), Vec<u8>> {
    let bytes = given.len();
    match bytes <= TEXT_BYTES_MAX {
        true => Ok(()),
        false => Err(format!(
            "ERR {what} cannot be longer than {TEXT_BYTES_MAX} bytes, and this one has {bytes}"
        )
        .into_bytes()),
    }
}

/// Whether CLIENT has a subcommand of this name.
pub(super) fn is_of_client(name: &[u8]) -> bool {
    let mut known = CLIENT_SUBCOMMANDS.iter();
    known.any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

fn client_command(
    args: Arguments<'_>,
    client: &mut Client,
    bounds: Bounds,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) -> After {
    let name = args.get(1).to_ascii_lowercase();
    match (&name[..], args.len()) {
        (b"id", 2) => replies.integer(i64::try_from(client.id).unwrap_or(i64::MAX)),
        (b"getname", 2) if client.name.is_empty() => replies.null(),
        (b"getname", 2) => replies.bulk(client.name.as_bytes()),
        (b"setname", 3) => match checked_name(args.get(2)) {
            Ok(name) => {
                client.name = name;
                host.client_changed(client);
                replies.simple("OK");
            }
            Err(text) => replies.error(&text),
        },
        (b"setinfo", 4) => set_info(args, client, host, replies),
        (b"info", 2) => replies.text(&clients::line_of(client, host)),
        (b"list", _) => clients::list(args, client, bounds.replies, host, replies),
        (b"kill", 3..) => return clients::kill(args, client, host, replies),
        (b"unblock", 3..) => clients::unblock(args, host, replies),
        (b"no-evict" | b"no-touch", 3) => {
            let is_known = ["on", "off"]
                .iter()
                .any(|known| args.get(2).eq_ignore_ascii_case(known.as_bytes()));
            match is_known {
                true => replies.simple("OK"),
                false => replies.error(b"ERR syntax error"),
            }
        }
        (b"help", 2) => replies.help("CLIENT", &HELP),
        _ if is_of_client(&name) => {
            let name = String::from_utf8_lossy(&name);
            wrong_subcommand(&format!("client|{name}"), replies);
        }
        _ => unknown_subcommand("CLIENT", args, replies),
    }
    After::GoesOn
}

fn set_info(args: Arguments<'_>, client: &mut Client, host: &dyn Host, replies: &mut Replies<'_>) {
    let (attribute, value) = (args.get(2), args.get(3));
    let place = match () {
        () if attribute.eq_ignore_ascii_case(b"lib-name") => &mut client.library,
        () if attribute.eq_ignore_ascii_case(b"lib-ver") => &mut client.library_version,
        () => {
            return replies.error(&[b"ERR Unrecognized option '", attribute, b"'"].concat());
        }
    };
    if let Err(text) = check_length(&String::from_utf8_lossy(attribute), value) {
        return replies.error(&text);
    }
    if !value.iter().all(u8::is_ascii_graphic) {
        let name = String::from_utf8_lossy(attribute);
        let text = format!("ERR {name} cannot contain spaces, newlines or special characters.");
        return replies.error(text.as_bytes());
    }
    *place = String::from_utf8_lossy(value).into_owned();
    host.client_changed(client);
    replies.simple("OK");
}

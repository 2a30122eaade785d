//! CLIENT TRACKING: what a connection asks for, and what it asks of the node.

use std::collections::BTreeSet;

use super::number::read_integer;
use super::parser::Arguments;

/// Prefixes of one connection, at most.
pub const PREFIXES_MAX: usize = 256;

const SYNTAX: &[u8] = b"ERR syntax error";
const NO_SUCH_CLIENT: &[u8] = b"ERR The client ID you want redirect to does not exist";

/// Which keys a connection tracks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackingWay {
    /// Those that it reads.
    #[default]
    Reads,
    /// Those that it reads behind CLIENT CACHING YES.
    OptIn,
    /// Those that it reads, but behind CLIENT CACHING NO.
    OptOut,
    /// All that begin with its prefixes, read or not.
    Broadcast,
}

/// What becomes of its own changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnChanges {
    /// It is told of them as of all others.
    #[default]
    Sent,
    /// It is not: NOLOOP.
    Skipped,
}

/// What CLIENT TRACKING ON asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackingOptions {
    /// Which keys are tracked.
    pub way: TrackingWay,
    /// What becomes of own changes.
    pub own: OwnChanges,
    /// The connection that is told; `None` for the one that tracks.
    pub redirect: Option<u64>,
    /// Where [`TrackingWay::Broadcast`] begins.
    pub prefixes: BTreeSet<Box<[u8]>>,
}

/// Why a connection does not track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackingRefused {
    /// There is no connection of this user that could be told.
    NoSuchClient,
    /// Names and prefixes that connections have would take more bytes than they may.
    Prefixes {
        /// The limit.
        bytes_max: usize,
    },
}

impl TrackingRefused {
    pub(super) fn text(self) -> Vec<u8> {
        match self {
            TrackingRefused::NoSuchClient => NO_SUCH_CLIENT.to_vec(),
            TrackingRefused::Prefixes { bytes_max } => format!(
                "ERR the names and prefixes that connections of this node ask for would take more \
                 than {bytes_max} bytes"
            )
            .into_bytes(),
        }
    }
}

/// What INFO tells of tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackingFigures {
    /// Connections that track.
    pub clients: u64,
    /// Keys in the tables.
    pub keys: u64,
    /// Connections of all keys.
    pub items: u64,
    /// Different prefixes.
    pub prefixes: u64,
}

/// Where the connections of a node track keys.
pub trait KeyTracker {
    /// A connection tracks keys from now on, or does so in another way.
    ///
    /// # Errors
    /// It does not: nothing has changed.
    fn begin(&self, client: u64, options: &TrackingOptions) -> Result<(), TrackingRefused>;

    /// It does not any more.
    fn end(&self, client: u64);

    /// It is about to send a read of a key: it is told when the key changes from now on.
    fn reads(&self, client: u64, key: &[u8]);

    /// What is tracked.
    fn figures(&self) -> TrackingFigures;
}

/// What CLIENT LIST tells of the tracking of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientTracking {
    /// It does not track.
    #[default]
    Off,
    /// It does.
    On {
        /// In this way.
        way: TrackingWay,
        /// The connection that is told.
        redirect: Option<u64>,
        /// That one is gone.
        is_broken: bool,
    },
}

/// The tracking of one connection.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    pub(super) options: TrackingOptions,
    /// CLIENT CACHING came before this command.
    pub(super) has_caching: bool,
    /// The connection that is to be told is gone.
    pub(super) is_broken: bool,
    /// It was told that all keys have changed, and has asked for nothing since.
    pub(super) knows_all: bool,
}

impl Tracking {
    /// Whether the keys are tracked that the next command reads.
    pub(super) fn tracks_reads(&self) -> bool {
        match self.options.way {
            TrackingWay::Reads => true,
            TrackingWay::OptIn => self.has_caching,
            TrackingWay::OptOut => !self.has_caching,
            TrackingWay::Broadcast => false,
        }
    }

    pub(super) fn shown(&self) -> ClientTracking {
        ClientTracking::On {
            way: self.options.way,
            redirect: self.options.redirect,
            is_broken: self.is_broken,
        }
    }

    /// The words of TRACKINGINFO.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let (caching, options) = (self.has_caching, &self.options);
        let mut flags = vec!["on"];
        flags.extend(match options.way {
            TrackingWay::Reads => None,
            TrackingWay::OptIn => Some("optin"),
            TrackingWay::OptOut => Some("optout"),
            TrackingWay::Broadcast => Some("bcast"),
        });
        flags.extend(match options.way {
            TrackingWay::OptIn if caching => Some("caching-yes"),
            TrackingWay::OptOut if caching => Some("caching-no"),
            _ => None,
        });
        flags.extend((options.own == OwnChanges::Skipped).then_some("noloop"));
        flags.extend(self.is_broken.then_some("broken_redirect"));
        flags
    }
}

/// What CLIENT TRACKING asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TrackingAsked {
    On(TrackingOptions),
    Off,
}

/// Reads CLIENT TRACKING of a connection that tracks so. Whether a connection of a number is there
/// `exists` tells.
pub(super) fn read_tracking(
    args: Arguments<'_>,
    before: Option<&TrackingOptions>,
    exists: impl Fn(u64) -> bool,
) -> Result<TrackingAsked, Vec<u8>> {
    let fail = |text: &str| Err(format!("ERR {text}").into_bytes());
    let (mut redirect, mut prefixes) = (None, Vec::new());
    let [mut broadcast, mut opt_in, mut opt_out, mut no_loop] = [false; 4];
    let mut number = 3;
    while number < args.len() {
        let option = args.get(number);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let value = (number + 1 < args.len()).then(|| args.get(number + 1));
        match value {
            Some(value) if is("REDIRECT") => {
                if redirect.is_some() {
                    return fail("A client can only redirect to a single other client");
                }
                let Some(id) = read_integer(value) else {
                    return fail("value is not an integer or out of range");
                };
                let id = u64::try_from(id).ok().filter(|id| exists(*id));
                redirect = Some(id.ok_or(NO_SUCH_CLIENT)?);
                number += 1;
            }
            Some(value) if is("PREFIX") => {
                prefixes.push(value);
                number += 1;
            }
            _ if is("BCAST") => broadcast = true,
            _ if is("OPTIN") => opt_in = true,
            _ if is("OPTOUT") => opt_out = true,
            _ if is("NOLOOP") => no_loop = true,
            _ => return Err(SYNTAX.to_vec()),
        }
        number += 1;
    }
    match args.get(2) {
        word if word.eq_ignore_ascii_case(b"OFF") => return Ok(TrackingAsked::Off),
        word if word.eq_ignore_ascii_case(b"ON") => {}
        _ => return Err(SYNTAX.to_vec()),
    }
    if !broadcast && !prefixes.is_empty() {
        return fail("PREFIX option requires BCAST mode to be enabled");
    }
    if before.is_some_and(|it| (it.way == TrackingWay::Broadcast) != broadcast) {
        return fail(
            "You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        );
    }
    if broadcast && (opt_in || opt_out) {
        return fail("OPTIN and OPTOUT are not compatible with BCAST");
    }
    if opt_in && opt_out {
        return fail("You can't specify both OPTIN mode and OPTOUT mode");
    }
    let way_before = before.map(|it| it.way);
    if opt_in && way_before == Some(TrackingWay::OptOut)
        || opt_out && way_before == Some(TrackingWay::OptIn)
    {
        return fail(
            "You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        );
    }
    let none = BTreeSet::new();
    let held = before.map_or(&none, |it| &it.prefixes);
    let prefixes = match broadcast {
        true => with_prefixes(held, &prefixes)?,
        false => BTreeSet::new(),
    };
    Ok(TrackingAsked::On(TrackingOptions {
        way: match () {
            () if broadcast => TrackingWay::Broadcast,
            () if opt_in => TrackingWay::OptIn,
            () if opt_out => TrackingWay::OptOut,
            () => TrackingWay::Reads,
        },
        own: match no_loop {
            true => OwnChanges::Skipped,
            false => OwnChanges::Sent,
        },
        redirect,
        prefixes,
    }))
}

/// The prefixes of a connection that asks for more of them; for all keys if it names none.
fn with_prefixes(
    held: &BTreeSet<Box<[u8]>>,
    more: &[&[u8]],
) -> Result<BTreeSet<Box<[u8]>>, Vec<u8>> {
    let count = held.len() + more.len();
    if count > PREFIXES_MAX {
        return Err(format!(
            "ERR a connection has at most {PREFIXES_MAX} prefixes: it has {}, and {} more are \
             named",
            held.len(),
            more.len()
        )
        .into_bytes());
    }
    let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    let refuse = |prefix: &[u8], which: &str, other: &[u8]| {
        let (head, which) = (&b"ERR Prefix '"[..], which.as_bytes());
        let end = &b"'. Prefixes for a single client must not overlap."[..];
        Err([
            head,
            prefix,
            b"' overlaps with ",
            which,
            b" prefix '",
            other,
            end,
        ]
        .concat())
    };
    for (at, prefix) in more.iter().enumerate() {
        if let Some(other) = held.iter().find(|it| overlap(it, prefix)) {
            return refuse(prefix, "an existing", other);
        }
        if let Some(other) = more[at + 1..].iter().find(|it| overlap(it, prefix)) {
            return refuse(prefix, "another provided", other);
        }
    }
    let all = more.iter().copied().map(Box::from);
    let mut prefixes: BTreeSet<Box<[u8]>> = held.iter().cloned().chain(all).collect();
    if more.is_empty() {
        prefixes.insert(Box::default());
    }
    Ok(prefixes)
}

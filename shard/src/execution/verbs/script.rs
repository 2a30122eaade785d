//! A script: it reads keys of its shard as they are now, and stages what its commands change.
//!
//! Nothing of the store changes while a script runs. What it has staged becomes one item of APPLY,
//! which the shard runs at the same instant.

use std::cell::Cell;

use penstock_net::limits::{APPLY_KEYS_MAX, MANY_INSTRUCTIONS_MAX};
use penstock_net::refusal::Refusal;
use penstock_net::request::Verb;
use penstock_net::resp::{
    Eval, Evals, KeyRead, KeySeen, KeySource, MustWait, NO_SCRIPT, Protocol, QueuedEnd, Replies,
    SCRIPT_KEYS_MAX, Staged, Unread, for_each_named_key, protocol_of, run_queued,
};
use penstock_net::script::{ScriptAccess, ScriptName, ScriptReach, ScriptRequest};
use penstock_net::slot::slot_of;
use penstock_net::version::Version;
use penstock_storage::if_planted;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{Found, Store};

use crate::accounts::answers::Asked;
use crate::joint::Joint;
use crate::publisher::{Publisher, SCRIPT_STEPS_MAX};
use crate::scripts::{Called, Calls, Script, ScriptEnd, ScriptRun, Scripts, Spent};
use crate::setup::Setup;

use super::{Cold, Key, KeyHash, stored};

/// What a script is counted as: the APPLY that it becomes.
pub(crate) const ASKED: Asked = Asked::Verb(Verb::Apply);
/// Why a script is BUSY that publishes.
pub(crate) const NO_MESSAGES: &str = "nothing was executed: messages that subscribers have not \
    taken leave no room for those of this script";
/// A longer buffer for replies is given back.
const REPLY_KEPT_BYTES: usize = 64 << 10;

/// The key that a script has read with the newest change. The script may have been refused its
/// value, and its answer shows even that.
#[derive(Debug)]
pub(crate) struct NewestRead {
    /// The place of that change.
    pub(crate) lsn: Lsn,
    key: Vec<u8>,
    version: Option<Version>,
}

impl NewestRead {
    pub(crate) fn seen(&self) -> KeySeen<'_> {
        KeySeen {
            name: &self.key,
            version: self.version,
        }
    }
}

/// How a script has run.
pub(crate) struct RanScript {
    pub(crate) end: ScriptEnd,
    pub(crate) staged: Staged,
    /// Why it was stopped, if it was.
    pub(crate) wants: Option<Wants>,
    pub(crate) newest: Option<NewestRead>,
    /// The time of its first run, in unix microseconds.
    pub(crate) time_us: u64,
    /// What its scripts have taken in all runs of the item.
    pub(crate) spent: Spent,
    /// Whether the interpreter lets the item run again.
    pub(crate) may_run_again: bool,
    used: Vec<CellId>,
}

/// What a script needs before it can run to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wants {
    /// A key that is on the disk.
    Cold(Cold),
    /// The effects of a key that is armed and has expired.
    Fired { home: KeyHome, id: CellId },
    /// The shard of this slot: the script has named no key before.
    Slot(u16),
    /// A key that this shard does not have.
    Elsewhere(Refusal),
    /// The same, and it may run on keys of several shards.
    Shards,
}

/// What runs, and its bounds.
#[derive(Clone, Copy)]
pub(crate) struct Running<'a> {
    pub(crate) request: &'a ScriptRequest<'a>,
    pub(crate) reach: Reach<'a>,
    pub(crate) value_bytes_max: usize,
    /// Bytes of the reply, at most; of a command by itself it is that of a value.
    pub(crate) reply_bytes_max: usize,
    /// Where it publishes.
    pub(crate) publisher: Option<&'a dyn Publisher>,
    /// Slots that are claimed.
    pub(crate) joint: &'a Joint,
}

/// The buffer that one script after the other writes its reply into.
#[derive(Debug, Default)]
pub(crate) struct ReplyBuffer {
    bytes: Vec<u8>,
}

impl ReplyBuffer {
    /// The buffer, empty.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes
    }

    /// Keeps the buffer for the next script, unless it is long.
    pub(crate) fn keep(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() <= REPLY_KEPT_BYTES {
            self.bytes = bytes;
        }
    }
}

/// Which keys run together.
#[derive(Clone, Copy)]
pub(crate) enum Reach<'a> {
    /// Those of the slot of the first key: a node of a cluster.
    Slot,
    /// Those of the shard with this setup: a node alone.
    Shard(&'a Setup),
}

impl<'a> Reach<'a> {
    /// That of scripts on the shard with this setup.
    pub(crate) fn of(is_linked: bool, setup: &'a Setup) -> Self {
        match is_linked {
            true => Reach::Slot,
            false => Reach::Shard(setup),
        }
    }

    /// Judges a key of a slot that is used beside one of another slot.
    ///
    /// # Errors
    /// Why they do not run together.
    pub(crate) fn judge(self, first: u16, second: u16) -> Result<(), Refusal> {
        match self {
            _ if first == second => Ok(()),
            Reach::Slot => Err(Refusal::CrossSlot { first, second }),
            Reach::Shard(setup) if setup.owns(second) => Ok(()),
            Reach::Shard(_) => Err(Refusal::CrossShard { first, second }),
        }
    }

    /// Whether a script may run on keys of several shards.
    pub(crate) fn may_join(self, request: &ScriptRequest<'_>) -> bool {
        match self {
            Reach::Slot => false,
            Reach::Shard(setup) => {
                request.reach() == ScriptReach::Shards && setup.config().takes_several_shards
            }
        }
    }
}

/// Runs a script, or commands, on the store. The reply is appended to `reply`. Commands need no
/// interpreter.
pub(crate) fn run<P: Blocks>(
    scripts: Option<&mut dyn Scripts>,
    store: &Store<P>,
    hash: &KeyHash,
    running: Running<'_>,
    reply: &mut Vec<u8>,
) -> RanScript {
    let Running {
        request,
        reach,
        value_bytes_max,
        reply_bytes_max,
        publisher,
        joint,
    } = running;
    let now_us = store.data().clock().time_us();
    let time_us = request.time_us().unwrap_or(now_us).max(1);
    let mut keys = StoreKeys {
        store,
        hash,
        request,
        received: Received::new(publisher),
        slot: request.slot(),
        reach,
        joint,
        wants: None,
        newest: None,
        used: Vec::new(),
    };
    let bounds = Bounds {
        time_us,
        value_bytes_max,
        reply_bytes_max,
        spent: request.spent(),
    };
    let ended = run_on(scripts, request, bounds, &mut keys, reply);
    assert!(
        (ended.end == ScriptEnd::Stopped) == keys.wants.is_some(),
        "a script is stopped by what it wants, and by nothing else: {:?}, {:?}",
        ended.end,
        keys.wants
    );
    RanScript {
        may_run_again: ended.may_run_again,
        spent: request.spent().and(ended.spent),
        end: ended.end,
        staged: ended.staged,
        wants: keys.wants,
        newest: keys.newest,
        time_us,
        used: keys.used,
    }
}

/// The time and the bounds of a run.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// In unix microseconds.
    pub(crate) time_us: u64,
    pub(crate) value_bytes_max: usize,
    pub(crate) reply_bytes_max: usize,
    /// What its scripts have taken in earlier runs.
    pub(crate) spent: Spent,
}

/// How a run has ended.
pub(crate) struct Ended {
    pub(crate) end: ScriptEnd,
    pub(crate) staged: Staged,
    /// What its scripts have taken in this run.
    pub(crate) spent: Spent,
    /// Whether the interpreter lets the item run again.
    pub(crate) may_run_again: bool,
}

/// Runs a script, or commands, on these keys. The reply is appended to `reply`.
pub(crate) fn run_on(
    scripts: Option<&mut dyn Scripts>,
    request: &ScriptRequest<'_>,
    bounds: Bounds,
    keys: &mut dyn KeySource,
    reply: &mut Vec<u8>,
) -> Ended {
    let Bounds {
        time_us,
        value_bytes_max,
        reply_bytes_max,
        spent: spent_before,
    } = bounds;
    let mut staged = Staged::new(time_us, value_bytes_max, request.access());
    let mut interpreter = Interpreter {
        scripts,
        reply_bytes_max,
        spent: Cell::default(),
    };
    let script = request.script();
    let end = match script {
        ScriptName::Text(_) | ScriptName::Digest(_) => {
            let (declared, arguments): (Vec<&[u8]>, Vec<&[u8]>) =
                (request.keys().collect(), request.arguments().collect());
            let run = (script, &declared[..], &arguments[..]);
            let protocol = protocol_of(request);
            interpreter.run(run, protocol, (&mut staged, keys), reply)
        }
        ScriptName::Commands | ScriptName::Command => {
            let all = (&mut staged, keys);
            match run_queued(request, reply_bytes_max, all, &mut interpreter, reply) {
                Ok(QueuedEnd::Done) => ScriptEnd::Answered,
                Ok(QueuedEnd::Void) => ScriptEnd::Failed,
                Err(MustWait) => ScriptEnd::Stopped,
            }
        }
    };
    let spent = interpreter.spent.get();
    let all = spent_before.and(spent);
    let scripts = interpreter.scripts;
    Ended {
        may_run_again: scripts.is_none_or(|scripts| scripts.may_run_again(all)),
        spent,
        end,
        staged,
    }
}

/// Why the changes of a script are too many for one record, if they are.
pub(crate) fn too_much_of(staged: &Staged) -> Option<String> {
    let (changed, effects) = (staged.changed(), staged.effects());
    if changed > APPLY_KEYS_MAX {
        Some(format!(
            "ERR nothing was executed: {changed} keys would change together, and \
             {APPLY_KEYS_MAX} is the limit"
        ))
    } else if effects > MANY_INSTRUCTIONS_MAX {
        Some(format!(
            "ERR nothing was executed: the changes are {effects} effects on keys (a value with an \
             expiry is two), and {MANY_INSTRUCTIONS_MAX} is the limit"
        ))
    } else {
        None
    }
}

/// Why a script may not use a key that it has not declared, if so.
pub(crate) fn is_undeclared(request: &ScriptRequest<'_>, key: &[u8]) -> Option<&'static str> {
    let is_it =
        request.uses_declared_keys_alone() && request.keys().all(|declared| declared != key);
    is_it.then_some("NOPERM a script of a user with rights uses the keys that it names")
}

/// Who receives what a run publishes.
pub(crate) struct Received<'a> {
    publisher: Option<&'a dyn Publisher>,
    /// Steps of patterns that its messages have taken.
    steps: usize,
}

impl<'a> Received<'a> {
    pub(crate) fn new(publisher: Option<&'a dyn Publisher>) -> Self {
        Received {
            publisher,
            steps: 0,
        }
    }

    /// How many times a message to a channel would be received.
    pub(crate) fn by(
        &mut self,
        request: &ScriptRequest<'_>,
        channel: &[u8],
    ) -> Result<usize, String> {
        if request.uses_declared_keys_alone() {
            return Err("NOPERM a script of a user with rights publishes nothing".to_string());
        }
        let Some(publisher) = self.publisher else {
            return Ok(0);
        };
        if self.steps >= SCRIPT_STEPS_MAX {
            return Err(format!(
                "ERR the patterns that connections subscribe to take more than \
                 {SCRIPT_STEPS_MAX} steps over the channels that are published to here"
            ));
        }
        self.steps += publisher.steps(channel);
        Ok(publisher.receivers(channel))
    }
}

/// The keys that a script or its commands name, and those of them that are on the disk.
pub(crate) fn named_keys<P: Blocks>(
    store: &Store<P>,
    hash: &KeyHash,
    request: &ScriptRequest<'_>,
) -> (Vec<KeyHome>, Vec<Cold>) {
    let (mut homes, mut colds) = (Vec::new(), Vec::new());
    for_each_named_key(request, |key| {
        if homes.len() == SCRIPT_KEYS_MAX {
            return;
        }
        let home = hash.home_of(key);
        homes.push(home);
        let KeyHome { slot, hash } = home;
        if let Found::Cold(place) = store.keys().find(slot, hash, key) {
            let version = None;
            colds.push(Cold {
                slot,
                hash,
                place,
                version,
            });
        }
    });
    (homes, colds)
}

impl RanScript {
    /// The cells of the keys that it has read and found.
    pub(crate) fn used(&self) -> &[CellId] {
        &self.used
    }

    /// Notes that the keys were used: what a script reads stays in memory.
    pub(crate) fn touch<P: Blocks>(&self, store: &mut Store<P>) {
        for id in &self.used {
            store.keys_mut().touch(*id);
        }
    }
}

/// The interpreter, for one item.
struct Interpreter<'a> {
    scripts: Option<&'a mut dyn Scripts>,
    reply_bytes_max: usize,
    /// What its scripts have taken so far: the scripts of one EXEC share one budget.
    spent: Cell<Spent>,
}

impl Interpreter<'_> {
    /// Runs a script with these keys and arguments on what is staged.
    fn run(
        &mut self,
        (script, keys, arguments): (ScriptName<'_>, &[&[u8]], &[&[u8]]),
        protocol: Protocol,
        (staged, source): (&mut Staged, &mut dyn KeySource),
        reply: &mut Vec<u8>,
    ) -> ScriptEnd {
        let script = match script {
            ScriptName::Text(text) => Script::Text(text),
            ScriptName::Digest(digest) => Script::Digest(digest),
            ScriptName::Commands | ScriptName::Command => unreachable!("they are no script"),
        };
        let Some(scripts) = &mut self.scripts else {
            return ScriptEnd::Unknown;
        };
        let run = ScriptRun {
            script,
            keys,
            arguments,
            protocol,
            reply_bytes_max: self.reply_bytes_max,
            // As in Redis: each run has the same numbers.
            seed: 0,
            spent: &self.spent,
        };
        let mut calls = CallsOfStore {
            staged,
            source,
            is_stopped: false,
        };
        let end = scripts.run(&run, &mut calls, reply);
        if_planted!(
            Bug::ScriptKeepsFailed,
            end == ScriptEnd::Failed,
            return ScriptEnd::Answered
        );
        end
    }
}

impl Evals for Interpreter<'_> {
    fn eval(
        &mut self,
        eval: &Eval<'_>,
        protocol: Protocol,
        staged: &mut Staged,
        source: &mut dyn KeySource,
        bytes_max: usize,
        reply: &mut Vec<u8>,
    ) -> Result<bool, MustWait> {
        let (keys, arguments): (Vec<&[u8]>, Vec<&[u8]>) =
            (eval.keys().collect(), eval.arguments().collect());
        let before = staged.set_access(eval.access);
        let run = (eval.script, &keys[..], &arguments[..]);
        self.reply_bytes_max = bytes_max;
        let end = self.run(run, protocol, (staged, source), reply);
        staged.set_access(before);
        match end {
            ScriptEnd::Answered => Ok(true),
            ScriptEnd::Failed => Ok(false),
            ScriptEnd::Unknown => {
                Replies::new(reply, protocol).error(NO_SCRIPT);
                Ok(false)
            }
            ScriptEnd::Stopped => Err(MustWait),
        }
    }
}

/// What the commands of a script reach.
struct CallsOfStore<'a> {
    staged: &'a mut Staged,
    source: &'a mut dyn KeySource,
    /// A call has found that a key must be brought first: the run is over, whatever it does since.
    is_stopped: bool,
}

impl Calls for CallsOfStore<'_> {
    fn call(&mut self, arguments: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) -> Called {
        self.is_stopped |= self.is_stopped
            || self.staged.call(arguments, protocol, self.source, reply) == Err(MustWait);
        match self.is_stopped {
            true => Called::Missing,
            false => Called::Answered,
        }
    }

    fn declare_read_only(&mut self) {
        self.staged.set_access(ScriptAccess::Reads);
    }
}

/// The keys of the store, for one script.
struct StoreKeys<'s, P: Blocks> {
    store: &'s Store<P>,
    hash: &'s KeyHash,
    request: &'s ScriptRequest<'s>,
    received: Received<'s>,
    slot: Option<u16>,
    reach: Reach<'s>,
    joint: &'s Joint,
    wants: Option<Wants>,
    newest: Option<NewestRead>,
    used: Vec<CellId>,
}

impl<P: Blocks> KeySource for StoreKeys<'_, P> {
    fn read(&mut self, key: &[u8]) -> Result<Option<KeyRead<'_>>, Unread> {
        if let Some(text) = is_undeclared(self.request, key) {
            return Err(Unread::Refused(text.to_string()));
        }
        let slot = slot_of(key);
        let Some(first) = self.slot else {
            self.wants = Some(Wants::Slot(slot));
            return Err(Unread::Missing);
        };
        if let Err(refusal) = self.reach.judge(first, slot) {
            if self.reach.may_join(self.request) {
                self.wants = Some(Wants::Shards);
                return Err(Unread::Missing);
            }
            return Err(match self.request.script() {
                // The call fails, which the script may catch.
                ScriptName::Text(_) | ScriptName::Digest(_) => {
                    Unread::Refused(format!("CROSSSLOT {refusal}"))
                }
                ScriptName::Commands | ScriptName::Command => {
                    self.wants = Some(Wants::Elsewhere(refusal));
                    Unread::Missing
                }
            });
        }
        if let Some(claim) = self.joint.claim_of(slot).filter(|_| self.joint.holds_any()) {
            self.wants = Some(Wants::Cold(claim));
            return Err(Unread::Missing);
        }
        let hash = self.hash.of(key);
        let store = self.store;
        let found = store.keys().find(slot, hash, key);
        if let Found::Cold(place) = found {
            self.wants = Some(Wants::Cold(Cold {
                slot,
                hash,
                place,
                version: None,
            }));
            return Err(Unread::Missing);
        }
        let it = Key::new(store, hash, key, found);
        if let Some(id) = it.unfired_cell(store) {
            let home = KeyHome { slot, hash };
            self.wants = Some(Wants::Fired { home, id });
            return Err(Unread::Missing);
        }
        let value = it.value_cell();
        if self
            .newest
            .as_ref()
            .is_none_or(|newest| it.lsn > newest.lsn)
        {
            self.newest = Some(NewestRead {
                lsn: it.lsn,
                key: key.to_vec(),
                version: value.map(|_| it.version),
            });
        }
        Ok(value.map(|id| {
            self.used.push(id);
            KeyRead {
                version: it.version,
                value: store.keys().cell(id).value(),
                has_members: it.has_members() && !is_planted(Bug::MembersReadPlain),
                expiry_ms: it.at.expiry_ms,
                is_armed: store.keys().effects(id).is_some(),
            }
        }))
    }

    fn may_have_changed(&mut self, key: &[u8], since: Version) -> bool {
        let home = self.hash.home_of(key);
        let cell = match self.store.keys().find(home.slot, home.hash, key) {
            Found::Cached(id) => Some(id),
            Found::Absent => None,
            // It was read.
            Found::Cold(_) => return true,
        };
        let data = self.store.data();
        data.may_have_changed(home, cell, stored(since))
    }

    fn receivers(&mut self, channel: &[u8]) -> Result<usize, String> {
        self.received.by(self.request, channel)
    }
}

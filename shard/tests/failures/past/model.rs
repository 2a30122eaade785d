//! The past of keys against a model: chance writes, reads, starts and changes of what is kept.

use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::request::{Condition, Expiry, Version};
use penstock_net::status::Status;

use super::{KEYS, Shop, kept, text};
use crate::random::Random;
use crate::server::Reply;

#[derive(Clone, Debug)]
struct Written {
    version: Version,
    time_ms: u64,
    /// The number in the value and its length; `None` is a deletion.
    value: Option<(u64, usize)>,
    expiry_ms: u64,
}

/// What must be kept, by the settings that were last said to keep more.
struct Model {
    keys: Vec<Vec<Written>>,
    settings: Settings,
    /// How many versions each key had when its history began.
    begun: Vec<usize>,
    begun_ms: u64,
}

impl Model {
    fn about(&self, key: usize, now_ms: u64) -> String {
        let versions = &self.keys[key];
        format!(
            "{} versions, {} when it began at {}; at {now_ms} with {:?}: {:?}",
            versions.len(),
            self.begun[key],
            self.begun_ms,
            self.settings,
            &versions[versions.len().saturating_sub(8)..]
        )
    }

    /// Whether the version at this place of a key's must be kept at `now_ms`.
    fn must_keep(&self, key: usize, place: usize, now_ms: u64) -> bool {
        let versions = &self.keys[key];
        let Some(newer) = versions.get(place + 1) else {
            let written = &versions[place];
            let ended = written.expiry_ms != 0 && written.expiry_ms <= self.begun_ms;
            let was_gone = written.value.is_none() || ended;
            return (self.settings.versions > 0 || self.settings.retention_ms > 0)
                && !(place + 1 == self.begun[key] && was_gone);
        };
        let rank = versions.len() - 1 - place;
        let end_ms = newer.time_ms;
        let settings = &self.settings;
        // What was gone already when versions began to be kept is not.
        let expiry_ms = versions[place].expiry_ms;
        let was_gone =
            versions[place].value.is_none() || (expiry_ms != 0 && expiry_ms <= self.begun_ms);
        // A deletion goes with the last of what was before it, and may have gone before `newer`
        // came.
        let went_before = versions[place].value.is_none()
            && settings.retention_ms > 0
            && place.checked_sub(1).is_none_or(|older| {
                let older = &versions[older];
                let ended_ms = versions[place].time_ms;
                older.value.is_none() || ended_ms + settings.retention_ms <= newer.time_ms
            });
        (settings.versions > 0 || settings.retention_ms > 0)
            && place + 1 >= self.begun[key]
            && !went_before
            // As long after it expired as it would have been kept, it may have gone before `newer`
            // came.
            && (expiry_ms == 0
                || settings.retention_ms == 0
                || expiry_ms + settings.retention_ms > newer.time_ms)
            && !(place + 1 == self.begun[key] && was_gone)
            && (settings.versions == 0 || rank <= usize::from(settings.versions))
            && (settings.retention_ms == 0 || end_ms + settings.retention_ms > now_ms)
    }
}

/// A value of the number and so many bytes.
fn number_of(value: &[u8]) -> Option<(u64, usize)> {
    let number = value
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))?;
    value[8..]
        .iter()
        .all(|&byte| byte == 7)
        .then_some((number, value.len()))
}

fn name(key: usize) -> Vec<u8> {
    format!("{{p}}{key}").into_bytes()
}

/// Whether that may be told as the time of a version; 0, if it need not be known.
fn is_time(written: &Written, is_known: bool, wait_ms: u64) -> bool {
    let is_not_known = wait_ms == 0 && !is_known;
    is_not_known || written.time_ms == 0 || wait_ms == written.time_ms
}

fn judge(model: &Model, key: usize, at: At, reply: &Reply, now_ms: u64) -> Result<(), String> {
    let versions = &model.keys[key];
    let place = versions.iter().rposition(|written| match at {
        At::TimeMs(ms) => written.time_ms <= ms,
        At::Version(version) => written.version <= version,
    });
    let was = place.map(|place| &versions[place]);
    let is_gone = was.is_none_or(|was| {
        let is_over = match at {
            At::TimeMs(ms) => was.expiry_ms != 0 && was.expiry_ms <= ms,
            At::Version(_) => false,
        };
        was.value.is_none() || is_over
    });
    match (reply.status, was) {
        (Status::Ok, Some(was)) if !is_gone => {
            if was.value != number_of(&reply.value) || reply.version != was.version {
                return Err(format!("version {:?} instead of {was:?}", reply.version));
            }
            let shown = reply.expiry.ok_or("no time was told")?;
            let is_known = place.is_some_and(|place| place >= model.begun[key]);
            let is_time = is_time(was, is_known, shown.time_ms);
            if shown.expiry_ms != was.expiry_ms || !is_time {
                return Err(format!("{shown:?} instead of {was:?}"));
            }
            Ok(())
        }
        (Status::NotFound, _) if is_gone => Ok(()),
        (Status::NotKept, _) => match place {
            Some(place) if model.must_keep(key, place, now_ms) => {
                let in_time = match at {
                    At::TimeMs(ms) => ms >= model.begun_ms,
                    At::Version(_) => true,
                };
                // With a retention a deletion goes when nothing before it is kept.
                let is_gone_deletion = place + 1 == versions.len()
                    && versions[place].value.is_none()
                    && (place == 0 || !model.must_keep(key, place - 1, now_ms));
                // What expired longer ago than is kept may be gone as a whole.
                let settings = &model.settings;
                let expiry_ms = versions[place].expiry_ms;
                let is_gone_value = expiry_ms != 0
                    && settings.retention_ms != 0
                    && expiry_ms + settings.retention_ms <= now_ms;
                match in_time && !is_gone_deletion && !is_gone_value {
                    true => Err(format!("{:?} must be kept: {}", was, text(reply))),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        },
        _ => Err(format!("{} where {was:?} was", text(reply))),
    }
}

/// One run: what the client did, and what it was told.
struct Run {
    random: Random,
    shop: Shop,
    model: Model,
    /// The number in the value that was written last.
    value: u64,
    /// Reads that found a version, none, or one that is not kept; long histories; starts behind a
    /// snapshot.
    met: [usize; 5],
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut random = Random::new(seed + 1);
        let shop = Shop::with_snapshots([0, 1, 60_000][random.below(3)]);
        let model = Model {
            keys: vec![Vec::new(); KEYS],
            settings: Settings::default(),
            begun: vec![0; KEYS],
            begun_ms: u64::MAX,
        };
        Run {
            random,
            shop,
            model,
            value: 0,
            met: [0; 5],
        }
    }

    fn step(&mut self, step: usize, key: usize) -> Result<(), String> {
        match self.random.below(100) {
            _ if step == 20 => self.set_keyspace(),
            0..2 => self.set_keyspace(),
            2..4 => return self.start_again(),
            4..10 => {
                let ms = self.random.next() % 400;
                self.shop.pass(ms);
            }
            10..60 => return self.write(key),
            60..90 => return self.read(key),
            _ => return self.read_history(key),
        }
        Ok(())
    }

    /// What is kept by number is there behind a start, too.
    fn start_again(&mut self) -> Result<(), String> {
        let settings = &self.model.settings;
        let by_count = settings.versions > 0 && settings.retention_ms == 0;
        let all = |shop: &mut Shop| -> Vec<Vec<Version>> {
            let keys = (0..KEYS).filter(|_| by_count);
            keys.map(|key| {
                let mut history = shop.history(&name(key), 0, 300);
                history.versions.pop_if(|first| first.is_deletion);
                history.versions.iter().map(|kept| kept.version).collect()
            })
            .collect()
        };
        let before = all(&mut self.shop);
        let back_ms = [0, 0, 300, 3_000][self.random.below(4)];
        self.shop.restart_earlier(back_ms);
        let after = all(&mut self.shop);
        // A log may also tell of the deletion that was there when versions began to be kept.
        let mut keys = before.iter().zip(&after);
        match keys.all(|(before, after)| after.starts_with(before)) {
            true => Ok(()),
            false => Err(format!("{before:?} before a start and {after:?} behind it")),
        }
    }

    /// Sets the key, with an expiry or none, or deletes it.
    fn write(&mut self, key: usize) -> Result<(), String> {
        let Run {
            random,
            shop,
            model,
            value,
            ..
        } = self;
        *value += 1;
        let mut bytes = vec![7; 8 + random.below(900)];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        let keeps = model.settings != Settings::default();
        let is_set = random.below(6) > 0;
        let reply = match is_set {
            true => {
                let expiry = match random.below(5) {
                    // Before, nobody would tell the model of it.
                    0 if keeps => Expiry::In(1 + random.next() % 300),
                    _ => Expiry::Never,
                };
                shop.set(&name(key), &bytes, expiry)
            }
            false => shop.ask(|b, o| b.del(o, &name(key), Condition::Always)),
        };
        if reply.status == Status::NotFound && !is_set {
            return Ok(());
        }
        if reply.status != Status::Ok {
            return Err(text(&reply));
        }
        let mut written = Written {
            version: reply.version,
            time_ms: 0,
            value: number_of(&bytes).filter(|_| is_set),
            expiry_ms: 0,
        };
        if keeps {
            let newest = shop.history(&name(key), 0, 1).versions;
            match newest.first() {
                Some(first) if first.version == written.version => {
                    (written.time_ms, written.expiry_ms) = (first.time_ms, first.expiry_ms);
                }
                _ => return Err(format!("{written:?} is not the newest of {newest:?}")),
            }
        }
        model.keys[key].push(written);
        Ok(())
    }

    /// Reads the key as it was at the time of one of its versions, or about then.
    fn read(&mut self, key: usize) -> Result<(), String> {
        let versions = &self.model.keys[key];
        if versions.is_empty() {
            return Ok(());
        }
        let back = self.random.below(14).min(versions.len() - 1);
        let written = &versions[versions.len() - 1 - back];
        let at = match self.random.below(2) {
            0 if written.time_ms > 0 => {
                At::TimeMs((written.time_ms + self.random.next() % 8).saturating_sub(4))
            }
            _ => At::Version(written.version),
        };
        // A time before versions were kept is not known to the model.
        if matches!(at, At::TimeMs(ms) if ms < self.model.begun_ms) {
            return Ok(());
        }
        let reply = self.shop.get_at(&name(key), at);
        let now_ms = self.shop.latest_ms();
        if let Err(wrong) = judge(&self.model, key, at, &reply, now_ms) {
            let shown = self.shop.history(&name(key), 0, 9).versions;
            let about = self.model.about(key, now_ms);
            return Err(format!("{at:?}: {wrong}; {about}; {shown:?}"));
        }
        match reply.status {
            Status::Ok => self.met[0] += 1,
            Status::NotFound => self.met[1] += 1,
            _ => self.met[2] += 1,
        }
        Ok(())
    }

    /// Reads all versions of the key, a few at a time.
    fn read_history(&mut self, key: usize) -> Result<(), String> {
        if self.model.settings == Settings::default() {
            return Ok(());
        }
        let mut shown = Vec::new();
        let mut before = 0;
        loop {
            let history = self.shop.history(&name(key), before, 3);
            shown.extend(history.versions);
            let Some(last) = shown.last().filter(|_| history.has_more) else {
                break;
            };
            before = last.version.sequence;
        }
        let now_ms = self.shop.latest_ms();
        let model = &self.model;
        let versions = &model.keys[key];
        let places = versions.iter().enumerate().rev();
        for (shown, (place, written)) in shown.iter().zip(places) {
            let is_known = place >= model.begun[key];
            if shown.version != written.version
                || shown.is_deletion != written.value.is_none()
                || !is_time(written, is_known, shown.time_ms)
            {
                let about = model.about(key, now_ms);
                return Err(format!("{shown:?} instead of {written:?} in {about}"));
            }
        }
        let must = (0..versions.len())
            .rev()
            .skip(shown.len())
            .any(|place| place + 1 < versions.len() && model.must_keep(key, place, now_ms));
        if shown.len() > versions.len() || must {
            return Err(format!("{shown:?} of {}", model.about(key, now_ms)));
        }
        self.met[3] += usize::from(shown.len() > 2);
        Ok(())
    }

    /// Says anew what is kept.
    fn set_keyspace(&mut self) {
        let (versions, retention_ms) = match self.random.below(5) {
            0 => (1, 0),
            1 => (4, 0),
            2 => (3, 700),
            3 => (0, 900),
            _ => (200, 0),
        };
        let Run { shop, model, .. } = self;
        let settings = kept(versions, retention_ms);
        let limits = |settings: &Settings| {
            let count = match settings.versions {
                0 => 256,
                count => u64::from(count),
            };
            let time_ms = match settings.retention_ms {
                0 => u64::MAX,
                ms => ms,
            };
            (count, time_ms)
        };
        assert_eq!(
            shop.keyspace(b"{p}", Action::Set(settings)).status,
            Status::Ok
        );
        let (before, now) = (limits(&model.settings), limits(&settings));
        if model.settings == Settings::default() || now.0 > before.0 || now.1 > before.1 {
            model.begun = model.keys.iter().map(Vec::len).collect();
            model.begun_ms = shop.server.time_ms();
        }
        model.settings = settings;
    }
}

fn run(seed: u64) -> [usize; 5] {
    let mut run = Run::new(seed);
    let steps = if run.shop.snapshot_bytes > 0 {
        1_000
    } else {
        700
    };
    for step in 0..steps {
        let key = run.random.below(KEYS);
        if let Err(wrong) = run.step(step, key) {
            panic!("seed {seed}, step {step}, key {key}: {wrong}");
        }
    }
    let Run { shop, mut met, .. } = run;
    assert_eq!(shop.server.damaged(), 0, "seed {seed}: nothing is damaged");
    met[4] = shop.snapshots_used;
    met
}

#[test]
fn the_past_is_as_the_model_has_it_after_cleaning_and_starts() {
    let mut met = [0; 5];
    let seeds = std::env::var("PENSTOCK_PAST_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(24);
    for seed in 0..seeds {
        for (sum, count) in met.iter_mut().zip(run(seed)) {
            *sum += count;
        }
    }
    assert!(met.iter().all(|&count| count > 50), "{met:?}");
}

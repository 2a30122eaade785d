//! The table: what each write command does, in steps of the rule, and the other ways to say it.

use std::fmt;

use penstock_client::{Ask, Condition, Expiry, FieldType, Instruction, Operation, Transaction};
use penstock_net::apply::Apply;

use super::bench::{Bench, ENDS_MS, NOW_MS, Start};

/// When a key ends that a row gives 50 seconds.
const LATER_MS: u64 = NOW_MS + 50_000;

/// What a write does to a key.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Another value; all else stays. Of a missing key a put.
    Edit(&'static str),
    /// The value begins anew.
    Put(&'static str),
    /// The key ends then, if it is there; 0 is never.
    Ends(u64),
    Delete,
}

use Step::{Delete, Edit, Ends, Put};

/// A key by the rule.
#[derive(Clone, Debug)]
pub struct Held {
    pub value: Option<Vec<u8>>,
    pub expiry_ms: Option<u64>,
    pub is_armed: bool,
    /// How often its effects have run.
    pub fired: u64,
    /// Its keyspace has given it its expiry, since the test began.
    pub is_lent_a_life: bool,
}

impl Held {
    pub fn of(start: Start) -> Held {
        Held {
            value: start.exists().then(|| b"5".to_vec()),
            expiry_ms: start.expiry_ms(),
            is_armed: start.is_armed(),
            fired: 0,
            is_lent_a_life: false,
        }
    }

    /// The rule.
    pub fn does(&mut self, step: Step, lifetime_ms: Option<u64>) {
        match step {
            Edit(value) if self.value.is_some() => self.value = Some(value.into()),
            Edit(value) | Put(value) => {
                self.value = Some(value.into());
                self.expiry_ms = lifetime_ms.map(|ms| NOW_MS + ms);
                self.is_armed = false;
                self.is_lent_a_life = lifetime_ms.is_some();
            }
            Ends(_) if self.value.is_none() => {}
            Ends(ms) if ms > 0 && ms <= NOW_MS => {
                self.fired += u64::from(self.is_armed);
                self.gone();
            }
            Ends(ms) => {
                self.expiry_ms = Some(ms).filter(|ms| *ms > 0);
                self.is_armed &= ms > 0;
                self.is_lent_a_life = false;
            }
            Delete => self.gone(),
        }
    }

    fn gone(&mut self) {
        (self.value, self.expiry_ms, self.is_armed) = (None, None, false);
        self.is_lent_a_life = false;
    }

    fn is_there(&self) -> bool {
        self.value.is_some()
    }

    fn is(&self, value: &str) -> bool {
        self.value.as_deref() == Some(value.as_bytes())
    }
}

/// A transaction of the Rust client that writes a key.
pub type Transact = fn(&mut Transaction<&mut Bench>, &[u8]);

/// How a key is written.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// By a command of Redis.
    Alone(&'a str),
    /// By commands of Redis behind MULTI.
    Multi(&'a [&'a str]),
    /// By a script that runs commands of Redis.
    Script(&'a [&'a str]),
    /// By KV.APPLY, whose words these are.
    Apply(&'a str),
    /// By an APPLY.
    NativeApply(fn(&mut Apply, &[u8])),
    /// By SET.
    Set(&'a str, Expiry),
    /// By DEL.
    Del,
    /// By UPDATE_IF.
    UpdateIf(&'a [Instruction], Expiry),
    /// By a transaction of the Rust client.
    Transaction(Transact),
}

impl fmt::Debug for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Alone(line) => write!(f, "{line}"),
            Way::Multi(lines) => write!(f, "MULTI {lines:?}"),
            Way::Script(lines) => write!(f, "EVAL {lines:?}"),
            Way::Apply(words) => write!(f, "KV.APPLY {words}"),
            Way::NativeApply(_) => write!(f, "APPLY"),
            Way::Set(value, expiry) => write!(f, "SET {value} {expiry:?}"),
            Way::Del => write!(f, "DEL"),
            Way::UpdateIf(program, expiry) => write!(f, "UPDATE_IF {program:?} {expiry:?}"),
            Way::Transaction(_) => write!(f, "a transaction"),
        }
    }
}

impl Way<'_> {
    /// Writes the key; tells the reply to EXEC or to the command.
    pub fn write(&self, bench: &mut Bench, start: Start) -> String {
        let key = start.key().as_bytes();
        let ask = match *self {
            Way::Alone(line) => return bench.command(line),
            Way::Multi(lines) => {
                assert_eq!(bench.command("MULTI"), "+OK\\r\\n");
                for line in lines {
                    assert_eq!(bench.command(line), "+QUEUED\\r\\n", "{line}");
                }
                return bench.command("EXEC");
            }
            Way::Script(lines) => {
                // A blank within a word, which is a tilde there, is another byte here.
                let lines = lines
                    .iter()
                    .map(|line| line.replace('~', "\u{1}").replace(' ', "~"));
                let lines: Vec<String> = lines.collect();
                return bench.command(&format!("EVAL all 1 K {}", lines.join(" ")));
            }
            Way::Apply(words) => return bench.command(&format!("KV.APPLY K {words}")),
            Way::Transaction(write) => {
                let mut own = bench.transaction();
                let _ = own.get(key).wait().expect("read");
                write(&mut own, key);
                return format!("{:?}", own.commit().wait().expect("committed").is_some());
            }
            Way::NativeApply(write) => {
                let mut apply = Apply::new();
                write(&mut apply, key);
                return format!("{:?}", bench.answer(|b, o| b.apply(o, &apply)).status);
            }
            Way::Set(value, expiry) => Ask::Set {
                key,
                value: value.as_bytes(),
                when: Condition::Always.into(),
                expiry,
            },
            Way::Del => Ask::Del {
                key,
                when: Condition::Always.into(),
            },
            Way::UpdateIf(instructions, expiry) => Ask::UpdateIf {
                key,
                second_key: None,
                instructions,
                start: None,
                expiry,
            },
        };
        format!("{:?}", bench.answer(|b, o| ask.write(b, o)).status)
    }
}

/// One row of the table.
pub struct Row {
    /// The command: `K` is the key, `''` no byte, a tilde a blank within a word.
    pub words: &'static str,
    /// What it does to a key that is so.
    pub does: fn(&Held) -> Vec<Step>,
    /// Other ways to say it to a key that is there.
    pub ways: &'static [Way<'static>],
}

impl Row {
    pub fn name(&self) -> &'static str {
        self.words.split(' ').next().expect("a word")
    }

    pub fn goes_behind_multi(&self) -> bool {
        !self.name().starts_with("KV.")
    }

    /// Whether what it does, or answers, depends on the expiry that is there.
    pub fn asks_expiry(&self) -> bool {
        let options = [" NX", " XX", " GT", " LT"];
        let is_asked = options.iter().any(|it| self.words.ends_with(it));
        self.name().contains("EXPIRE") && is_asked
            || self.name() == "PERSIST"
            || self.words.contains(" ENX")
    }

    /// Whether it is a change of one key: of several, each is a record of its own.
    pub fn is_of_one_key(&self) -> bool {
        !self.words.contains("{e}other")
    }
}

const fn row(words: &'static str, does: fn(&Held) -> Vec<Step>) -> Row {
    Row {
        words,
        does,
        ways: &[],
    }
}

/// Steps of a key that is there.
fn if_there(held: &Held, steps: &[Step]) -> Vec<Step> {
    match held.is_there() {
        true => steps.to_vec(),
        false => Vec::new(),
    }
}

fn when(holds: bool, steps: &[Step]) -> Vec<Step> {
    match holds {
        true => steps.to_vec(),
        false => Vec::new(),
    }
}

/// What a sum makes of the value: rows are run from a missing key, from 5, and behind other rows.
fn sum(held: &Held, by: i64) -> Vec<Step> {
    let text = held.value.as_deref().unwrap_or(b"0");
    let number = str::from_utf8(text)
        .ok()
        .and_then(|it| it.parse::<i64>().ok());
    // What the server takes for no number is none: `+5`, `05`.
    let number = number.filter(|number| number.to_string().as_bytes() == text);
    match number.and_then(|number| number.checked_add(by)) {
        Some(sum) => vec![Edit(kept(sum.to_string()))],
        None => Vec::new(),
    }
}

/// A text for the rest of the test.
fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn text_of(held: &Held) -> String {
    let value = held.value.clone().unwrap_or_default();
    String::from_utf8(value).expect("rows write text")
}

/// Bytes over those that are there.
fn over(held: &Held, at: usize, bytes: &str) -> Vec<Step> {
    let mut value = text_of(held).into_bytes();
    value.resize(value.len().max(at + bytes.len()), 0);
    value[at..at + bytes.len()].copy_from_slice(bytes.as_bytes());
    vec![Edit(kept(String::from_utf8(value).expect("text")))]
}

fn add_then(held: &Held, by: i64, behind: &[Step]) -> Vec<Step> {
    let mut steps = sum(held, by);
    if !steps.is_empty() {
        steps.extend(behind);
    }
    steps
}

/// The same of INCRBYFLOAT: what it adds here has few digits.
fn sum_with_a_point(held: &Held, by: f64) -> Vec<Step> {
    let text = held.value.as_deref().unwrap_or(b"0");
    let number = str::from_utf8(text)
        .ok()
        .and_then(|it| it.parse::<f64>().ok());
    let sum = number.map(|number| vec![Edit(kept((number + by).to_string()))]);
    sum.unwrap_or_default()
}

/// A bit that becomes another one.
fn with_bit(held: &Held, place: usize, bit: bool) -> Vec<Step> {
    let before = text_of(held).into_bytes();
    let mut value = before.clone();
    value.resize(value.len().max(place / 8 + 1), 0);
    let mask = 0x80 >> (place % 8);
    let byte = &mut value[place / 8];
    *byte = if bit { *byte | mask } else { *byte & !mask };
    let text = kept(String::from_utf8(value.clone()).expect("text"));
    when(value != before || !held.is_there(), &[Edit(text)])
}

/// A number that is there, or 0 of a missing key.
fn number(held: &Held) -> Option<i64> {
    let text = held.value.as_deref().unwrap_or(b"0");
    let number = str::from_utf8(text).ok()?.parse::<i64>().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

/// The digit that is there, and one.
const ONE_MORE: [Instruction; 1] = [Instruction {
    operation: Operation::Add,
    field_type: FieldType::U8,
    key: 0,
    reason: 0,
    offset: 0,
    immediate: 1,
}];
/// 50 seconds.
const IN: Expiry = Expiry::In(50_000);

pub const ROWS: &[Row] = &[
    row("APPEND K x", |it| vec![Edit(kept(text_of(it) + "x"))]),
    row("APPEND K ''", |it| when(!it.is_there(), &[Put("")])),
    Row {
        words: "SETRANGE K 0 7",
        does: |it| over(it, 0, "7"),
        ways: &[
            Way::Apply("k1~replace 7"),
            Way::NativeApply(|apply, key| {
                let key = apply.key(key);
                apply.replace(key, b"7");
            }),
            Way::Set("7", Expiry::Keep),
            Way::Transaction(|own, key| {
                own.set_with(key, b"7", Expiry::Keep).expect("taken");
            }),
        ],
    },
    row("SETRANGE K 3 zz", |it| over(it, 3, "zz")),
    row("SETRANGE K 0 ''", |_| Vec::new()),
    Row {
        words: "INCR K",
        does: |it| sum(it, 1),
        ways: &[
            Way::Apply("k1.decimal~+=~1"),
            Way::UpdateIf(&ONE_MORE, Expiry::Keep),
            Way::Transaction(|own, key| {
                let key = own.key(key).expect("named");
                own.then(key.decimal().increase(1u64)).expect("taken");
            }),
            Way::Transaction(|own, key| {
                own.set_with(key, b"6", Expiry::Keep).expect("taken");
            }),
        ],
    },
    row("DECR K", |it| sum(it, -1)),
    row("INCRBY K 30", |it| sum(it, 30)),
    row("DECRBY K 70", |it| sum(it, -70)),
    row("INCREX K", |it| sum(it, 1)),
    row("INCREX K BYINT 3 LBOUND -9 UBOUND 8", |it| {
        when(
            number(it).is_some_and(|it| (-9..=8).contains(&(it + 3))),
            &sum(it, 3),
        )
    }),
    row(
        "INCREX K BYINT 9 LBOUND -7 UBOUND 7 SATURATE",
        |it| match number(it) {
            Some(it) => vec![Edit(kept((it + 9).clamp(-7, 7).to_string()))],
            None => Vec::new(),
        },
    ),
    Row {
        words: "INCREX K EX 50",
        does: |it| add_then(it, 1, &[Ends(LATER_MS)]),
        ways: &[
            Way::Apply("k1.decimal~+=~1 k1~expires~in~50s"),
            Way::UpdateIf(&ONE_MORE, IN),
        ],
    },
    row("INCREX K EX 50 ENX", |it| match it.expiry_ms {
        Some(_) if it.is_there() => sum(it, 1),
        _ => add_then(it, 1, &[Ends(LATER_MS)]),
    }),
    row("INCREX K PXAT 1", |it| add_then(it, 1, &[Ends(1)])),
    row("INCREX K PERSIST", |it| add_then(it, 1, &[Ends(0)])),
    Row {
        words: "SET K 7",
        does: |_| vec![Put("7")],
        ways: &[
            Way::Apply("k1~put 7"),
            Way::Set("7", Expiry::Never),
            Way::Transaction(|own, key| own.set(key, b"7").expect("taken")),
        ],
    },
    row("SET K 7 NX", |it| when(!it.is_there(), &[Put("7")])),
    row("SET K 7 XX", |it| if_there(it, &[Put("7")])),
    Row {
        words: "SET K 7 EX 50",
        does: |_| vec![Put("7"), Ends(LATER_MS)],
        ways: &[
            Way::Apply("k1~put 7 k1~expires~in~50s"),
            Way::Set("7", IN),
            Way::Transaction(|own, key| own.set_with(key, b"7", IN).expect("taken")),
        ],
    },
    row("SET K 7 PX 50000 NX", |it| {
        when(!it.is_there(), &[Put("7"), Ends(LATER_MS)])
    }),
    row("SET K 7 EXAT 1800000050", |_| {
        vec![Put("7"), Ends(LATER_MS)]
    }),
    row("SET K 7 PXAT 1800000050000 XX", |it| {
        if_there(it, &[Put("7"), Ends(LATER_MS)])
    }),
    row("SET K 7 PXAT 1", |_| vec![Put("7"), Ends(1)]),
    row("SET K 7 KEEPTTL", |_| vec![Edit("7")]),
    row("SET K longer~than~it~was KEEPTTL", |_| {
        vec![Edit("longer than it was")]
    }),
    row("SET K 7 XX KEEPTTL", |it| if_there(it, &[Edit("7")])),
    row("SET K 7 NX KEEPTTL", |it| when(!it.is_there(), &[Put("7")])),
    row("SET K 7 GET", |_| vec![Put("7")]),
    row("SET K 7 KEEPTTL GET", |_| vec![Edit("7")]),
    row("SET K 7 GET PX 50000", |_| vec![Put("7"), Ends(LATER_MS)]),
    row("SET K 7 NX GET", |it| when(!it.is_there(), &[Put("7")])),
    row("SET K 7 XX GET KEEPTTL", |it| if_there(it, &[Edit("7")])),
    row("SET K 7 IFEQ 5", |it| when(it.is("5"), &[Put("7")])),
    row("SET K 7 IFEQ 5 KEEPTTL", |it| {
        when(it.is("5"), &[Edit("7")])
    }),
    row("SET K 7 IFEQ 9 KEEPTTL", |it| {
        when(it.is("9"), &[Edit("7")])
    }),
    row("GETSET K 7", |_| vec![Put("7")]),
    row("INCRBYFLOAT K 2.5", |it| sum_with_a_point(it, 2.5)),
    row("INCRBYFLOAT K 0", |it| sum_with_a_point(it, 0.0)),
    row("SETBIT K 6 1", |it| with_bit(it, 6, true)),
    row("SETBIT K 4 0", |it| with_bit(it, 4, false)),
    row("SETBIT K 30 1", |it| with_bit(it, 30, true)),
    row("MSETNX K 7", |it| when(!it.is_there(), &[Put("7")])),
    row("RENAME K {e}other", |it| when(!it.is_armed, &[Delete])),
    row("RENAME K K", |_| Vec::new()),
    row("RENAMENX K K", |_| Vec::new()),
    row("COPY K {e}other REPLACE", |_| Vec::new()),
    row("SETNX K 7", |it| when(!it.is_there(), &[Put("7")])),
    row("SETEX K 50 7", |_| vec![Put("7"), Ends(LATER_MS)]),
    row("PSETEX K 50000 7", |_| vec![Put("7"), Ends(LATER_MS)]),
    row("MSET K 7", |_| vec![Put("7")]),
    row("MSET {e}other 1 K 7", |_| vec![Put("7")]),
    row("GETDEL K", |_| vec![Delete]),
    Row {
        words: "DEL K",
        does: |_| vec![Delete],
        ways: &[
            Way::Apply("k1~del"),
            Way::Del,
            Way::Transaction(|own, key| own.del(key).expect("taken")),
        ],
    },
    row("UNLINK K", |_| vec![Delete]),
    row("DELEX K", |_| vec![Delete]),
    row("DELEX K IFEQ 5", |it| when(it.is("5"), &[Delete])),
    row("DELEX K IFNE 5", |it| when(!it.is("5"), &[Delete])),
    row("GETEX K", |_| Vec::new()),
    row("GETEX K EX 50", |_| vec![Ends(LATER_MS)]),
    row("GETEX K PXAT 1", |_| vec![Ends(1)]),
    row("GETEX K PERSIST", |_| vec![Ends(0)]),
    Row {
        words: "EXPIRE K 50",
        does: |_| vec![Ends(LATER_MS)],
        ways: &[
            Way::Apply("k1~expires~in~50s"),
            Way::UpdateIf(&[], IN),
            Way::UpdateIf(&[], Expiry::At(LATER_MS)),
            Way::Transaction(|own, key| {
                let key = own.key(key).expect("named");
                own.then(key.expire_in(50_000)).expect("taken");
            }),
        ],
    },
    row("EXPIRE K 50 NX", |it| {
        when(it.expiry_ms.is_none(), &[Ends(LATER_MS)])
    }),
    row("EXPIRE K 50 XX", |it| {
        when(it.expiry_ms.is_some(), &[Ends(LATER_MS)])
    }),
    row("EXPIRE K 50 GT", |it| {
        when(
            it.expiry_ms.is_some_and(|ms| ms < LATER_MS),
            &[Ends(LATER_MS)],
        )
    }),
    row("EXPIRE K 50 LT", |it| {
        when(
            it.expiry_ms.is_none_or(|ms| ms > LATER_MS),
            &[Ends(LATER_MS)],
        )
    }),
    row("EXPIRE K -1", |_| vec![Ends(1)]),
    row("PEXPIRE K 50000", |_| vec![Ends(LATER_MS)]),
    row("EXPIREAT K 1800000050", |_| vec![Ends(LATER_MS)]),
    Row {
        words: "PEXPIREAT K 1800000100000",
        does: |_| vec![Ends(ENDS_MS)],
        ways: &[Way::UpdateIf(&[], Expiry::At(ENDS_MS))],
    },
    Row {
        words: "PEXPIREAT K 1",
        does: |_| vec![Ends(1)],
        ways: &[
            Way::Apply("k1~expires~at~1"),
            Way::UpdateIf(&[], Expiry::At(1)),
        ],
    },
    Row {
        words: "PERSIST K",
        does: |_| vec![Ends(0)],
        ways: &[
            Way::Apply("k1~expires~never"),
            Way::UpdateIf(&[], Expiry::Never),
            Way::Transaction(|own, key| {
                let key = own.key(key).expect("named");
                own.then(key.expire_at(0u64)).expect("taken");
            }),
        ],
    },
    row("KV.APPLY K k1.decimal~+=~1", |it| {
        when(it.is_there(), &sum(it, 1))
    }),
    row("KV.APPLY K k1~start 0 k1.decimal~+=~1", |it| sum(it, 1)),
    row("KV.APPLY K k1~put 7", |_| vec![Put("7")]),
    row("KV.APPLY K k1~put~replace", |_| vec![Put("replace")]),
    row("KV.APPLY K k1~replace longer~than~it~was", |it| {
        if_there(it, &[Edit("longer than it was")])
    }),
    row("KV.APPLY K k1~replace 7 k1.decimal~+=~1", |it| {
        if_there(it, &[Edit("8")])
    }),
    row("KV.APPLY K k1~replace 7 k1~put 8", |it| {
        if_there(it, &[Put("8")])
    }),
    row("KV.APPLY K k1~put 8 k1~replace 9", |_| vec![Put("9")]),
    row("KV.APPLY K k1~replace 7 k1~expires~in~50s", |it| {
        if_there(it, &[Edit("7"), Ends(LATER_MS)])
    }),
    row("KV.RUN bump K", |it| when(it.is_there(), &sum(it, 1))),
];

//! What an APPLY does, against a model that is written from PROTOCOL.md alone: it reads the bytes
//! of the instructions itself and counts with numbers of 128 bits.

use std::collections::BTreeMap;

use penstock_net::apply::{
    Apply, ApplyInstruction, ApplyKey, ApplyKeys, ApplyRequest, Arithmetic, Cause, Denial, Effects,
    run, write_apply,
};
use penstock_net::limits::EXPIRY_MS_MAX;
use penstock_net::refusal::Refusal;
use penstock_net::request::{Ask, Version};
use penstock_net::status::Status;

use crate::Random;

const SEEDS: u64 = 600;
/// Programs of one seed.
const PROGRAMS: usize = 20;
const VALUE_BYTES_MAX: u32 = 64;
const DATA: &[u8] =
    b"\x01\x02\x03\x04\xff\xff\xff\x7f\x00\x00\x00\x80-42 seven 9223372036854775807";

/// A key: how it was, and what it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    /// `None` if it had no value.
    version_before: Option<Version>,
    /// The newest change of it before the request, also if it has no value.
    changed_at: Version,
    value: Option<Vec<u8>>,
    expiry_ms: Option<u64>,
    /// What is stored to run when it expires.
    effects: Option<Vec<u8>>,
    is_changed: bool,
}

/// Why a program stops.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    NotFound,
    Guard(u64),
    LeavesRange(u64),
    Version(Version),
    OutsideValue { offset: u32, value_len: usize },
    NoDecimal { value_len: usize },
    NoExpiry(i128),
}

/// The keys as the document says what becomes of them.
#[derive(Clone)]
struct Model {
    now_ms: u64,
    keys: Vec<Key>,
    returned: Vec<u64>,
}

fn low_64(number: i128) -> u64 {
    u64::from_le_bytes(*number.to_le_bytes().first_chunk().expect("sixteen bytes"))
}

/// The least and the greatest number of a type.
fn range(kind: u8) -> (i128, i128) {
    if kind == 8 {
        return (-(1 << 63), (1 << 63) - 1);
    }
    let bits = 8 << (kind & 3);
    match kind & 4 != 0 {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    }
}

impl Model {
    fn number(&self, key: usize, kind: u8, offset: u32) -> Result<i128, Why> {
        let Some(value) = &self.keys[key].value else {
            return Err(Why::NotFound);
        };
        let value_len = value.len();
        if kind == 8 {
            let text = String::from_utf8_lossy(value);
            return match text.parse::<i64>() {
                Ok(number) if number.to_string() == text => Ok(number.into()),
                _ => Err(Why::NoDecimal { value_len }),
            };
        }
        let (start, width) = (offset as usize, 1usize << (kind & 3));
        if start + width > value_len {
            return Err(Why::OutsideValue { offset, value_len });
        }
        let mut bytes = value[start..start + width].to_vec();
        if kind & 0x10 == 0 {
            bytes.reverse();
        }
        let unsigned = bytes
            .iter()
            .fold(0, |sum, byte| sum * 256 + i128::from(*byte));
        match unsigned > range(kind).1 {
            true => Ok(unsigned - (1 << (8 * width))),
            false => Ok(unsigned),
        }
    }

    fn write(&mut self, key: usize, kind: u8, offset: u32, number: i128) {
        let value = self.keys[key].value.as_mut().expect("it was read");
        if kind == 8 {
            *value = number.to_string().into_bytes();
            return;
        }
        let width = 1usize << (kind & 3);
        for byte in 0..width {
            let place = match kind & 0x10 == 0 {
                true => byte,
                false => width - 1 - byte,
            };
            value[offset as usize + byte] = number.to_le_bytes()[place];
        }
    }

    fn operand(&self, source: u8, bits: u64, is_signed: bool) -> Result<i128, Why> {
        let [a, b, c, d, kind, key, ..] = bits.to_le_bytes();
        match source {
            0x20 => self.number(key.into(), kind, u32::from_le_bytes([a, b, c, d])),
            0x40 => Ok(i128::from(self.now_ms) + i128::from(bits.cast_signed())),
            _ if is_signed => Ok(bits.cast_signed().into()),
            _ => Ok(bits.into()),
        }
    }

    /// One instruction.
    fn step(&mut self, bytes: &[u8; 16]) -> Result<(), Why> {
        let [operation, type_byte, key, _, a, b, c, d, rest @ ..] = *bytes;
        let (key, offset) = (usize::from(key), u32::from_le_bytes([a, b, c, d]));
        let (kind, source) = (type_byte & !0x60, type_byte & 0x60);
        let bits = u64::from_le_bytes(rest);
        let now = i128::from(self.now_ms);
        let hold = |does: bool, actual: u64| {
            if does {
                Ok(())
            } else {
                Err(Why::Guard(actual))
            }
        };
        match operation {
            1 if self.keys[key].version_before.is_none() => Err(Why::NotFound),
            1 => Ok(()),
            2 => hold(self.keys[key].version_before.is_none(), 1),
            9 => {
                let before = self.keys[key].version_before.ok_or(Why::NotFound)?;
                match (before.epoch, before.sequence) == (offset, bits) {
                    true => Ok(()),
                    false => Err(Why::Version(before)),
                }
            }
            35 => {
                let (
                    Key {
                        version_before,
                        changed_at,
                        ..
                    },
                    since,
                ) = (
                    &self.keys[key],
                    Version {
                        epoch: offset,
                        sequence: bits,
                    },
                );
                let exists = version_before.is_some();
                hold(!exists && *changed_at <= since, u64::from(exists))
            }
            10 => hold(now < self.operand(source, bits, false)?, self.now_ms),
            11 => hold(now >= self.operand(source, bits, false)?, self.now_ms),
            26 | 27 => {
                if operation == 26 || self.keys[key].value.is_none() {
                    let len = usize::try_from(bits).expect("within the data");
                    self.keys[key].value = Some(DATA[offset as usize..][..len].to_vec());
                    self.keys[key].expiry_ms = None;
                    self.keys[key].is_changed = true;
                }
                Ok(())
            }
            28 | 29 | 33 if self.keys[key].value.is_none() => Err(Why::NotFound),
            33 => {
                // Neither the expiry nor what runs then is another one.
                let len = usize::try_from(bits).expect("within the data");
                self.keys[key].value = Some(DATA[offset as usize..][..len].to_vec());
                self.keys[key].is_changed = true;
                Ok(())
            }
            28 => {
                self.keys[key].value = None;
                self.keys[key].expiry_ms = None;
                self.keys[key].is_changed = true;
                Ok(())
            }
            29 => {
                let ms = self.operand(source, bits, false)?;
                if !(0..1 << 48).contains(&ms) {
                    return Err(Why::NoExpiry(ms));
                }
                self.keys[key].expiry_ms = Some(low_64(ms)).filter(|ms| *ms > 0);
                self.keys[key].is_changed = true;
                Ok(())
            }
            _ => {
                let number = self.number(key, kind, offset)?;
                self.on_number(operation, number, (key, kind, offset), source, bits)
            }
        }
    }

    /// An instruction that is about a number of the key.
    fn on_number(
        &mut self,
        operation: u8,
        number: i128,
        (key, kind, offset): (usize, u8, u32),
        source: u8,
        bits: u64,
    ) -> Result<(), Why> {
        if operation == 30 {
            let after = self.taken(low_64(number), bits)?;
            self.write(key, kind, offset, after.into());
            self.keys[key].is_changed = true;
            self.returned.push(after);
            return Ok(());
        }
        if operation == 31 {
            self.returned.push(low_64(number));
            return Ok(());
        }
        let (least, greatest) = range(kind);
        let operand = self.operand(source, bits, least < 0)?;
        let guard = match operation {
            3 => Some(number == operand),
            4 => Some(number != operand),
            5 => Some(number < operand),
            6 => Some(number <= operand),
            7 => Some(number > operand),
            8 => Some(number >= operand),
            12 => Some(operand & !number == 0),
            13 => Some(operand & number != 0),
            14 => Some(operand & number == 0),
            _ => None,
        };
        if let Some(does) = guard {
            return if does {
                Ok(())
            } else {
                Err(Why::Guard(low_64(number)))
            };
        }
        let after = match operation {
            16 => operand,
            17 => number + operand,
            18 => number - operand,
            19 => least.max(greatest.min(number + operand)),
            20 => least.max(greatest.min(number - operand)),
            21 => {
                if number < operand {
                    number
                } else {
                    operand
                }
            }
            22 => {
                if number > operand {
                    number
                } else {
                    operand
                }
            }
            23 => number & operand,
            24 => number | operand,
            25 => (number | operand) & !(number & operand),
            other => panic!("operation {other} is not in the table"),
        };
        if after < least || after > greatest {
            return Err(Why::LeavesRange(low_64(number)));
        }
        self.write(key, kind, offset, after);
        self.keys[key].is_changed |= after != number;
        self.returned.push(low_64(after));
        Ok(())
    }

    /// RATE in the words of the document.
    fn taken(&self, field: u64, bits: u64) -> Result<u64, Why> {
        let (interval, burst, quantity) = (
            i128::from(bits & 0xFF_FFFF_FFFF),
            i128::from(bits >> 40 & 0xFFFF),
            i128::from(bits >> 56),
        );
        let now = i128::from(self.now_ms) * 1000;
        let after = now.max(field.into()) + quantity * interval;
        let wait = after - burst * interval - now;
        match wait > 0 {
            true => Err(Why::Guard(u64::try_from(wait).unwrap_or(u64::MAX))),
            false => Ok(u64::try_from(after).expect("within some years of now")),
        }
    }
}

/// What the codec runs on: the same keys behind the trait.
struct Staged(Vec<Key>);

impl Staged {
    fn changed(&mut self, key: usize) -> &mut Key {
        let key = &mut self.0[key];
        key.is_changed = true;
        key
    }
}

impl<'a> ApplyKeys<'a> for Staged {
    fn existed(&self, key: usize) -> bool {
        self.0[key].version_before.is_some()
    }

    fn version(&self, key: usize) -> Version {
        self.0[key].version_before.unwrap_or_default()
    }

    fn may_have_changed(&self, key: usize, since: Version) -> bool {
        self.0[key].changed_at > since
    }

    fn value(&self, key: usize) -> Option<&[u8]> {
        self.0[key].value.as_deref()
    }

    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        let value = self.changed(key).value.as_mut();
        let value = value.expect("only a key with a value is edited");
        &mut value[start..][..width]
    }

    fn log_unchanged(&mut self, _: usize) {
        unreachable!("no APPLY asks");
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        let key = self.changed(key);
        assert!(
            key.value.is_some(),
            "only a key with a value is given another one"
        );
        key.value = Some(value.to_vec());
    }

    fn put_keeping(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.replace(key, value);
        Ok(())
    }

    fn put(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal> {
        self.changed(key).value = Some(value.to_vec());
        self.changed(key).expiry_ms = None;
        Ok(())
    }

    fn delete(&mut self, key: usize) {
        let key = self.changed(key);
        key.value
            .take()
            .expect("only a key with a value is deleted");
        key.expiry_ms = None;
    }

    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        let key = self.changed(key);
        assert!(key.value.is_some() && expiry_ms.is_none_or(|ms| ms <= EXPIRY_MS_MAX));
        key.expiry_ms = expiry_ms;
    }

    fn expiry_ms(&self, key: usize) -> Option<u64> {
        self.0[key].expiry_ms
    }

    fn arm(&mut self, key: usize, effects: &Effects<'a>) {
        self.changed(key).effects = Some(effects.item());
    }
}

/// What the model says of a denial.
fn why(denial: &Denial) -> Why {
    let number = denial.instruction;
    match denial.cause {
        Cause::NotFound => Why::NotFound,
        Cause::Guard {
            actual,
            overflow: false,
        } => Why::Guard(actual),
        Cause::Guard {
            actual,
            overflow: true,
        } => Why::LeavesRange(actual),
        Cause::Version(version) => Why::Version(version),
        Cause::Refused(Refusal::Field {
            instruction,
            offset,
            value_len,
            ..
        }) if instruction == number => Why::OutsideValue { offset, value_len },
        Cause::Refused(Refusal::Decimal {
            instruction,
            value_len,
        }) if instruction == number => Why::NoDecimal { value_len },
        Cause::Refused(Refusal::InstructionExpiry { instruction, ms }) if instruction == number => {
            Why::NoExpiry(ms)
        }
        Cause::Refused(other) => panic!("instruction {number}: {other}"),
    }
}

/// Programs and the keys that they begin with.
struct Maker {
    random: Random,
    key_count: usize,
}

impl Maker {
    fn one_in(&mut self, bound: usize) -> bool {
        self.random.below(bound) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len())]
    }

    fn value(&mut self) -> Vec<u8> {
        if self.one_in(2) {
            let texts: [&[u8]; 7] = [
                b"0",
                b"-1",
                b"41",
                b"9223372036854775807",
                b"-9223372036854775808",
                b"007",
                b"1 ",
            ];
            return self.pick(&texts).to_vec();
        }
        let len = self.random.below(20);
        let filler = self.pick(&[None, Some(0), Some(0xFF), Some(0x80)]);
        (0..len)
            .map(|_| filler.unwrap_or_else(|| self.random.next().to_le_bytes()[0]))
            .collect()
    }

    fn key(&mut self) -> Key {
        let exists = !self.one_in(3);
        let changed_at = Version {
            epoch: 256,
            sequence: 1 + self.random.next() % 4,
        };
        Key {
            version_before: exists.then_some(changed_at),
            changed_at,
            value: exists.then(|| self.value()),
            expiry_ms: (exists && self.one_in(3)).then_some(7_000),
            effects: None,
            is_changed: false,
        }
    }

    fn kind(&mut self) -> u8 {
        match self.one_in(3) {
            true => 8,
            false => self.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 0x10, 0x11, 0x12, 0x13, 0x15, 0x17]),
        }
    }

    fn offset(&mut self, kind: u8) -> u32 {
        match kind {
            8 => 0,
            _ => self.pick(&[0, 0, 0, 1, 4, 8, 11]),
        }
    }

    /// 16 bytes; most draws are an instruction.
    fn bytes(&mut self) -> [u8; 16] {
        let operations = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
            26, 27, 28, 29, 30, 31, 33, 35,
        ];
        let operation = self.pick(&operations);
        let key = u8::try_from(self.random.below(self.key_count)).expect("at most eight");
        let reason = self.random.next().to_le_bytes()[0];
        let any = self.random.next();
        let immediate = self.pick(&[
            0,
            1,
            2,
            7,
            127,
            255,
            65_535,
            1 << 31,
            u64::MAX,
            1 << 63,
            any,
        ]);
        let mut kind = self.kind();
        let mut offset = self.offset(kind);
        let mut bits = immediate;
        match operation {
            1 | 2 | 28 => (kind, offset, bits) = (0, 0, 0),
            9 | 35 => (kind, offset, bits) = (0, 256, 1 + any % 4),
            26 | 27 | 33 => (kind, offset, bits) = (0, self.pick(&[0, 4, 12, 15]), any % 20),
            30 => {
                kind = self.pick(&[3, 0x13]);
                let burst = self.pick(&[1, 3, 9]);
                bits = (1 + any % 2_000_000) | burst << 40 | 1 << 56;
            }
            31 => bits = 0,
            _ => {
                let source = self.pick(&[0, 0, 0x20, 0x40]);
                if source == 0x20 {
                    let other = self.kind();
                    let [a, b, c, d] = self.offset(other).to_le_bytes();
                    let key = self.random.below(self.key_count).to_le_bytes()[0];
                    bits = u64::from_le_bytes([a, b, c, d, other, key, 0, 0]);
                }
                if [10, 11, 29].contains(&operation) {
                    (kind, offset) = (0, 0);
                    if source == 0 {
                        bits = self.pick(&[1, 1_000_000, 999_999, 1_000_001, EXPIRY_MS_MAX]);
                    }
                }
                kind |= source;
            }
        }
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&[operation, kind, key, reason]);
        bytes[4..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&bits.to_le_bytes());
        bytes
    }

    /// A program; most of its instructions hold, so that those behind them run.
    fn program(&mut self, mut model: Model) -> Vec<[u8; 16]> {
        let wanted = 1 + self.random.below(12);
        let key_count = u8::try_from(self.key_count).expect("at most eight");
        let data_len = u32::try_from(DATA.len()).expect("short");
        let mut program = Vec::new();
        for _ in 0..1_000 {
            let bytes = self.bytes();
            if program.len() == wanted {
                break;
            }
            if ApplyInstruction::read(&bytes, 0, key_count, data_len).is_err() {
                continue;
            }
            let mut after = model.clone();
            if after.step(&bytes).is_ok() {
                model = after;
                program.push(bytes);
            } else if self.one_in(12) {
                program.push(bytes);
            }
        }
        program
    }
}

/// How often each operation held, and how often it did not.
type Counts = BTreeMap<u8, (u32, u32)>;

fn compare(maker: &mut Maker, counts: &mut Counts, about: &str) {
    let keys: Vec<Key> = (0..maker.key_count).map(|_| maker.key()).collect();
    let mut model = Model {
        now_ms: 1_000_000,
        keys: keys.clone(),
        returned: Vec::new(),
    };
    let program = maker.program(model.clone());
    let names: Vec<Vec<u8>> = (0..keys.len())
        .map(|key| format!("k{key}").into())
        .collect();
    let key_count = u8::try_from(keys.len()).expect("at most eight");
    let data_len = u32::try_from(DATA.len()).expect("short");
    let instructions: Vec<ApplyInstruction> = program
        .iter()
        .map(|bytes| ApplyInstruction::read(bytes, 0, key_count, data_len).expect("it was taken"))
        .collect();
    let mut item = Vec::new();
    write_apply(&mut item, &names, &instructions, DATA);
    let request = ApplyRequest::read(&item, VALUE_BYTES_MAX).expect("well formed");

    let mut expected = Ok(());
    for (number, bytes) in program.iter().enumerate() {
        let before = model.clone();
        let count = counts.entry(bytes[0]).or_default();
        if let Err(why) = model.step(bytes) {
            count.1 += 1;
            model = before;
            expected = Err((number, bytes[3], why));
            break;
        }
        count.0 += 1;
    }
    let (mut staged, mut returned) = (Staged(keys), Vec::new());
    let done = run(&request, model.now_ms, &mut staged, &mut returned);
    let done = done.map_err(|denial| (denial.instruction, denial.reason, why(&denial)));
    assert_eq!(done, expected, "{about}: {instructions:#?}");
    assert_eq!(staged.0, model.keys, "{about}: {instructions:#?}");
    let returned: Vec<u64> = returned
        .as_chunks()
        .0
        .iter()
        .map(|it| u64::from_le_bytes(*it))
        .collect();
    assert_eq!(returned, model.returned, "{about}: {instructions:#?}");
}

#[test]
fn programs_do_what_a_model_of_the_document_does() {
    let mut counts = Counts::new();
    for seed in 0..SEEDS {
        let random = Random(seed);
        let mut maker = Maker {
            random,
            key_count: 1,
        };
        for program in 0..PROGRAMS {
            maker.key_count = 1 + maker.random.below(8);
            compare(
                &mut maker,
                &mut counts,
                &format!("seed {seed}, program {program}"),
            );
        }
    }
    for operation in (1..=14).chain(16..=31).chain([33, 35]) {
        let (held, failed) = counts.get(&operation).copied().unwrap_or_default();
        // PUT and START need nothing that could be missing.
        let may_fail = ![26, 27].contains(&operation);
        assert!(
            held >= 20 && (failed >= 5 || !may_fail),
            "operation {operation} held {held} times and failed {failed} times"
        );
    }
}

/// Keys with room for no other value.
struct Crowded(Staged);

impl<'a> ApplyKeys<'a> for Crowded {
    fn existed(&self, key: usize) -> bool {
        self.0.existed(key)
    }

    fn version(&self, key: usize) -> Version {
        self.0.version(key)
    }

    fn may_have_changed(&self, key: usize, since: Version) -> bool {
        self.0.may_have_changed(key, since)
    }

    fn value(&self, key: usize) -> Option<&[u8]> {
        self.0.value(key)
    }

    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8] {
        self.0.field_mut(key, start, width)
    }

    fn log_unchanged(&mut self, key: usize) {
        self.0.log_unchanged(key);
    }

    fn replace(&mut self, key: usize, value: &[u8]) {
        self.0.replace(key, value);
    }

    fn put(&mut self, _: usize, _: &'a [u8]) -> Result<(), Refusal> {
        Err(CROWDED)
    }

    fn put_keeping(&mut self, _: usize, _: &'a [u8]) -> Result<(), Refusal> {
        Err(CROWDED)
    }

    fn delete(&mut self, key: usize) {
        self.0.delete(key);
    }

    fn expire(&mut self, key: usize, expiry_ms: Option<u64>) {
        self.0.expire(key, expiry_ms);
    }

    fn expiry_ms(&self, _: usize) -> Option<u64> {
        None
    }

    fn arm(&mut self, _: usize, _: &Effects<'a>) {
        unreachable!("it has no ON_EXPIRE");
    }
}

const CROWDED: Refusal = Refusal::ApplyBytes {
    what: "what the request writes",
    bytes: 11,
    max: 10,
};

#[test]
fn a_value_that_finds_no_room_is_answered_with_its_instruction() {
    let key = Key {
        version_before: Some(Version::default()),
        changed_at: Version::default(),
        value: Some(b"9".to_vec()),
        expiry_ms: None,
        effects: None,
        is_changed: false,
    };
    let mut apply = Apply::new();
    let name = apply.key(b"k");
    apply
        .then(name.decimal().changes(Arithmetic::Max, 9u64))
        .start(name, b"of no use, the key has a value")
        .put(name, b"2");
    let item = Ask::Apply(&apply).encode();
    let request = ApplyRequest::read(&item, VALUE_BYTES_MAX).expect("well formed");
    let mut keys = Crowded(Staged(vec![key.clone()]));
    let denial = run(&request, 0, &mut keys, &mut Vec::new()).expect_err("no room");
    assert_eq!(
        (denial.instruction, denial.cause),
        (2, Cause::Refused(CROWDED))
    );
    assert_eq!(keys.0.0, [key]);
}

/// A key with these four bytes and perhaps an expiry.
fn held(value: u32, expiry_ms: Option<u64>) -> Key {
    Key {
        version_before: Some(Version {
            epoch: 256,
            sequence: 1,
        }),
        changed_at: Version::default(),
        value: Some(value.to_le_bytes().to_vec()),
        expiry_ms,
        effects: None,
        is_changed: false,
    }
}

fn ran(apply: &Apply, keys: Vec<Key>) -> (Result<(), Denial>, Vec<Key>, Vec<u8>) {
    let item = Ask::Apply(apply).encode();
    let request = ApplyRequest::read(&item, VALUE_BYTES_MAX).expect("well formed");
    let (mut staged, mut returned) = (Staged(keys), Vec::new());
    let done = run(&request, 1_000_000, &mut staged, &mut returned);
    (done, staged.0, returned)
}

#[test]
fn effects_of_an_expiry_are_stored_and_neither_run_nor_return_anything() {
    let mut apply = Apply::new();
    let stock = apply.key(b"{7}stock");
    let hold = apply.key(b"{7}hold");
    apply
        .then(stock.u32(0).decrease(2u64))
        .on_expire(hold, |effects| {
            effects.then(stock.u32(0).increase(2u64)).put(stock, b"x");
        })
        .then(hold.expire_in(5))
        .then(hold.u32(0).returned());
    let (done, keys, returned) = ran(&apply, vec![held(10, None), held(2, None)]);
    assert_eq!(done, Ok(()));
    assert_eq!(keys[0].value, Some(8u32.to_le_bytes().to_vec()));
    assert_eq!(keys[1].expiry_ms, Some(1_000_005));
    let numbers = [8u64, 2].map(u64::to_le_bytes).concat();
    assert_eq!(returned, numbers, "what runs later tells nothing");
    let stored = keys[1].effects.as_ref().expect("it is armed");
    let stored = ApplyRequest::read(stored, VALUE_BYTES_MAX).expect("an APPLY");
    assert_eq!(stored.first_keys(), [&b"{7}hold"[..], b"{7}stock"]);
    // What is stored runs as any other APPLY does.
    let (mut staged, mut returned) = (Staged(vec![keys[1].clone(), keys[0].clone()]), Vec::new());
    assert_eq!(run(&stored, 1_000_005, &mut staged, &mut returned), Ok(()));
    assert_eq!(staged.0[1].value.as_deref(), Some(&b"x"[..]));
}

#[test]
fn a_key_that_will_not_expire_is_not_armed() {
    type Write = fn(&mut Apply, ApplyKey);
    let cases: [(Write, Option<u64>, bool); 6] = [
        (|_, _| {}, Some(7_000), true),
        (|_, _| {}, None, false),
        (
            |apply, key| {
                apply.then(key.expire_at(0u64));
            },
            Some(7_000),
            false,
        ),
        (
            |apply, key| {
                apply.then(key.delete());
            },
            Some(7_000),
            false,
        ),
        (
            |apply, key| {
                apply.put(key, b"anew");
            },
            Some(7_000),
            false,
        ),
        (
            |apply, key| {
                apply.put(key, b"anew").then(key.expire_at(9_000u64));
            },
            None,
            true,
        ),
    ];
    for (number, (write, expiry_ms, is_armed)) in cases.into_iter().enumerate() {
        let mut apply = Apply::new();
        let key = apply.key(b"hold");
        apply.then(key.exists()).on_expire(key, |_| {});
        write(&mut apply, key);
        let (done, keys, _) = ran(&apply, vec![held(1, expiry_ms)]);
        match is_armed {
            true => assert!(keys[0].effects.is_some(), "case {number}"),
            false => {
                let denial = done.expect_err("denied");
                assert_eq!(denial.instruction, 1, "case {number}");
                let Cause::Refused(refusal) = denial.cause else {
                    panic!("case {number}: {denial:?}")
                };
                let key = Refusal::EffectsInVain {
                    instruction: 1,
                    key: 0,
                };
                assert_eq!((refusal, refusal.status()), (key, Status::BadField));
            }
        }
    }
    let mut apply = Apply::new();
    let key = apply.key(b"hold");
    apply.on_expire(key, |_| {}).put(key, b"too late");
    let missing = Key {
        version_before: None,
        changed_at: Version::default(),
        value: None,
        ..held(0, None)
    };
    let (done, ..) = ran(&apply, vec![missing]);
    assert_eq!(done.expect_err("denied").cause, Cause::NotFound);
}

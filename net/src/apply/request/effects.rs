//! What runs when a key expires: the effects of an ON_EXPIRE, and the item that stores them.
//!
//! The stored item is one of APPLY. Its first key is the one that expires. Of the request it has
//! the effects, the keys that they name and the values that they put, and nothing else. So a shard
//! fires it as any other APPLY.

use crate::apply::instruction::{Action, ApplyInstruction, Operand};
use crate::apply::request::{ApplyRequest, HEAD_BYTES, write_apply};
use crate::batch::padded;
use crate::instruction::INSTRUCTION_BYTES;
use crate::limits::{APPLY_KEYS_MAX, EFFECTS_BYTES_MAX, FEW_KEYS_MAX};
use crate::refusal::Refusal;

/// The effects of one ON_EXPIRE of a request.
#[derive(Clone, Copy, Debug)]
pub struct Effects<'a> {
    request: ApplyRequest<'a>,
    /// The number of the ON_EXPIRE.
    number: usize,
    /// The key that expires.
    key: u8,
    count: usize,
}

impl<'a> Effects<'a> {
    /// The effects that stand behind instruction `number` of the request, an ON_EXPIRE of this key.
    pub(in crate::apply) fn new(
        request: &ApplyRequest<'a>,
        number: usize,
        key: u8,
        count: u8,
    ) -> Self {
        Effects {
            request: *request,
            number,
            key,
            count: usize::from(count),
        }
    }

    /// The item to be stored: at most [`EFFECTS_BYTES_MAX`] bytes.
    #[must_use]
    pub fn item(&self) -> Vec<u8> {
        let keys = Named::of(self);
        let mut names = [&[][..]; FEW_KEYS_MAX];
        for (name, &key) in names.iter_mut().zip(keys.used()) {
            *name = self.request.key_at(key.into());
        }
        let (mut data, mut effects) = (Vec::new(), Vec::with_capacity(self.count));
        for effect in self.all() {
            effects.push(self.stored(effect, &keys, &mut data));
        }
        let mut item = Vec::with_capacity(self.bytes());
        write_apply(&mut item, &names[..keys.count], &effects, &data);
        item
    }

    /// Refuses what no server stores: instructions that are no effects, or too many bytes.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let left = self.request.instructions().count() - self.number - 1;
        if self.count > left {
            return Err(Refusal::EffectCount {
                instruction: self.number,
                count: self.count,
                left,
            });
        }
        for (number, effect) in (self.number + 1..).zip(self.all()) {
            if !effect.may_run_later() {
                return Err(Refusal::EffectOperation {
                    instruction: number,
                    operation: effect.encode()[0],
                });
            }
        }
        let mut earlier = self.request.instructions().take(self.number);
        let is_same = |it: &ApplyInstruction| it.effects().is_some() && it.key == self.key;
        if let Some(first) = earlier.position(|it| is_same(&it)) {
            return Err(Refusal::EffectsRepeated {
                instruction: self.number,
                key: self.key,
                first,
            });
        }
        let keys = Named::of(self).count;
        if keys > FEW_KEYS_MAX {
            return Err(Refusal::EffectKeys {
                instruction: self.number,
                keys,
            });
        }
        match self.bytes() {
            bytes if bytes > EFFECTS_BYTES_MAX => Err(Refusal::EffectBytes {
                instruction: self.number,
                bytes,
            }),
            _ => Ok(()),
        }
    }

    fn all(&self) -> impl Iterator<Item = ApplyInstruction> + use<'a> {
        let behind = self.request.instructions().skip(self.number + 1);
        behind.take(self.count)
    }

    /// Bytes of the item.
    fn bytes(&self) -> usize {
        let keys = Named::of(self);
        let names = keys.used().iter();
        let names = names.map(|&key| padded(self.request.key_at(key.into()).len()));
        let data: usize = self
            .all()
            .filter_map(|it| it.data())
            .map(|it| it.len())
            .sum();
        HEAD_BYTES + self.count * INSTRUCTION_BYTES + names.sum::<usize>() + padded(data)
    }

    /// The effect with the numbers and places of the stored item.
    fn stored(
        &self,
        effect: ApplyInstruction,
        keys: &Named,
        data: &mut Vec<u8>,
    ) -> ApplyInstruction {
        let mut put = |start: u32, len: u32| {
            let at = u32::try_from(data.len()).expect("checked with the request");
            data.extend_from_slice(self.request.value(start, len));
            at
        };
        let of_key = |operand| match operand {
            Operand::Field { key, at } => Operand::Field {
                key: keys.numbers[usize::from(key)],
                at,
            },
            operand => operand,
        };
        let action = match effect.action {
            Action::Change(change, at, operand) => Action::Change(change, at, of_key(operand)),
            Action::Expire(time) => Action::Expire(of_key(time)),
            Action::Put { start, len } => Action::Put {
                start: put(start, len),
                len,
            },
            Action::Start { start, len } => Action::Start {
                start: put(start, len),
                len,
            },
            action => action,
        };
        ApplyInstruction {
            key: keys.numbers[usize::from(effect.key)],
            reason: effect.reason,
            action,
        }
    }
}

/// The keys of a request that effects name, the one that expires first.
struct Named {
    keys: [u8; FEW_KEYS_MAX],
    /// How many they are, also if they are more than are stored.
    count: usize,
    /// Of each key of the request, its number among these.
    numbers: [u8; APPLY_KEYS_MAX],
}

impl Named {
    fn of(effects: &Effects<'_>) -> Self {
        let mut named = Named {
            keys: [0; FEW_KEYS_MAX],
            count: 0,
            numbers: [u8::MAX; APPLY_KEYS_MAX],
        };
        named.add(effects.key);
        for effect in effects.all() {
            named.add(effect.key);
            if let Some(key) = effect.operand_key() {
                named.add(key);
            }
        }
        named
    }

    fn add(&mut self, key: u8) {
        let number = &mut self.numbers[usize::from(key)];
        if *number == u8::MAX {
            *number = u8::try_from(self.count).expect("below 255");
            if let Some(place) = self.keys.get_mut(self.count) {
                *place = key;
            }
            self.count += 1;
        }
    }

    fn used(&self) -> &[u8] {
        &self.keys[..self.count.min(FEW_KEYS_MAX)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Apply, Arithmetic};

    fn item_of(apply: &Apply) -> Vec<u8> {
        let mut item = Vec::new();
        apply.write(&mut item);
        item
    }

    fn effects_of<'a>(request: &ApplyRequest<'a>) -> Vec<Effects<'a>> {
        request.effects().collect()
    }

    /// Stock, an order that is not named by effects, and a hold that returns two units.
    fn hold() -> Apply {
        let mut apply = Apply::new();
        let stock = apply.key(b"stock:{7}");
        let order = apply.key(b"order:{7}");
        let hold = apply.key(b"hold:{7}");
        let log = apply.key(b"log:{7}");
        apply
            .put(order, b"an order")
            .put(hold, &2u32.to_le_bytes())
            .then(hold.expire_in(600_000))
            .on_expire(hold, |effects| {
                effects
                    .then(stock.u32(0).increase(hold.u32(0)))
                    .put(log, b"expired")
                    .start(stock, b"none");
            })
            .then(stock.u32(0).decrease(2u64));
        apply
    }

    #[test]
    fn the_stored_item_is_an_apply_of_the_keys_and_values_that_the_effects_name() {
        let item = item_of(&hold());
        let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
        let effects = effects_of(&request);
        let stored = effects[0].item();
        assert_eq!((effects.len(), stored.len()), (1, effects[0].bytes()));
        let stored = ApplyRequest::read(&stored, 1 << 20).expect("an APPLY");
        let names = [&b"hold:{7}"[..], b"stock:{7}", b"log:{7}"];
        assert_eq!(stored.first_keys(), names);
        assert_eq!(stored.data(), b"expirednone");
        let mut expected = Apply::new();
        let [hold, stock, log] = names.map(|name| expected.key(name));
        expected.then(stock.u32(0).changes(Arithmetic::Add, hold.u32(0)));
        expected.put(log, b"expired").start(stock, b"none");
        let effects: Vec<_> = stored.instructions().collect();
        assert_eq!(effects, expected.instructions());
    }

    #[test]
    fn no_effect_at_all_stores_the_key_alone() {
        let mut apply = Apply::new();
        apply.key(b"a");
        let key = apply.key(b"b");
        apply.on_expire(key, |_| {});
        let item = item_of(&apply);
        let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
        let stored = effects_of(&request)[0].item();
        assert_eq!(stored.len(), HEAD_BYTES + 8);
        let stored = ApplyRequest::read(&stored, 1 << 20).expect("an APPLY");
        assert_eq!(
            (stored.first_keys(), stored.instructions().count()),
            (&[&b"b"[..]][..], 0)
        );
    }

    #[test]
    fn what_is_no_effect_is_refused_by_its_number_value_and_limit() {
        type Write = fn(&mut Apply);
        let cases: [(Write, &str); 6] = [
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.then(key.exists());
                    });
                },
                "instruction 1 runs when a key expires: it is of operation 16 to 30, not 1",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.then(key.delete()).then(key.u32(0).returned());
                    });
                },
                "instruction 2 runs when a key expires: it is of operation 16 to 30, not 31",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.on_expire(key, |_| {});
                    });
                },
                "instruction 1 runs when a key expires: it is of operation 16 to 30, not 32",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |_| {}).on_expire(key, |_| {});
                },
                "instruction 1: key 0 has its effects by instruction 0 already",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.then(key.runs_on_expiry(2)).then(key.delete());
                },
                "instruction 0: 2 effects are told, and 1 instructions stand behind it",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.put(key, &[7; 2_889]);
                    });
                },
                "instruction 0: its effects take 2952 bytes with their keys and values; at most \
                 2944 are stored",
            ),
        ];
        for (write, text) in cases {
            let mut apply = Apply::new();
            write(&mut apply);
            let item = item_of(&apply);
            let refusal = ApplyRequest::read(&item, 1 << 20).expect_err(text);
            assert_eq!(refusal.to_string(), text);
        }
        let mut apply = Apply::new();
        let key = apply.key(b"a");
        apply.on_expire(key, |effects| {
            effects.put(key, &[7; 2_888]);
        });
        let item = item_of(&apply);
        let request = ApplyRequest::read(&item, 1 << 20).expect("as much as is stored");
        assert_eq!(effects_of(&request)[0].item().len(), EFFECTS_BYTES_MAX);
    }
}

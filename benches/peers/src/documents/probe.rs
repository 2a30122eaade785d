//! What one form of one document costs, and how one number of it is read.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Outcome;

/// One step on the way to a field.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Name(&'static str),
    At(usize),
}

/// What one document costs in one form.
pub struct Figures {
    /// Nanoseconds to encode, to decode, and to read one field.
    pub ns: [f64; 3],
    /// Blocks asked of the heap by each of them.
    pub allocations: [u64; 3],
    pub encoded: Vec<u8>,
}

/// Gives the bytes of a document to a function.
pub type Encode<'a> = &'a dyn Fn(&mut dyn FnMut(&[u8])) -> Outcome<()>;

/// How long each of the three is measured.
pub struct Probe {
    pub seconds: f64,
}

impl Probe {
    /// Encodes, decodes and reads one field.
    ///
    /// # Errors
    /// Also if the field is not the number that is wanted.
    pub fn figures(
        &self,
        wanted: Option<f64>,
        encode: Encode<'_>,
        decode: &dyn Fn(&[u8]) -> Outcome<()>,
        field: &dyn Fn(&[u8]) -> Outcome<f64>,
    ) -> Outcome<Figures> {
        let mut encoded = Vec::new();
        encode(&mut |bytes| encoded.extend_from_slice(bytes))?;
        let read = field(&encoded)?;
        if Some(read) != wanted {
            return Err(format!("a field was read as {read}, not {wanted:?}").into());
        }
        let encode = || {
            encode(&mut |bytes| {
                black_box(bytes);
            })
        };
        let decode = || decode(black_box(&encoded));
        let field = || {
            black_box(field(black_box(&encoded))?);
            Ok(())
        };
        let ns = [self.ns(&encode)?, self.ns(&decode)?, self.ns(&field)?];
        let allocations = [count(&encode)?, count(&decode)?, count(&field)?];
        Ok(Figures {
            ns,
            allocations,
            encoded,
        })
    }

    /// Nanoseconds of one run, over as many runs as take the time.
    fn ns(&self, run: &dyn Fn() -> Outcome<()>) -> Outcome<f64> {
        let mut runs: u32 = 1;
        loop {
            let began = Instant::now();
            for _ in 0..runs {
                run()?;
            }
            let seconds = began.elapsed().as_secs_f64();
            if seconds >= self.seconds || runs >= 1 << 30 {
                return Ok(seconds * 1e9 / f64::from(runs));
            }
            runs *= 2;
        }
    }
}

fn count(run: &dyn Fn() -> Outcome<()>) -> Outcome<u64> {
    let mut outcome = Ok(());
    let counted = allocation_counter::measure(|| outcome = run());
    outcome?;
    Ok(counted.count_total)
}

/// A number of a JSON text, without a tree.
pub fn pick_json(bytes: &[u8], path: &[Step]) -> Outcome<f64> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    found(Pick(path).deserialize(&mut from)?)
}

pub fn found(number: Option<f64>) -> Outcome<f64> {
    number.ok_or_else(|| "no such field".into())
}

/// Takes the number at a path and passes over all else, as a struct with that one field would.
pub struct Pick<'p>(pub &'p [Step]);

impl<'de> DeserializeSeed<'de> for Pick<'_> {
    type Value = Option<f64>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<f64>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Pick<'_> {
    type Value = Option<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number at {:?}", self.0)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Option<f64>, E> {
        Ok(self.0.is_empty().then_some(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Option<f64>, E> {
        Ok(self.0.is_empty().then_some(number as f64))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Option<f64>, E> {
        Ok(self.0.is_empty().then_some(number as f64))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<f64>, A::Error> {
        let mut found = None;
        while let Some(is_next) = map.next_key_seed(Is(self.0.first()))? {
            match is_next {
                true => found = map.next_value_seed(Pick(&self.0[1..]))?,
                false => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<f64>, A::Error> {
        let Some(Step::At(index)) = self.0.first() else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(None);
        };
        for _ in 0..*index {
            list.next_element::<IgnoredAny>()?;
        }
        let found = list.next_element_seed(Pick(&self.0[1..]))?.flatten();
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

/// Whether a name is the one that a step names.
struct Is<'p>(Option<&'p Step>);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<bool, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<bool, E> {
        Ok(matches!(self.0, Some(Step::Name(wanted)) if *wanted == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_not_there_is_an_error() {
        let text = br#"{"a":[{"b":1},{"b":2}],"c":"x"}"#;
        let second = [Step::Name("a"), Step::At(1), Step::Name("b")];
        assert_eq!(pick_json(text, &second).unwrap(), 2.0);
        for path in [
            &[Step::Name("d")][..],
            &[Step::Name("a"), Step::At(2), Step::Name("b")],
            &[Step::Name("a"), Step::Name("b")],
        ] {
            assert!(pick_json(text, path).is_err(), "{path:?}");
        }
    }
}

//! `math.random`: the numbers of a run follow from its seed.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table};

use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::failure::placed;
use crate::numbers;

/// The numbers of one run.
#[derive(Debug, Default)]
pub(crate) struct Random {
    state: Cell<u64>,
}

impl Random {
    pub(crate) fn seed(&self, seed: u64) {
        self.state.set(seed);
    }

    /// A number in [0, 1), of 53 bits: the generator splitmix64.
    fn next(&self) -> f64 {
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = (mixed ^ (mixed >> 31)) >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let number = bits as f64;
        number / 9_007_199_254_740_992.0
    }
}

/// Puts `random` and `randomseed` into the table of the library `math`.
pub(crate) fn install(
    lua: &Lua,
    math: &Table,
    meter: &Rc<Meter>,
    random: &Rc<Random>,
) -> Result<()> {
    let (numbers, its_meter) = (Rc::clone(random), Rc::clone(meter));
    let body = move |lua: &Lua, values: MultiValue| {
        draw(&numbers, &Arguments::new(lua, &its_meter, values))
            .map_err(|error| placed(lua, "random", error))
    };
    math.raw_set("random", lua.create_function(body)?)?;
    let (numbers, its_meter) = (Rc::clone(random), Rc::clone(meter));
    let body = move |lua: &Lua, values: MultiValue| {
        let seed = Arguments::new(lua, &its_meter, values).number(0);
        let seed = seed.map_err(|error| placed(lua, "randomseed", error))?;
        numbers.seed(numbers::integer_of(seed).cast_unsigned());
        Ok(())
    };
    math.raw_set("randomseed", lua.create_function(body)?)
}

fn draw(random: &Random, args: &Arguments<'_>) -> Result<f64> {
    let share = random.next();
    let (low, high) = match args.len() {
        0 => return Ok(share),
        1 => (1.0, args.number(0)?.floor()),
        2 => (args.number(0)?.floor(), args.number(1)?.floor()),
        _ => return Err(args.error("wrong number of arguments")),
    };
    match low <= high {
        true => Ok((share * (high - low + 1.0)).floor() + low),
        false => Err(args.refuse(args.len() - 1, "interval is empty")),
    }
}

//! Tokens of writes: kept beside the change that they name, dropped behind their horizon.

pub(crate) mod horizons;
pub(crate) mod keep;

//! From a configuration to shards that are ready to run, whoever runs them.

pub mod calibration;
pub mod checks;
pub(crate) mod node;
mod retiming;

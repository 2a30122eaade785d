//! The log and the store over a disk that loses, tears and reorders whatever is not durable.
//!
//! Every random test prints its seed when it fails; `PENSTOCK_SEED=n` runs that seed alone, and
//! `PENSTOCK_SEEDS=n` asks for more of them.
#![forbid(unsafe_code)]

mod change;
mod changes;
mod cleaning;
mod crash;
mod damage;
mod disk;
mod evidence;
mod expiring;
mod golden;
mod group;
mod heap;
mod journal;
mod key_table;
mod kinds;
mod layers;
mod many_parts;
mod random;
mod released;
mod repair;
mod replica;
mod run;
mod scrub;
mod seed;
mod small_disk;
mod snapshot;
mod spread;
mod steady;
mod store;
mod table;

//! Whole nodes in virtual time: the simulator that tries to break the promise.
//!
//! One seed decides a machine, its traffic and its faults, runs the code of `storage`, `shard` and
//! `net` as the server composes it, and holds every answer against a model and against an
//! independent checker. The same seed gives the same run on every machine; its fingerprint tells.
//!
//! It promises: an acknowledged effect that is lost, a false or missing answer, damage that is
//! served or taken for the end of the log, each fails the seed.
//!
//! It does not know: threads, sockets, files, rings, the code of `runtime`; those are tortured
//! under the real kernel.
#![forbid(unsafe_code)]

mod border;
pub mod cluster;
pub mod coverage;
pub mod damage;
pub mod disk;
pub mod holds;
pub mod life;
pub mod linear;
pub mod operation;
pub mod oracle;
pub mod plan;
mod port;
pub mod random;
pub mod report;
pub mod sales;
pub mod scan;
mod starts;
pub mod trace;
pub mod transactions;
pub mod visits;
pub mod world;

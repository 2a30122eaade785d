//! Stores inside the process of the test.

mod disk;
mod key_tables;
mod kill;
mod scan;
mod scratch;
mod store;
mod transactions;

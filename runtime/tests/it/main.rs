//! The real binary as a process: what it answers, what it bears, what it refuses and what it leaves
//! behind.

mod cold;
mod commands;
mod files;
mod folder;
mod frames;
mod full;
mod load;
mod peers;
mod server;
mod session;
mod shards;
mod starts;
mod wire;

//! One model over both homes, a real etcd, and one that answers as badly as a script says.

mod model;
mod real_etcd;
mod scripted;
mod scripted_etcd;
mod secured;

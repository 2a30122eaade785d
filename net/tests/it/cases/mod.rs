//! The cases of the vector files: the bytes that each decoder accepts and those that it refuses.

mod applies;
mod frames;
mod hellos;
mod items;
mod keyless;
mod replies;
mod runs;
mod tokens;

use penstock_net::batch::Batch;
use penstock_net::level::AckLevel;
use penstock_net::request::BatchRequest;

pub struct Case {
    pub id: String,
    pub kind: &'static str,
    pub description: String,
    pub bytes: Vec<u8>,
}

struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, kind: &'static str, description: impl Into<String>, bytes: Vec<u8>) {
        let id = format!(
            "{kind}-{:03}",
            self.0.iter().filter(|case| case.kind == kind).count() + 1
        );
        self.0.push(Case {
            id,
            kind,
            description: description.into(),
            bytes,
        });
    }
}

/// All cases. The vector files hold their numbers, so new cases go behind the others of their kind.
pub fn all() -> Vec<Case> {
    let mut cases = Cases(Vec::new());
    frames::frames(&mut cases);
    frames::batches(&mut cases);
    items::items(&mut cases);
    items::expiries(&mut cases);
    items::pasts(&mut cases);
    items::keyspaces(&mut cases);
    items::instructions(&mut cases);
    replies::replies(&mut cases);
    keyless::scans(&mut cases);
    keyless::pings(&mut cases);
    hellos::of_clients(&mut cases);
    hellos::of_servers(&mut cases);
    items::member_reads(&mut cases);
    items::shown(&mut cases);
    applies::applies(&mut cases);
    applies::replies(&mut cases);
    tokens::tokens(&mut cases);
    runs::runs(&mut cases);
    applies::replaces(&mut cases);
    cases.0
}

/// The body of a frame with one batch.
fn body(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut batch = BatchRequest::begin(&mut bytes, 1, AckLevel::Disk, 0, 4);
    build(&mut batch, &mut bytes);
    batch.finish(&mut bytes);
    bytes.split_off(32)
}

/// The one item of such a batch.
fn item(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    Batch::read(&body(build))
        .expect("one item")
        .item(0)
        .to_vec()
}

/// Bytes with a change at one place.
fn changed(mut bytes: Vec<u8>, at: usize, to: &[u8]) -> Vec<u8> {
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

//! The slow hash of passwords, on a thread of its own: a core computes none.
//!
//! Clients of Redis send their passwords, so the server hashes them. Clients of the own protocol
//! hash them by themselves.

use std::sync::OnceLock;
use std::thread;

use penstock_net::auth::Challenge;

/// Hashes that wait or are under way, at most.
const HASHES_MAX: usize = 64;

/// A hash, in memory that is wiped.
type Salted = zeroize::Zeroizing<[u8; 32]>;

struct Job {
    challenge: Challenge,
    done: flume::Sender<Salted>,
}

/// The thread of a process that hashes; begun with the first password.
#[derive(Default)]
pub(super) struct Hashing {
    jobs: OnceLock<Option<flume::Sender<Job>>>,
}

impl Hashing {
    /// Has a hash computed. `None` if too many wait, or there is no thread.
    pub(super) fn begin(&self, challenge: Challenge) -> Option<flume::Receiver<Salted>> {
        let jobs = self.jobs.get_or_init(start).as_ref()?;
        let (done, hashed) = flume::bounded(1);
        jobs.try_send(Job { challenge, done }).ok()?;
        Some(hashed)
    }
}

fn start() -> Option<flume::Sender<Job>> {
    let (sender, jobs) = flume::bounded::<Job>(HASHES_MAX);
    let hash = move || {
        for Job { challenge, done } in jobs {
            // Nobody listens any more if the connection is gone.
            if !done.is_disconnected() {
                let _ = done.send(challenge.salted());
            }
        }
    };
    let thread = thread::Builder::new().name("penstock-hash".into());
    thread.spawn(hash).is_ok().then_some(sender)
}

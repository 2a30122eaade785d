//! Greetings of incoming links: how many are under way, and which one gives way.
//!
//! What must hold: whoever holds all places without a word keeps no node out. So the newest comes
//! in, and the oldest is hung up on.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Greetings at a time.
const GREETINGS_MAX: usize = 64;
/// Threads of them, with those that have given way and are about to end.
const THREADS_MAX: usize = 2 * GREETINGS_MAX;

/// The greetings that are under way.
#[derive(Default)]
pub(crate) struct Greetings(Mutex<UnderWay>);

#[derive(Default)]
struct UnderWay {
    /// The oldest first.
    places: VecDeque<(u64, Arc<TcpStream>)>,
    next: u64,
    threads: usize,
}

impl Greetings {
    /// Takes a place; if there is none left, the oldest greeting gives way. `None` if too many of
    /// those have not ended yet.
    pub(crate) fn begin(&self, stream: TcpStream) -> Option<(u64, Arc<TcpStream>)> {
        let mut under_way = self.under_way();
        if under_way.threads >= THREADS_MAX {
            return None;
        }
        if under_way.places.len() >= GREETINGS_MAX
            && let Some((_, oldest)) = under_way.places.pop_front()
        {
            // Whoever reads from it hears so at once.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let number = under_way.next;
        under_way.next += 1;
        under_way.threads += 1;
        let stream = Arc::new(stream);
        under_way.places.push_back((number, Arc::clone(&stream)));
        Some((number, stream))
    }

    /// A greeting is over. Whether it has kept its place until now.
    pub(crate) fn end(&self, number: u64) -> bool {
        let mut under_way = self.under_way();
        under_way.threads -= 1;
        let before = under_way.places.len();
        under_way.places.retain(|(it, _)| *it != number);
        under_way.places.len() < before
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_oldest_greeting_gives_way_to_the_newest_and_threads_are_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let greetings = Greetings::default();
        let mut callers = Vec::new();
        let mut begin = || {
            callers.push(TcpStream::connect(address).expect("it listens"));
            let (stream, _) = listener.accept().expect("accepted");
            greetings.begin(stream)
        };
        let first = begin().expect("a place");
        let second = begin().expect("a place");
        for _ in 2..GREETINGS_MAX {
            begin().expect("a place");
        }
        // One more: the first one is hung up on, and no other.
        let newest = begin().expect("the newest comes in");
        assert_eq!((&*first.1).read(&mut [0]).expect("shut"), 0);
        assert!(!greetings.end(first.0));
        assert!(greetings.end(second.0) && greetings.end(newest.0));
        for _ in GREETINGS_MAX - 2..THREADS_MAX {
            begin().expect("threads are left");
        }
        assert!(begin().is_none());
        assert!(greetings.under_way().places.len() <= GREETINGS_MAX);
    }
}

//! File descriptors when there are few: connections leave some to segments. A connection that finds
//! none is refused with a text instead of waiting in the kernel's queue.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{IntoRawFd, RawFd};

use crate::system::open_files;
use crate::system::{self, Resource};

/// Connections that are refused one after the other before the core does something else.
const REFUSED_A_ROUND_MAX: usize = 64;

/// What one core knows of the descriptors of the process.
pub(crate) struct Descriptors {
    /// How many the process may have.
    limit: u64,
    /// A descriptor for the connection that finds none.
    spare: Option<File>,
}

impl Descriptors {
    /// What holds now.
    pub(crate) fn new() -> Self {
        Descriptors {
            limit: system::limit(Resource::OpenFiles).map_or(u64::MAX, |limit| limit.soft),
            spare: open_spare(),
        }
    }

    /// Why a connection with this descriptor is to be turned away, if it is. The kernel gives the
    /// lowest free number, so a high number means that about so many are in use.
    pub(crate) fn refusal(&self, descriptor: RawFd) -> Option<String> {
        let left = open_files::left_to_segments(self.limit);
        let is_for_files = u64::try_from(descriptor).is_ok_and(|it| it >= self.limit - left);
        is_for_files.then(|| {
            let limit = self.limit;
            format!(
                "the process may have {limit} open files (nofile), the last {left} are for \
                 segments, and all others are in use"
            )
        })
    }

    /// Closes connections that wait in the queue of a listener, for which there is no descriptor,
    /// each with `answer`; how many. They get the spare one in turn.
    pub(crate) fn refuse_waiting(&mut self, listener: RawFd, answer: &[u8]) -> u64 {
        let mut refused = 0;
        for _ in 0..REFUSED_A_ROUND_MAX {
            // Without a spare one another file may have been closed meanwhile.
            self.spare = None;
            let accepted = system::accept_waiting(listener);
            let Ok(Some(descriptor)) = accepted else {
                break;
            };
            refuse(&TcpStream::from(descriptor), answer);
            refused += 1;
        }
        self.spare = open_spare();
        refused
    }
}

fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Closes a connection that was accepted, with `answer`.
pub(crate) fn refuse_accepted(stream: impl IntoRawFd, answer: &[u8]) {
    let stream = TcpStream::from(system::taken_over(stream));
    if stream.set_nonblocking(true).is_ok() {
        refuse(&stream, answer);
    }
}

/// Writes a short answer to a connection that does not block, and passes over what it has sent: a
/// socket that is closed over unread bytes may take the answer back.
fn refuse(mut stream: &TcpStream, answer: &[u8]) {
    let mut passed_over = [0; 4096];
    let is_interrupted = |error: &io::Error| error.kind() == ErrorKind::Interrupted;
    let _ = stream.write(answer);
    let _ = stream.shutdown(Shutdown::Write);
    // Bounded: the client may be sending without end.
    for _ in 0..4 {
        match stream.read(&mut passed_over) {
            Ok(1..) => {}
            Err(error) if is_interrupted(&error) => {}
            _ => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn connections_leave_a_part_of_the_descriptors_to_files() {
        let descriptors = |limit| Descriptors { limit, spare: None };
        for (limit, highest) in [(64, 47), (1024, 767), (65_536, 61_439)] {
            assert_eq!(descriptors(limit).refusal(highest), None);
            let text = descriptors(limit)
                .refusal(highest + 1)
                .expect("one too many");
            assert!(text.contains(&limit.to_string()), "{text}");
        }
        assert_eq!(descriptors(u64::MAX).refusal(1 << 20), None);
    }

    #[test]
    fn connections_that_wait_without_a_descriptor_are_answered_and_closed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("known");
        let mut waiting = [(); 3].map(|()| TcpStream::connect(address).expect("queued"));
        let listener = listener.as_raw_fd();
        let mut descriptors = Descriptors::new();
        assert_eq!(descriptors.refuse_waiting(listener, b"none is left"), 3);
        assert_eq!(descriptors.refuse_waiting(listener, b"none is left"), 0);
        for stream in &mut waiting {
            let mut received = String::new();
            stream.read_to_string(&mut received).expect("an end");
            assert_eq!(received, "none is left");
        }
        assert!(descriptors.spare.is_some_and(|it| it.as_raw_fd() > 2));
    }
}

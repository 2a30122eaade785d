//! Lines for people and programs that read them when they like: nobody who tells waits for a
//! reader.
//!
//! ```text
//! line --> room in the queue? --yes--> thread of the queue --> sink: file, standard error, ...
//!                             --no--> counted; the next line may tell how many
//! ```
//!
//! Lines keep their order. A clean end and a flush wait until all of them are written, for
//! [`END_WAIT`] at most. A kill or an abort without a flush loses those that are queued.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Lines that wait for the thread, at most.
pub(crate) const LINES_MAX: usize = 4096;
/// Bytes of those lines, at most.
pub(crate) const BYTES_MAX: u64 = 4 << 20;
/// How long a flush and the end wait for a sink that takes no lines.
const END_WAIT: Duration = Duration::from_secs(2);

/// Where lines go. It may wait for a reader as long as it likes, and deals with its own errors.
pub(crate) trait LineSink: Send + Sync + 'static {
    /// Takes a whole line, with its line break.
    fn take(&self, line: &[u8]);
}

/// Takes lines for a sink; clones are the same. Never waits.
#[derive(Clone)]
pub(crate) struct LineQueue {
    orders: flume::Sender<Order>,
    counts: Arc<Counts>,
}

/// What the thread is to do next.
enum Order {
    Write(Vec<u8>),
    /// Answered when all lines of before are written.
    Flush(flume::Sender<()>),
    End,
}

#[derive(Default)]
struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
    /// Of the dropped ones, those that no line has told of.
    unreported: AtomicU64,
    queued_bytes: AtomicU64,
}

/// How many lines were written, and how many were dropped because the queue was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineCounts {
    pub(crate) written: u64,
    pub(crate) dropped: u64,
}

/// The thread that writes. When this is dropped, lines that are queued are written first, for
/// [`END_WAIT`] at most.
pub(crate) struct LineWriter {
    orders: flume::Sender<Order>,
    /// Closed when the thread has ended.
    ended: flume::Receiver<()>,
}

impl LineQueue {
    /// Starts the thread `name`, which writes to `sink`.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start<S: LineSink>(
        name: &str,
        sink: Arc<S>,
    ) -> io::Result<(LineQueue, LineWriter)> {
        let (queue, queued) = LineQueue::unwritten();
        let (ending, ended) = flume::bounded::<()>(0);
        let counts = Arc::clone(&queue.counts);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                write_all(&queued, &*sink, &counts);
                drop(ending);
            })?;
        let orders = queue.orders.clone();
        Ok((queue, LineWriter { orders, ended }))
    }

    /// A queue, and where its orders are to be taken from.
    fn unwritten() -> (LineQueue, flume::Receiver<Order>) {
        let (orders, queued) = flume::bounded(LINES_MAX);
        let counts = Arc::default();
        (LineQueue { orders, counts }, queued)
    }

    /// Queues the line that `line` makes of the number of lines that were dropped and not told yet;
    /// counts it as dropped if there is no room. A line ends with its line break.
    pub(crate) fn push(&self, line: impl FnOnce(u64) -> Vec<u8>) {
        let counts = &self.counts;
        let is_full =
            self.orders.is_full() || counts.queued_bytes.load(Ordering::Relaxed) >= BYTES_MAX;
        if is_full {
            return self.drop_lines(1);
        }
        let unreported = counts.unreported.swap(0, Ordering::Relaxed);
        let line = line(unreported);
        let bytes = line.len() as u64;
        let queued = counts.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if queued > BYTES_MAX || self.orders.try_send(Order::Write(line)).is_err() {
            counts.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            counts.unreported.fetch_add(unreported, Ordering::Relaxed);
            self.drop_lines(1);
        }
    }

    /// Counts so many lines as dropped.
    pub(crate) fn drop_lines(&self, lines: u64) {
        self.counts.dropped.fetch_add(lines, Ordering::Relaxed);
        self.counts.unreported.fetch_add(lines, Ordering::Relaxed);
    }

    /// Waits until the lines that are queued are written, for [`END_WAIT`] at most.
    pub(crate) fn flush(&self) {
        self.flush_until(Instant::now() + END_WAIT);
    }

    /// Waits for the lines of all these queues, for [`END_WAIT`] together.
    pub(crate) fn flush_all<'a>(queues: impl Iterator<Item = &'a LineQueue>) {
        let until = Instant::now() + END_WAIT;
        queues.for_each(|queue| queue.flush_until(until));
    }

    fn flush_until(&self, until: Instant) {
        let (done, is_done) = flume::bounded(1);
        if self.orders.send_deadline(Order::Flush(done), until).is_ok() {
            // Whoever waits so has an end to come to, whether the lines are written or not.
            let _ = is_done.recv_deadline(until);
        }
    }

    /// What became of the lines.
    pub(crate) fn counts(&self) -> LineCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LineCounts {
            written: load(&self.counts.written),
            dropped: load(&self.counts.dropped),
        }
    }
}

fn write_all(queued: &flume::Receiver<Order>, sink: &impl LineSink, counts: &Counts) {
    while let Ok(order) = queued.recv() {
        match order {
            Order::Write(line) => {
                sink.take(&line);
                counts
                    .queued_bytes
                    .fetch_sub(line.len() as u64, Ordering::Relaxed);
                counts.written.fetch_add(1, Ordering::Relaxed);
            }
            Order::Flush(done) => drop(done.send(())),
            Order::End => return,
        }
    }
}

impl LineWriter {
    /// Ends the thread when the lines are written, and waits for its end.
    fn end_until(&self, until: Instant) {
        if self.orders.send_deadline(Order::End, until).is_ok() {
            // An error either way: the thread says nothing when it ends.
            let _ = self.ended.recv_deadline(until);
        }
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        self.end_until(Instant::now() + END_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps what it takes, and takes nothing while a guard of its gate lives.
    #[derive(Default)]
    struct Gated {
        gate: Mutex<()>,
        taken: Mutex<Vec<u8>>,
    }

    impl LineSink for Gated {
        fn take(&self, line: &[u8]) {
            let _open = self.gate.lock().unwrap();
            self.taken.lock().unwrap().extend_from_slice(line);
        }
    }

    fn numbered(number: usize) -> impl FnOnce(u64) -> Vec<u8> {
        move |unreported| format!("{number} {unreported}\n").into_bytes()
    }

    #[test]
    fn a_full_queue_drops_lines_and_the_next_line_says_how_many() {
        let (queue, queued) = LineQueue::unwritten();
        for number in 0..LINES_MAX + 5 {
            queue.push(numbered(number));
        }
        assert_eq!((queue.counts().dropped, queued.len()), (5, LINES_MAX));
        drop(queued.recv().unwrap());
        queue.push(numbered(7));
        queue.push(numbered(8));
        let Some(Order::Write(last)) = queued.drain().last() else {
            panic!("lines alone were queued");
        };
        assert_eq!(last, b"7 5\n");
        assert_eq!(queue.counts().dropped, 6, "the last one had no room");
    }

    #[test]
    fn long_lines_fill_the_queue_by_their_bytes() {
        let (queue, queued) = LineQueue::unwritten();
        let bytes = usize::try_from(BYTES_MAX).unwrap() / 4;
        for _ in 0..6 {
            queue.push(|_| vec![b'x'; bytes]);
        }
        assert_eq!((queue.counts().dropped, queued.len()), (2, 4));
        let (queue, queued) = LineQueue::unwritten();
        queue.push(|_| vec![b'x'; 4 * bytes + 1]);
        queue.push(|unreported| vec![b'x'; usize::try_from(unreported).unwrap()]);
        assert_eq!((queue.counts().dropped, queued.len()), (1, 1));
    }

    #[test]
    fn nobody_waits_for_a_sink_that_stands_still_but_a_flush_and_the_end_for_a_while() {
        let sink = Arc::new(Gated::default());
        let (queue, writer) = LineQueue::start("test-lines", Arc::clone(&sink)).unwrap();
        let closed = sink.gate.lock().unwrap();
        for number in 0..2 * LINES_MAX {
            queue.push(numbered(number));
        }
        // The thread holds a line or none.
        let dropped = queue.counts().dropped;
        assert!((LINES_MAX as u64 - 1..=LINES_MAX as u64).contains(&dropped));
        queue.flush();
        drop(writer);
        drop(closed);
    }

    #[test]
    fn what_is_queued_is_written_in_its_order_at_a_flush_and_at_the_end() {
        let sink = Arc::new(Gated::default());
        let (queue, writer) = LineQueue::start("test-lines", Arc::clone(&sink)).unwrap();
        let expected = |count| -> String { (0..count).map(|it| format!("{it} 0\n")).collect() };
        // A machine that is busy lets the thread wait for longer than END_WAIT.
        let until = Instant::now() + Duration::from_secs(60);
        (0..1000).for_each(|number| queue.push(numbered(number)));
        queue.flush_until(until);
        assert_eq!(*sink.taken.lock().unwrap(), expected(1000).as_bytes());
        (1000..1100).for_each(|number| queue.push(numbered(number)));
        writer.end_until(until);
        assert_eq!(*sink.taken.lock().unwrap(), expected(1100).as_bytes());
        queue.push(numbered(0));
        assert_eq!(
            queue.counts(),
            LineCounts {
                written: 1100,
                dropped: 1
            }
        );
    }
}

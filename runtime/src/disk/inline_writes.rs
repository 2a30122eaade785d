//! Decides when the thread of a shard makes a write durable itself, inside the flush. Pure: counts
//! and times are given.
//!
//! Each thread that a durable write passes through waits for a CPU of its own where other programs
//! want all of them. A lone write that is made where the command ran waits for the device alone,
//! and nobody else has work for the loop meanwhile.

/// The longest write that the loop waits for: a group commit of ordinary records.
const BYTES_MAX: u64 = 256 << 10;
/// After a write that takes the device longer than this, the loop waits for no other for the same
/// time: a device that is slow at this length has at most half of the time of the loop.
const SHARE_US: u64 = 50_000;
/// A device that takes longer than this is not waited for again for a while.
const SLOW_US: u64 = 100_000;
/// How long that is. The time doubles while the device stays slow.
const PAUSE_US_MIN: u64 = 1_000_000;
const PAUSE_US_MAX: u64 = 64_000_000;

/// Whether a write that took the device so long is one to wait for no more for a while.
#[inline]
pub(super) fn is_slow(device_us: u64) -> bool {
    device_us >= SLOW_US
}

/// The queue of a disk at a flush.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Writes and syncs that are to begin.
    pub(super) waiting: usize,
    /// Writes and syncs that are under way.
    pub(super) begun: u32,
    /// The first of those that wait is a durable write or a sync.
    pub(super) is_durable: bool,
    /// What it makes durable: its length, or for a sync all that was written since the last one.
    pub(super) bytes: u64,
}

/// Whether the thread of the shard makes writes durable itself.
#[derive(Debug)]
pub(super) struct InlineWrites {
    is_contended: bool,
    not_before_us: u64,
    pause_us: u64,
}

impl Default for InlineWrites {
    /// No other program wants the CPU yet.
    fn default() -> Self {
        InlineWrites {
            is_contended: false,
            not_before_us: 0,
            pause_us: PAUSE_US_MIN,
        }
    }
}

impl InlineWrites {
    /// Other programs want the CPU of the thread from now on, or do not.
    pub(super) fn set_contended(&mut self, is_contended: bool) {
        self.is_contended = is_contended;
    }

    /// Whether a write may be inline at all at present; the queue decides the rest.
    #[inline]
    pub(super) fn are_possible(&self) -> bool {
        self.is_contended
    }

    /// Whether the first write that waits is to be inline.
    pub(super) fn takes(&self, now_us: u64, queue: Queue) -> bool {
        self.are_possible()
            && now_us >= self.not_before_us
            && queue.is_durable
            && queue.waiting == 1
            && queue.begun == 0
            && queue.bytes <= BYTES_MAX
    }

    /// An inline write has ended, which took the device so long.
    pub(super) fn ended(&mut self, now_us: u64, device_us: u64) {
        if !is_slow(device_us) {
            self.pause_us = PAUSE_US_MIN;
            let rest_us = if device_us > SHARE_US { device_us } else { 0 };
            self.not_before_us = now_us.saturating_add(rest_us);
            return;
        }
        self.not_before_us = now_us.saturating_add(self.pause_us);
        self.pause_us = (2 * self.pause_us).min(PAUSE_US_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONE: Queue = Queue {
        waiting: 1,
        begun: 0,
        is_durable: true,
        bytes: 4096,
    };

    fn contended() -> InlineWrites {
        let mut inline = InlineWrites::default();
        inline.set_contended(true);
        inline
    }

    #[test]
    fn a_lone_durable_write_is_inline_while_the_cpu_is_contended_and_nothing_else_is() {
        let two = Queue { waiting: 2, ..LONE };
        let behind_another = Queue { begun: 1, ..LONE };
        let not_durable = Queue {
            is_durable: false,
            ..LONE
        };
        let sync_of_nothing = Queue { bytes: 0, ..LONE };
        let longest = Queue {
            bytes: BYTES_MAX,
            ..LONE
        };
        let too_long = Queue {
            bytes: BYTES_MAX + 4096,
            ..LONE
        };
        for (queue, is_inline) in [
            (LONE, true),
            (sync_of_nothing, true),
            (longest, true),
            (too_long, false),
            (two, false),
            (behind_another, false),
            (not_durable, false),
        ] {
            assert_eq!(contended().takes(0, queue), is_inline, "{queue:?}");
            assert!(!InlineWrites::default().takes(0, queue), "{queue:?}");
        }
    }

    #[test]
    fn a_device_that_takes_tens_of_milliseconds_has_at_most_half_of_the_time_of_the_loop() {
        let mut inline = contended();
        for device_us in [SHARE_US + 1, SLOW_US - 1] {
            inline.ended(1_000_000, device_us);
            assert!(!inline.takes(1_000_000 + device_us - 1, LONE));
            assert!(inline.takes(1_000_000 + device_us, LONE));
        }
    }

    #[test]
    fn a_slow_device_is_waited_for_ever_more_rarely_until_it_is_fast() {
        let (mut inline, mut now_us) = (contended(), 0);
        let mut pauses_s = Vec::new();
        for _ in 0..8 {
            assert!(inline.takes(now_us, LONE));
            inline.ended(now_us, SLOW_US);
            let pause_us = inline.not_before_us - now_us;
            assert!(!inline.takes(inline.not_before_us - 1, LONE));
            pauses_s.push(pause_us / 1_000_000);
            now_us = inline.not_before_us;
        }
        assert_eq!(pauses_s, [1, 2, 4, 8, 16, 32, 64, 64]);
        inline.ended(now_us, SHARE_US);
        assert!(inline.takes(now_us, LONE));
        inline.ended(now_us, SLOW_US);
        assert_eq!(inline.not_before_us - now_us, PAUSE_US_MIN);
    }
}

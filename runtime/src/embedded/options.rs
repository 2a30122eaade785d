//! What an embedding process may choose. Names, bounds and their texts are those of the server's
//! options.

use std::path::{Path, PathBuf};
use std::time::Duration;

use penstock_net::level::AckLevel;

use crate::config::{Config, IoMode, Settings, Sources};
use crate::startup::node::OpenError;

/// Room that a frame has beside one value of the largest size.
const FRAME_OVERHEAD_BYTES: u64 = 64 << 10;
/// The largest frame unless a larger value asks for more.
const FRAME_BYTES: u64 = 2 << 20;

/// How an embedded store behaves. The defaults suit one process that does other work besides.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) level: AckLevel,
    pub(super) deadline: Duration,
    pub(super) pending_max: u32,
    pub(super) spin: Duration,
    pub(super) is_pinned: bool,
    shards: u16,
    io: IoMode,
    segment_bytes: u64,
    cache_bytes: u64,
    memory_max: u64,
    value_bytes_max: u32,
    interval: Duration,
    schema: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            level: AckLevel::Disk,
            deadline: Duration::from_secs(5),
            pending_max: 16 * 1024,
            spin: Duration::from_micros(50),
            is_pinned: false,
            shards: 0,
            io: IoMode::Auto,
            segment_bytes: 64 << 20,
            cache_bytes: 256 << 20,
            memory_max: 0,
            value_bytes_max: 1 << 20,
            interval: Duration::from_millis(100),
            schema: None,
        }
    }
}

impl Options {
    /// Threads that run shards, at most one for each CPU. 0, the default, takes the number that the
    /// directory has, or 1 if it is new.
    #[must_use]
    pub fn shards(self, shards: u16) -> Self {
        Options { shards, ..self }
    }

    /// The interface to the disk. Default: io_uring where the kernel allows it, otherwise threads.
    #[must_use]
    pub fn io(self, io: IoMode) -> Self {
        Options { io, ..self }
    }

    /// The ack level of every operation; default [`AckLevel::Disk`]. See also
    /// [`Penstock::with_level`](super::Penstock::with_level).
    #[must_use]
    pub fn level(self, level: AckLevel) -> Self {
        Options { level, ..self }
    }

    /// Most that a crash may take from what was acknowledged at level `interval`; default 100 ms.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Options { interval, ..self }
    }

    /// From the call to the answer; default 5 s.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Options { deadline, ..self }
    }

    /// Calls that may be under way on one shard, a batch frame counting as one; default 16,384.
    /// Beyond it the answer is [`ClientError::Busy`](super::ClientError::Busy).
    #[must_use]
    pub fn pending_max(self, pending_max: u32) -> Self {
        Options {
            pending_max,
            ..self
        }
    }

    /// How long a shard without work, and a caller without its answer, watch memory before they
    /// sleep; default 50 us. While both watch, a call costs no system call; 0 sleeps at once and
    /// leaves the CPU to others.
    #[must_use]
    pub fn spin(self, spin: Duration) -> Self {
        Options { spin, ..self }
    }

    /// Whether each shard's thread stays on a CPU of its own; default no.
    #[must_use]
    pub fn pinned(self, is_pinned: bool) -> Self {
        Options { is_pinned, ..self }
    }

    /// Most memory that index and values take together, all shards, in bytes; default 0, which
    /// bounds the values alone. Values give way to the index; when the index fills it, new keys are
    /// refused with [`ClientError::Busy`](super::ClientError::Busy), which names it. It must leave
    /// each shard 10 MiB and four of the largest values.
    ///
    /// The server's option bounds the process. Here the process is the caller's: buffers of the
    /// disk come beside this, some 4 MiB and a sixteenth of it, and the replies that the caller
    /// holds.
    #[must_use]
    pub fn memory_max(self, memory_max: u64) -> Self {
        Options { memory_max, ..self }
    }

    /// Memory for values, all shards together, in bytes, as far as `memory_max` leaves it; default
    /// 256 MiB. They lie on huge pages of the system if the program has
    /// [`HugePages`](crate::HugePages) as its allocator.
    #[must_use]
    pub fn cache_bytes(self, cache_bytes: u64) -> Self {
        Options {
            cache_bytes,
            ..self
        }
    }

    /// Size of one segment file of the log, in bytes; default 64 MiB.
    #[must_use]
    pub fn segment_bytes(self, segment_bytes: u64) -> Self {
        Options {
            segment_bytes,
            ..self
        }
    }

    /// The largest value, in bytes; default 1 MiB, at most 16 MiB.
    #[must_use]
    pub fn value_bytes_max(self, value_bytes_max: u32) -> Self {
        Options {
            value_bytes_max,
            ..self
        }
    }

    /// Directory of the layouts and programs, in files whose names end in `.toml`; default none. It
    /// is read when the store is opened. See [`Penstock::program`](super::Penstock::program).
    #[must_use]
    pub fn schema(self, directory: impl Into<PathBuf>) -> Self {
        Options {
            schema: Some(directory.into()),
            ..self
        }
    }

    /// The server's configuration that says the same.
    pub(super) fn resolve(&self, directory: &Path) -> Result<Config, OpenError> {
        if self.pending_max == 0 {
            return Err(OpenError::Option(
                "pending_max 0 would answer every call with BUSY: take at least 1".into(),
            ));
        }
        if self.level == AckLevel::Replica {
            return Err(OpenError::Option(
                "level replica needs a second node: take disk, interval or none".into(),
            ));
        }
        let io = match self.io {
            IoMode::Auto => "auto",
            IoMode::Uring => "uring",
            IoMode::Threads => "threads",
        };
        let frame_bytes = (u64::from(self.value_bytes_max) + FRAME_OVERHEAD_BYTES).max(FRAME_BYTES);
        let flags = vec![
            ("shards", self.shards.to_string()),
            ("io", io.to_string()),
            // Each operation says its own.
            ("durability", AckLevel::None.name().to_string()),
            ("interval_ms", format!("{}ms", self.interval.as_millis())),
            ("value_bytes_max", self.value_bytes_max.to_string()),
            ("frame_bytes_max", frame_bytes.to_string()),
            ("idle_timeout_s", "0s".to_string()),
            ("cache_bytes", self.cache_bytes.to_string()),
            ("memory_max", self.memory_max.to_string()),
            ("segment_bytes", self.segment_bytes.to_string()),
            ("spin_us", format!("{}us", self.spin.as_micros())),
        ];
        let sources = Sources {
            flags,
            ..Sources::default()
        };
        let settings =
            Settings::resolve(&sources).map_err(|error| OpenError::Option(error.to_string()))?;
        Ok(Config {
            data: directory.to_path_buf(),
            schema: self.schema.clone(),
            ..settings.config
        })
    }
}

//! What is known of replies before they can leave: those of commands with several items, and those
//! that came before the replies of earlier commands.

/// Buffers of replies that are kept for the next ones, and how long these may be.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 4 << 10;

/// What is known of a reply before it can leave.
#[derive(Debug, Default)]
pub(super) struct Early {
    pub(super) sum: i64,
    pub(super) is_failed: bool,
    /// Whether the command has a token, and then whether its answer was given before.
    pub(super) replayed: Option<bool>,
    /// The reply, or the error of one of the items.
    pub(super) reply: Vec<u8>,
}

/// The early parts of entries.
#[derive(Debug, Default)]
pub(super) struct EarlyParts {
    all: Vec<Early>,
    free: Vec<u16>,
    /// Bytes of all replies.
    pub(super) held_bytes: usize,
}

impl EarlyParts {
    /// A new part.
    pub(super) fn take(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Early::default());
            u16::try_from(self.all.len() - 1).expect("one for each entry at most")
        })
    }

    pub(super) fn at(&mut self, place: u16) -> &mut Early {
        &mut self.all[usize::from(place)]
    }

    /// Ends a part whose reply leaves. Tells whether its command had a token, and so on.
    pub(super) fn end(&mut self, place: u16, out: &mut Vec<u8>) -> Option<bool> {
        let is_kept = self.free.len() < SPARES_MAX;
        let early = &mut self.all[usize::from(place)];
        out.extend_from_slice(&early.reply);
        self.held_bytes -= early.reply.len();
        let mut reply = std::mem::take(&mut early.reply);
        let replayed = std::mem::take(early).replayed;
        if is_kept && reply.capacity() <= SPARE_BYTES_MAX {
            reply.clear();
            early.reply = reply;
        }
        self.free.push(place);
        replayed
    }
}

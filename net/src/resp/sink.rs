//! Items of commands, written into one frame for the session in memory.

use crate::frame::Medium;
use crate::level::AckLevel;
use crate::limits::{BATCH_ITEMS_MAX, Limits};
use crate::request::BatchRequest;

/// Bytes of the shortest command with an item, nearly: how many items a read may bring.
const ITEM_BYTES_GUESSED: usize = 20;
/// Frames in memory have a head, an index and items beside what the peer sends.
const FRAME_ROOM_BYTES: usize = 4 << 10;

/// Writes items into frames for the session in memory.
pub(super) struct Sink<'a> {
    frame: &'a mut Vec<u8>,
    batch: Option<BatchRequest>,
    /// A frame that is to have more is given so many.
    pub(super) items_max: usize,
    bytes_max: usize,
    /// How many commands were read, if all are as long as the first one.
    expected: Option<usize>,
    first_item: u64,
    /// What all items of the frame ask for.
    level: AckLevel,
    /// So long after its arrival what waits is given up; 0 for never.
    deadline_ms: u16,
}

impl<'a> Sink<'a> {
    pub(super) fn new(
        frame: &'a mut Vec<u8>,
        bytes: usize,
        limits: Limits,
        level: AckLevel,
    ) -> Self {
        Sink {
            frame,
            batch: None,
            items_max: (bytes / ITEM_BYTES_GUESSED + 1).min(BATCH_ITEMS_MAX),
            bytes_max: limits.frame_bytes_max as usize,
            expected: None,
            first_item: 0,
            level,
            deadline_ms: 0,
        }
    }

    /// So many bytes were read, and the first command has so many of them.
    #[inline]
    pub(super) fn expect(&mut self, bytes: usize, command_bytes: usize) {
        let are_alike = bytes.is_multiple_of(command_bytes);
        self.expected = are_alike.then(|| (bytes / command_bytes).min(BATCH_ITEMS_MAX));
    }

    /// The first command is one item, so all are, if all are alike: no room is laid out for more.
    /// If they are not, and more than that, they take another frame.
    #[inline]
    pub(super) fn lays_out_expected(&mut self) {
        if let (true, Some(commands)) = (self.is_empty(), self.expected) {
            self.items_max = commands;
        }
    }

    /// Whether items of so many bytes together find room.
    #[inline]
    pub(super) fn has_room(&self, items: usize, bytes: usize) -> bool {
        let begun = self.batch.as_ref().map_or(0, BatchRequest::len);
        let is_empty = begun == 0;
        let fits = self.frame.len() + bytes + FRAME_ROOM_BYTES <= self.bytes_max;
        begun + items <= self.items_max && (fits || is_empty)
    }

    /// How many copies find room of the last item, which took so many bytes of the frame.
    #[inline]
    pub(super) fn room_to_repeat(&self, item_bytes: usize) -> usize {
        let left = self
            .bytes_max
            .saturating_sub(self.frame.len() + FRAME_ROOM_BYTES);
        let begun = self.batch.as_ref().map_or(0, BatchRequest::len);
        (left / item_bytes.max(1)).min(self.items_max.saturating_sub(begun))
    }

    /// Adds copies of the last item.
    pub(super) fn repeat(&mut self, times: usize) {
        if let Some(batch) = &mut self.batch {
            batch.repeat(self.frame, times);
        }
    }

    /// The last bytes of the frame, so many.
    pub(super) fn end(&self, bytes: usize) -> &[u8] {
        &self.frame[self.frame.len() - bytes..]
    }

    /// Bytes of the frame so far.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.frame.len()
    }

    /// Whether no frame was begun.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_none()
    }

    /// Adds a whole frame, before any item.
    pub(super) fn frame(&mut self, frame: &[u8]) {
        assert!(self.is_empty(), "a frame of items is finished first");
        self.frame.extend_from_slice(frame);
    }

    /// What all items of the frame ask for, if none was begun.
    pub(super) fn ask_for(&mut self, level: AckLevel) {
        if self.is_empty() {
            self.level = level;
        }
    }

    /// When what waits in the frame is given up, if none was begun.
    pub(super) fn give_up_after(&mut self, deadline_ms: u16) {
        if self.is_empty() {
            self.deadline_ms = deadline_ms;
        }
    }

    /// The frame, begun if it was not.
    #[inline]
    pub(super) fn batch(&mut self, first_item: u64) -> (&mut BatchRequest, &mut Vec<u8>) {
        let batch = self.batch.get_or_insert_with(|| {
            self.first_item = first_item;
            let (level, deadline_ms) = (self.level, self.deadline_ms);
            BatchRequest::begin(self.frame, first_item, level, deadline_ms, self.items_max)
                .over(Medium::Memory)
        });
        (batch, self.frame)
    }

    /// The first item and how many, if there is one.
    pub(super) fn finish(self) -> Option<(u64, usize)> {
        let batch = self.batch?;
        let items = batch.len();
        batch.finish(self.frame);
        Some((self.first_item, items))
    }
}

//! Commands that differ from an earlier one in key and value alone: their items are written without
//! parser, table and options.

use crate::limits::KEY_BYTES_MAX;
use crate::slot::slot_of;

use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::shapes::Shape;
use super::super::sink::Sink;
use super::{OneItem, Talk};

impl Talk {
    /// Remembers the shape of a whole command that was one item, which ends the frame.
    pub(super) fn remember(
        &mut self,
        command: &[u8],
        args: Arguments<'_>,
        one: OneItem,
        sink: &Sink<'_>,
    ) {
        let Some((fold, subject)) = self.ring.last_one() else {
            return;
        };
        let item = sink.end(one.bytes);
        let shape = Shape::of(command, args, one.form, item, fold.clone(), *subject);
        if let Some(shape) = shape {
            self.shapes.remember(shape);
        }
    }

    /// Takes whole commands from the front of `bytes`, as long as their shapes are known and there
    /// is room; returns how many bytes. What it leaves is for the parser.
    pub(super) fn take_shaped(
        &mut self,
        bytes: &[u8],
        sink: &mut Sink<'_>,
        clock: &mut Option<&dyn Host>,
    ) -> usize {
        let mut taken = 0;
        while self.ring.has_room() {
            let rest = &bytes[taken..];
            let Some((shape, shaped)) = self.shapes.read(rest) else {
                break;
            };
            if sink.is_empty() {
                sink.expect(rest.len(), shaped.len);
                sink.lays_out_expected();
            }
            let value_len = shaped.value.map_or(0, <[u8]>::len);
            if !sink.has_room(1, value_len + 2 * KEY_BYTES_MAX) {
                break;
            }
            self.ring.comes(clock);
            let (batch, out) = sink.batch(self.ring.next_item());
            let from = out.len();
            batch.like(out, &shape.item, shaped.key, shaped.value);
            let slot = match self.is_clustered {
                true => slot_of(shaped.key),
                false => 0,
            };
            let subject = self.ring.subject();
            subject.set_like(&shape.subject, shaped.from_key, shaped.key.len(), slot);
            self.ring.push_one(shape.fold.clone(), self.protocol);
            let item_bytes = sink.bytes() - from;
            let again = self.repeat(rest, shaped.len, shaped.key_end, item_bytes, sink);
            self.ring.counts_again(1 + again);
            taken += (1 + again) * shaped.len;
        }
        taken
    }
}

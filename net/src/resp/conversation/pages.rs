//! SCAN, KEYS and RANDOMKEY: the keys that the port stands for.

use crate::limits::{KEY_BYTES_MAX, SCAN_BYTES_MAX, SCAN_ENTRIES_MAX};
use crate::scan::ScanRequest;

use super::super::answer::Fold;
use super::super::glob;
use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::request::{ScanStep, TypeAsked};
use super::super::scan::{cursor_at, is_inside_slot, long_cursor, slot_of_cursor};
use super::super::sink::Sink;
use super::super::table::Name;
use super::super::under_way::UnderWay;
use super::super::walk::{Aim, Walk};
use super::{Passed, Talk};

/// Bytes of a pattern, at most: each byte of a key may be compared with all of them.
const PATTERN_BYTES_MAX: usize = 4 * KEY_BYTES_MAX;

fn pattern_too_long(bytes: usize) -> Vec<u8> {
    format!("ERR a pattern of {bytes} bytes; at most {PATTERN_BYTES_MAX} are taken").into_bytes()
}

impl Talk {
    /// KEYS and RANDOMKEY.
    pub(super) fn walk(&mut self, id: Name, args: Arguments<'_>, host: &dyn Host) {
        if id == Name::Keys && args.get(1).len() > PATTERN_BYTES_MAX {
            return self.error(&pattern_too_long(args.get(1).len()));
        }
        let aim = match id {
            Name::Keys => Aim::All(args.get(1).into()),
            _ => Aim::One(self.mixed(host)),
        };
        self.ring.subject().set(id, b"", args.len(), 0);
        let walk = Walk::new(aim, host);
        self.begin_under_way(UnderWay::of_walk(walk, self.bound, self.protocol));
    }

    /// A number that no other moment and no other connection has, spread over all 64 bits.
    fn mixed(&self, host: &dyn Host) -> u64 {
        let mut number = host.unix_us() ^ self.client.id << 48 ^ self.ring.next_item() << 32;
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            number = (number ^ number >> 30).wrapping_mul(factor);
        }
        number ^ number >> 31
    }

    /// SCAN.
    pub(super) fn scan(
        &mut self,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let step = match ScanStep::read(args) {
            Ok(step) => step,
            Err(fault) => return self.refuse(|out| fault.write(args, out)),
        };
        let pattern = step.pattern.filter(|pattern| *pattern != b"*");
        if let Some(pattern) = pattern.filter(|pattern| pattern.len() > PATTERN_BYTES_MAX) {
            return self.refuse_only(&pattern_too_long(pattern.len()));
        }
        let prefix = pattern.map_or(&[][..], glob::literal_prefix);
        // No key is so long, or has such a type.
        if prefix.len() > KEY_BYTES_MAX || step.of_type == Some(TypeAsked::Other) {
            let protocol = self.protocol;
            self.ring.reply(protocol, &mut self.out, |replies| {
                replies.array(2);
                replies.bulk(b"0");
                replies.array(0);
            });
            return Passed::Whole;
        }
        let share = host.share();
        let cursor = match step.cursor {
            0 if *share.start() > 0 => cursor_at(*share.start(), host.scan_order()),
            cursor => cursor,
        };
        let slot = slot_of_cursor(cursor);
        if !share.contains(&slot) {
            let text = format!(
                "ERR SCAN: the cursor stands in slot {slot}, which another core has: begin anew"
            );
            return self.refuse_only(text.as_bytes());
        }
        if !sink.has_room(1, 2 * KEY_BYTES_MAX) {
            return Passed::Part;
        }
        let first = self.ring.next_item();
        let (batch, out) = sink.batch(first);
        batch.scan(
            out,
            &ScanRequest {
                cursor: long_cursor(cursor, host.scan_order()),
                prefix,
                entries_max: step.count.min(SCAN_ENTRIES_MAX),
                bytes_max: SCAN_BYTES_MAX,
                wants_values: false,
                wants_types: step.of_type.is_some(),
            },
        );
        self.ring.subject().set(Name::Scan, b"", args.len(), slot);
        let fold = Fold::Scan {
            pattern: pattern.map(Box::from),
            of_type: match step.of_type {
                Some(TypeAsked::Number(number)) => Some(number),
                Some(TypeAsked::Other) | None => None,
            },
            is_inside: is_inside_slot(cursor),
        };
        let entry = self.ring.push(fold, self.protocol);
        self.ring.add_item(entry);
        self.ring.close(entry, &mut self.out);
        Passed::Whole
    }
}

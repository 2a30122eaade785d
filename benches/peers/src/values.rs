//! What one cached value costs beyond its bytes.

use std::hint::black_box;
use std::sync::Arc;

use clap::Args;
use penstock_storage::cache::{Cache, HEAD_BYTES, SMALL_BYTES_MAX};

use crate::Outcome;
use crate::report::{Cell, Report, Table};
use crate::scratch;
use crate::workload;

const KEY_BYTES: usize = 16;
const SIZES: [usize; 6] = [0, 8, 20, 21, 100, 64 << 10];
/// Beyond so many bytes of values fewer of them are made.
const TOTAL_BYTES_MAX: usize = 256 << 20;

#[derive(Args)]
pub struct Options {
    /// Values of each size, rounded up to a power of two; fewer of large ones, so that they take
    /// 256 MiB at most.
    #[arg(long, default_value = "65536", value_parser = scratch::quantity)]
    values: u64,
}

pub fn run(options: &Options) -> Outcome<Report> {
    let mut table = Table::new(
        "bytes beyond the value's own: slot and heap as asked for / with malloc's block (heap \
         blocks per value)",
        &["value B", "Penstock cell", "Arc<[u8]>", "bytes", "byteview"],
    );
    for size in SIZES {
        let wanted = usize::try_from(options.values)?.next_power_of_two();
        let most = (TOTAL_BYTES_MAX / size.max(1)).next_power_of_two() / 2;
        let count = wanted.min(most.max(1));
        let value = workload::value(size);
        let cells = [
            cost_of_cells(count, &value),
            cost(count, size, size_of::<Arc<[u8]>>(), || {
                Arc::<[u8]>::from(value.as_slice())
            }),
            cost(count, size, size_of::<bytes::Bytes>(), || {
                bytes::Bytes::copy_from_slice(&value)
            }),
            cost(count, size, size_of::<byteview::ByteView>(), || {
                byteview::ByteView::new(&value)
            }),
        ];
        table.row(
            std::iter::once(Cell::count(size as f64))
                .chain(cells)
                .collect(),
        );
    }
    let mut report = Report::default();
    report.tables.push(table);
    report.note(format!(
        "Penstock's column is a whole entry of its cache, so the key of {KEY_BYTES} B (not \
         counted), version, expiry and place in the log are in it, and the room of its pages; the \
         others are the bare value in a Vec"
    ));
    report.note(
        "malloc's block is glibc's: 8 bytes more, in steps of 16, 32 at least; 4 KiB \
         steps from 128 KiB on",
    );
    Ok(report)
}

/// Overhead of `count` values that `make` makes, each in a slot of a vector.
fn cost<T>(count: usize, size: usize, slot: usize, make: impl Fn() -> T) -> Cell {
    let mut kept: Vec<T> = Vec::with_capacity(count);
    let mut blocks = Vec::with_capacity(count);
    for _ in 0..count {
        let info = allocation_counter::measure(|| kept.push(make()));
        blocks.push((info.count_current, info.bytes_current));
    }
    black_box(&kept);
    let bytes: i64 = blocks.iter().map(|(_, bytes)| bytes).sum();
    let taken: i64 = blocks
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(_, bytes)| block_bytes(*bytes))
        .sum();
    let number: i64 = blocks.iter().map(|(count, _)| count).sum();
    shown(count, size, slot as f64, bytes, taken, number)
}

/// The same of the cells of a cache, by its own account: most share the pages of their length.
fn cost_of_cells(count: usize, value: &[u8]) -> Cell {
    let mut cache = Cache::new(usize::MAX);
    let mut key = Vec::new();
    for index in 0..count as u64 {
        workload::key_into(&mut key, index, KEY_BYTES, workload::Order::Random);
        black_box(cache.insert(&key, value, None));
    }
    let has_block = HEAD_BYTES + KEY_BYTES + value.len() > SMALL_BYTES_MAX;
    shown(
        count,
        value.len() + KEY_BYTES,
        cache.memory_bytes() as f64 / count as f64,
        0,
        0,
        if has_block { count as i64 } else { 0 },
    )
}

fn shown(count: usize, own: usize, slot: f64, asked: i64, taken: i64, number: i64) -> Cell {
    let each = |sum: i64| sum as f64 / count as f64;
    Cell::text(format!(
        "{:.0} / {:.0} ({:.1})",
        slot + each(asked) - own as f64,
        slot + each(taken) - own as f64,
        each(number)
    ))
}

/// What glibc takes for a block of so many bytes.
fn block_bytes(asked: i64) -> i64 {
    match asked {
        ..=0 => 0,
        1..131_072 => ((asked + 8 + 15) / 16 * 16).max(32),
        _ => (asked + 16 + 4095) / 4096 * 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arc_of_a_hundred_bytes_costs_its_pointer_and_its_counts() {
        let Cell::Text(shown) = cost(4, 100, size_of::<Arc<[u8]>>(), || {
            Arc::<[u8]>::from([7; 100])
        }) else {
            panic!("a text");
        };
        // 16 B of fat pointer, two counts, rounding to 8; with malloc's block 128.
        assert_eq!(shown, "36 / 44 (1.0)");
    }
}

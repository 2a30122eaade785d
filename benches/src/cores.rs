//! The ports of a server's shards: each connection comes by one, and asks for its keys alone, so
//! that no operation goes from core to core.

use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::Duration;

use penstock_net::hello::SlotRange;
use penstock_net::slot::slot_of;

use crate::BenchError;
use crate::args::{BenchArgs, Workload};
use crate::entry::Access;
use crate::workload::{SALE_STOCK, STOCK, key};

/// How long the port of a shard may take to accept.
const PROBE: Duration = Duration::from_secs(1);

/// How long a server may take to say which shards it has.
const GREETING: Duration = Duration::from_secs(30);

/// Where a connection comes in, and the slots of the keys that it draws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) address: SocketAddr,
    /// `None` is all.
    pub(crate) slots: Option<RangeInclusive<u16>>,
}

/// The seats at one server: one for each shard, or one for all connections.
#[derive(Clone, Debug)]
pub(crate) struct Seats(Vec<Seat>);

impl Seats {
    /// Asks the server for its shards. One seat at the port that they share if there is one shard,
    /// if the port of one cannot be reached, or if connections go from server to server.
    ///
    /// # Errors
    /// The server cannot be reached or refuses the connection.
    pub(crate) fn of(args: &BenchArgs, access: &Access) -> Result<Seats, BenchError> {
        let shared = args.addr[0];
        let all = Seats(vec![Seat {
            address: shared,
            slots: None,
        }]);
        if args.ports.raw || args.ports.shared_port || args.ledger {
            return Ok(all);
        }
        let (_, ranges) = access.enter_greeted(shared, GREETING)?;
        let seats = seats(args, &ranges);
        let is_there = |seat: &Seat| TcpStream::connect_timeout(&seat.address, PROBE).is_ok();
        match ranges.len() > 1 && seats.iter().all(is_there) {
            true => Ok(Seats(seats)),
            false => Ok(all),
        }
    }

    /// That of a connection.
    pub(crate) fn seat(&self, connection: u32) -> &Seat {
        &self.0[connection as usize % self.0.len()]
    }
}

/// The seats at shards that have these slots, for the keys of the workload.
fn seats(args: &BenchArgs, ranges: &[SlotRange]) -> Vec<Seat> {
    let slots = |range: &SlotRange| range.first..=range.last;
    let one_key = match args.workload() {
        Workload::Decr => Some(slot_of(STOCK)),
        Workload::Buy | Workload::SoldOut => Some(slot_of(SALE_STOCK)),
        _ => None,
    };
    let has_keys = |range: &&SlotRange| match one_key {
        Some(slot) => slots(range).contains(&slot),
        None if args.workload().has_keys() => {
            (0..args.keys as usize).any(|number| slots(range).contains(&slot_of(&key(number))))
        }
        None => true,
    };
    let seat = |range: &SlotRange| Seat {
        address: SocketAddr::new(args.addr[0].ip(), range.port),
        slots: args.workload().has_keys().then(|| slots(range)),
    };
    ranges.iter().filter(has_keys).map(seat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::load;

    fn ranges() -> Vec<SlotRange> {
        let range = |shard: u16| SlotRange {
            first: shard * 8192,
            last: shard * 8192 + 8191,
            shard,
            port: 7420 + shard,
        };
        vec![range(0), range(1)]
    }

    #[test]
    fn each_shard_has_a_seat_with_its_slots_if_the_workload_has_keys_of_it() {
        let ports = |words: &[&str]| -> Vec<u16> {
            let seats = seats(&load(words).0, &ranges());
            seats.iter().map(|seat| seat.address.port()).collect()
        };
        for words in [
            &["get"][..],
            &["set"],
            &["mixed"],
            &["echo"],
            &["echo-items"],
        ] {
            assert_eq!(ports(words), [7420, 7421], "{words:?}");
        }
        let owner = |key: &[u8]| 7420 + slot_of(key) / 8192;
        assert_eq!(ports(&["decr"]), [owner(STOCK)]);
        assert_eq!(ports(&["buy"]), [owner(SALE_STOCK)]);
        assert_eq!(ports(&["get", "--keys", "1"]), [owner(&key(0))]);
        let seats = seats(&load(&["get"]).0, &ranges());
        assert_eq!(seats[1].slots, Some(8192..=16_383));
    }
}

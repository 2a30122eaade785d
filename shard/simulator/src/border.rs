//! Whether a shard has every token that it must have: one that is gone is older than the border of
//! its partition, whatever the clock says. Another shard, whose clock is behind, would take it for
//! new.

use penstock_net::request::Token;
use penstock_net::slot::tag_of;
use penstock_storage::horizon::Horizon;
use penstock_storage::key_home::KeyHome;
use penstock_storage::record::{PartKind, PartView};
use penstock_storage::store::{Found, Store};
use penstock_storage::system_key::{HORIZON_KEY, token_key};
use penstock_storage::version::{PARTITIONS, SLOTS, partition_of};

use crate::disk::{Disk, Pool};

/// Holds the tokens of some slots, which are there for certain, against the store that owns these.
///
/// # Errors
/// Which token is gone too early.
pub fn judge_border(
    (store, disk): (&Store<Pool>, &Disk),
    home_of: &impl Fn(&[u8]) -> KeyHome,
    tokens: impl Iterator<Item = (u16, Token)>,
) -> Result<(), String> {
    let seen_at = |key: &[u8]| seen_at((store, disk), home_of(key), key);
    for (slot, token) in tokens {
        let Seen::Absent = seen_at(&token_key(tag_of(slot), token.name())) else {
            continue;
        };
        let border_ms = match seen_at(&horizon_key(slot)) {
            Seen::Value(value) => Horizon::decode(&value)
                .ok_or("a horizon is not understood")?
                .complete_from_ms(),
            Seen::Absent => 0,
            Seen::Unknown => continue,
        };
        let token_ms = token.time_ms();
        if token_ms >= border_ms {
            return Err(format!(
                "a token of {token_ms} in slot {slot} is gone, and the border is at {border_ms}"
            ));
        }
    }
    Ok(())
}

/// The key of the horizon of the partition of a slot.
fn horizon_key(slot: u16) -> Vec<u8> {
    let first = partition_of(slot) * (usize::from(SLOTS) / PARTITIONS);
    let tag = tag_of(u16::try_from(first).expect("a slot"));
    [HORIZON_KEY, &tag, b"}"].concat()
}

/// What a look at a key finds.
enum Seen {
    /// Its value, expired or not.
    Value(Vec<u8>),
    Absent,
    /// Its part is damaged, or that of another key of its hash.
    Unknown,
}

fn seen_at((store, disk): (&Store<Pool>, &Disk), home: KeyHome, key: &[u8]) -> Seen {
    let place = match store.keys().find(home.slot, home.hash, key) {
        Found::Absent => return Seen::Absent,
        Found::Cached(id) => {
            let cell = store.keys().cell(id);
            return match cell.is_deleted() {
                true => Seen::Absent,
                false => Seen::Value(cell.value().to_vec()),
            };
        }
        Found::Cold(place) => place,
    };
    let start = usize::try_from(place.offset).expect("small files");
    let image = disk.image(place.file).and_then(|image| image.get(start..));
    match image.map(PartView::read) {
        Some(Ok(part)) if part.key() == key && part.kind() == PartKind::Put => {
            Seen::Value(part.value().to_vec())
        }
        _ => Seen::Unknown,
    }
}

//! What the log seals, on its way to the ring: all of it while somebody reads the ring or may come
//! back for it, else nothing.

use penstock_storage::io::Blocks;
use penstock_storage::store::Store;

use crate::replication::record::position_of;
use crate::replication::ring::Ring;

/// Hands what was sealed in this turn to the ring. `is_read` tells whether a link is there by which
/// this node ships.
pub(super) fn hand_over<P: Blocks>(ring: &mut Ring, is_read: bool, store: &mut Store<P>) {
    match is_read {
        true => {
            let appended = store.log().appended();
            ring.read_on(appended, |number| {
                position_of(store.log().history().last(usize::from(number)))
            });
            store.log_mut().tap();
        }
        false => ring.leave(),
    }
    while !ring.is_resting()
        && let Some(frame) = store.log_mut().take_sealed()
    {
        ring.push(frame.first, frame.bytes);
    }
    if ring.is_resting() {
        store.log_mut().untap();
        ring.pass(store.log().appended());
    }
}

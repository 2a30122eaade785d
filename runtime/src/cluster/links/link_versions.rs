//! The versions of links that this process offers to other nodes.

use std::sync::atomic::{AtomicU16, Ordering};

use penstock_net::link::frame::LINK_VERSION_MAX;

static HIGHEST: AtomicU16 = AtomicU16::new(LINK_VERSION_MAX as u16);

/// Offers no higher version of links than this one from now on, as an earlier build does: a test of
/// upgrades calls it before the process serves. The `penstock` command never does.
pub fn offer_links_up_to(version: u16) {
    HIGHEST.store(version, Ordering::Relaxed);
}

/// The highest version that is offered.
pub(crate) fn highest_offered() -> u16 {
    HIGHEST.load(Ordering::Relaxed)
}

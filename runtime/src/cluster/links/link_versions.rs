//! The versions of links that this process offers to other nodes.

use std::sync::atomic::{AtomicU16, Ordering};

use penstock_net::hello::{FEATURE_MANY_KEYS, FEATURE_PLAN_CORE_PORTS, FEATURE_WRONG_TYPE};
use penstock_net::link::frame::{
    LINK_VERSION_LEVEL_ALL, LINK_VERSION_MANY_PARTS, LINK_VERSION_MAX, LINK_VERSION_MEMBERS,
};

static HIGHEST: AtomicU16 = AtomicU16::new(LINK_VERSION_MAX as u16);

/// Offers no higher version of links than this one from now on, and of `HELLO` no feature that is
/// newer than these links, as an earlier build does: a test of upgrades calls it before the process
/// serves. The `penstock` command never does.
pub fn offer_links_up_to(version: u16) {
    HIGHEST.store(version, Ordering::Relaxed);
}

/// The highest version that is offered.
pub(crate) fn highest_offered() -> u16 {
    HIGHEST.load(Ordering::Relaxed)
}

/// What `HELLO` offers of these features.
pub(crate) fn offered_features(features: u64) -> u64 {
    // Each feature, and the first version of links that came with it or before it.
    let of_versions = [
        (FEATURE_PLAN_CORE_PORTS, LINK_VERSION_LEVEL_ALL),
        (FEATURE_MANY_KEYS, LINK_VERSION_MANY_PARTS),
        (FEATURE_WRONG_TYPE, LINK_VERSION_MEMBERS),
    ];
    let highest = highest_offered();
    let newer = of_versions
        .iter()
        .filter(|(_, version)| highest < u16::from(*version));
    newer.fold(features, |offered, (feature, _)| offered & !feature)
}

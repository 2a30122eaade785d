//! What the cores did: each core writes its own block of numbers, anybody reads them. INFO and
//! `/metrics` tell the same numbers, from two tables: those of a core and those of a link.

mod blocks;
mod channels;
mod failover;
mod figures;
mod info;
mod peers;
mod plan;

pub(crate) use blocks::{HISTOGRAMS, PlainLink, Reading, Stats, total};
pub(crate) use channels::{ChannelFigures, ChannelsRead};
pub(crate) use failover::{Decided, DecidedLast, FailedSwap, FailoverReading};
pub(crate) use figures::{FIGURES, Growth, SECOND_IN_US, Sample};
pub(crate) use info::{ChangesReport, Cluster, FailoverInfo, Info, LogEnd, Memory, ServerFacts};
pub(crate) use peers::PEER_FIGURES;
pub(crate) use plan::{FailoverInForce, PlanInForce, PlanReading, RefusalReason};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_numbers_have_one_name() {
        let names: BTreeSet<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        let of_peers = PEER_FIGURES.iter().map(|figure| figure.metric);
        let metrics = || {
            let figures = FIGURES.iter().filter_map(|figure| figure.metric);
            figures.chain(of_peers.clone())
        };
        let families: BTreeSet<&str> = metrics().map(|(family, _)| family).collect();
        assert_eq!(families.len(), metrics().count());
    }
}

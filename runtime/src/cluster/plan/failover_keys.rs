//! What a plan says of nodes that decide by themselves: `shard/FAILOVER.md`.

use penstock_shard::lease::LeaseRules;

use crate::cluster::plan::toml_values::{Table, number, switch};

/// The members that a partition can have.
const MEMBERS_MAX: u64 = 254;
/// Above every length that is allowed, for the message to name the value.
const MS_MAX: u64 = 1 << 40;
const GRACE_MS_MAX: u64 = 60_000;

/// The keys of a plan about that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailoverKeys {
    /// `failover`; `None` if the plan does not have it: then it never was on.
    pub(crate) switched: Option<bool>,
    /// `failover_paused`.
    pub(crate) is_paused: bool,
    /// `lease_ms` and `grace_ms`.
    pub(crate) rules: LeaseRules,
    /// `min_sync`.
    pub(crate) min_sync: usize,
}

impl FailoverKeys {
    /// Their names.
    pub(crate) const NAMES: [&str; 5] = [
        "failover",
        "failover_paused",
        "lease_ms",
        "grace_ms",
        "min_sync",
    ];

    /// Reads them from a plan with so many nodes.
    pub(crate) fn read(table: &Table<'_>, nodes: usize) -> Result<FailoverKeys, String> {
        const WHOSE: &str = "the file";
        let has = |name| table.contains_key(name);
        let length_us = |name, default_us| match has(name) {
            true => number(table, WHOSE, name, 0, MS_MAX).map(|ms| ms * 1000),
            false => Ok(default_us),
        };
        let lease_us = length_us("lease_ms", LeaseRules::STARVED.lease_us())?;
        let grace_us = length_us("grace_ms", LeaseRules::STARVED.grace_us())?;
        let rules = LeaseRules::new(lease_us, grace_us).map_err(|error| error.to_string())?;
        if grace_us > GRACE_MS_MAX * 1000 {
            let grace_ms = grace_us / 1000;
            return Err(format!("grace_ms = {grace_ms}: at most {GRACE_MS_MAX}"));
        }
        let min_sync = match has("min_sync") {
            true => number(table, WHOSE, "min_sync", 0, MEMBERS_MAX)?,
            false => 0,
        };
        let min_sync = usize::try_from(min_sync).expect("at most 254");
        if min_sync >= nodes {
            let most = nodes - 1;
            let members = if most == 1 { "member" } else { "members" };
            return Err(format!(
                "min_sync = {min_sync}: with {nodes} nodes a partition has {most} {members} at most"
            ));
        }
        Ok(FailoverKeys {
            switched: match has("failover") {
                true => Some(switch(table, WHOSE, "failover")?),
                false => None,
            },
            is_paused: switch(table, WHOSE, "failover_paused")?,
            rules,
            min_sync,
        })
    }

    /// Whether nodes decide by themselves.
    pub(crate) fn is_on(&self) -> bool {
        self.switched == Some(true)
    }
}

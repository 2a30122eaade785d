//! Rights beside a look at every prefix, on keys and prefixes that nobody chose.
//!
//! An input is a list of prefixes, each with a byte for the right and one for the length, an empty
//! one with the right 0xFF, and the key.

use penstock_net::rights::{Grants, Need, Right, Rights};

use crate::target::Choices;
use crate::without_memory;

const GRANTS_MAX: usize = 64;

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut granted = Vec::new();
    let mut grants = Grants::new();
    while granted.len() < GRANTS_MAX {
        let right = choices.byte();
        let len = usize::from(choices.byte() % 65);
        let prefix = choices.bytes(len);
        if right == 0xFF || choices.is_empty() {
            break;
        }
        let right = Right::ALL[usize::from(right % 4)];
        match right {
            Right::Run => grants.grant_run("buy", prefix),
            right => grants.grant(right, prefix),
        }
        .expect("within the limits");
        granted.push((right, prefix));
    }
    let rights = Rights::new("ann", &grants);
    let key = choices.rest();
    // The key, and keys at the borders of each prefix.
    let borders = granted.iter().flat_map(|(_, prefix)| {
        let behind = [prefix, &[0xFF, 0xFF][..]].concat();
        [prefix.to_vec(), behind, [prefix, key].concat()]
    });
    for key in borders.chain([key.to_vec()]) {
        for right in Right::ALL {
            let begins =
                |(granted, prefix): &(Right, &[u8])| *granted == right && key.starts_with(prefix);
            let has = granted.iter().any(begins);
            let is_allowed = without_memory(|| match right {
                Right::Run => rights.demand_run(Some("buy"), &key).is_ok(),
                right => rights.allows(Need::of(right), &key),
            });
            assert_eq!(is_allowed, has, "{right:?} at {key:?}");
        }
        assert!(rights.demand_run(Some("refund"), &key).is_err());
    }
}

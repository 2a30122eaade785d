//! The ports of a server: no two listeners have one.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::config::Config;

/// The first option whose port is that of another one on a server of so many shards, and why that
/// is refused. `links` is where a node takes links. Port 0 is a free one, and taken by nobody.
pub(crate) fn port_conflict(
    config: &Config,
    shards: u16,
    links: Option<SocketAddr>,
) -> Option<(&'static str, String)> {
    let single = [
        ("listen", Some(config.listen)),
        ("admin_listen", config.admin_listen),
        ("resp_listen", config.resp_listen),
        ("links", links),
    ];
    let single = single.into_iter().filter_map(|(name, address)| {
        let address = address.filter(|address| address.port() != 0)?;
        Some((name, address))
    });
    let taken: Vec<(&'static str, SocketAddr)> = single.collect();
    // The address of links may be another one of the machine: the start finds out.
    let own = taken.iter().filter(|(name, _)| *name != "links");
    for (at, (name, address)) in own.enumerate() {
        let before = &taken[..at];
        if let Some((other, same)) = before.iter().find(|(_, it)| it.port() == address.port()) {
            return Some((name, format!("it has the port of {other} = {same}")));
        }
    }
    let mut ranges: Vec<(&'static str, RangeInclusive<u32>)> = Vec::new();
    for (name, base) in [
        ("shard_ports", config.shard_ports),
        ("resp_shard_ports", config.resp_shard_ports),
        ("resp_announce_ports", config.resp_announce_ports),
    ] {
        if base == 0 {
            continue;
        }
        let ports = u32::from(base)..=u32::from(base) + u32::from(shards) - 1;
        let (first, last) = (*ports.start(), *ports.end());
        if last > u16::MAX.into() {
            let cause = format!("{shards} shards from there end at port {last}, the last is 65535");
            return Some((name, cause));
        }
        if name == "resp_announce_ports" {
            // Nobody listens there.
            continue;
        }
        let of_shards = format!("the ports of the shards, {first}..{last}, take in");
        if let Some((other, address)) = taken
            .iter()
            .find(|(_, it)| ports.contains(&it.port().into()))
        {
            return Some((name, format!("{of_shards} that of {other} = {address}")));
        }
        if let Some((other, others)) = ranges
            .iter()
            .find(|(_, it)| it.start() <= &last && &first <= it.end())
        {
            let (from, to) = (others.start(), others.end());
            return Some((name, format!("{of_shards} those of {other}, {from}..{to}")));
        }
        ranges.push((name, ports));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflict(shards: u16, change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let links = "10.0.0.1:7414".parse().ok();
        match port_conflict(&config, shards, links) {
            Some((name, cause)) => format!("{name}: {cause}"),
            None => String::new(),
        }
    }

    #[test]
    fn no_two_listeners_have_one_port() {
        assert_eq!(conflict(256, |_| {}), "");
        for (base, shards, cause) in [
            (7410, 1, ""),
            (7410, 2, "take in that of listen = 127.0.0.1:7411"),
            (7412, 1, "take in that of admin_listen = 127.0.0.1:7412"),
            (7413, 2, "take in that of resp_listen = 127.0.0.1:7413"),
            (7414, 2, "take in that of links = 10.0.0.1:7414"),
            (7415, 5, ""),
            (7415, 6, "take in those of shard_ports, 7420..7425"),
            (
                7421,
                2,
                "7421..7422, take in those of shard_ports, 7420..7421",
            ),
            (7422, 2, ""),
            (65_535, 1, ""),
            (65_535, 2, "2 shards from there end at port 65536"),
        ] {
            let refusal = conflict(shards, |config| config.resp_shard_ports = base);
            match cause {
                "" => assert_eq!(refusal, ""),
                cause => {
                    let is_named = refusal.starts_with("resp_shard_ports: ");
                    assert!(is_named && refusal.contains(cause), "{base}: {refusal}");
                }
            }
        }
        let announced = |shards| {
            conflict(shards, |config| {
                config.resp_shard_ports = 7430;
                config.resp_announce_ports = 65_534;
            })
        };
        assert_eq!(announced(2), "");
        assert!(
            announced(3).starts_with("resp_announce_ports: "),
            "{}",
            announced(3)
        );
        let free = |config: &mut Config| {
            config.shard_ports = 0;
            config.listen.set_port(0);
            config.resp_listen = Some(config.listen);
            config.admin_listen = Some(config.listen);
        };
        assert_eq!(conflict(3, free), "");
    }
}

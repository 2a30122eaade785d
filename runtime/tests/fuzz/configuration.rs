//! Flags, variables and a file of options: what is accepted can be written down as it is shown and
//! means the same again; what is refused is told in words.
//!
//! An input is a list of flags and variables (a choice of 0 to 3, then option, and text), then the
//! text of the file.

use std::path::PathBuf;

use penstock::config::{
    Config, ConfigOption, ENVIRONMENT_PREFIX, Kind, OPTIONS, Settings, Sources, Unit,
};

use crate::target::{Choices, keep};
use crate::{FOLDER, in_proportion};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut sources = Sources::default();
    for _ in 0..choices.byte() % 4 {
        let option = &OPTIONS[choices.below(OPTIONS.len())];
        let len = choices.below(24);
        let text = String::from_utf8_lossy(choices.bytes(len)).into_owned();
        match choices.byte() % 3 {
            0 => sources.environment.push((option.variable(), text)),
            1 => sources.flags.push((option.name, text)),
            _ => sources
                .environment
                .push((format!("{ENVIRONMENT_PREFIX}{text}"), "1".into())),
        }
    }
    if !choices.is_empty() {
        let text = String::from_utf8_lossy(choices.rest()).into_owned();
        sources.file = Some(("penstock.toml".into(), text));
    }
    let settings = match in_proportion(input.len(), || Settings::resolve(&sources)) {
        Ok(settings) => settings,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            assert!(text.len() <= 16 * input.len() + 2_000);
            return;
        }
    };
    for (name, text) in &sources.flags {
        check_quantity(name, text, &sources.flags, &settings);
    }
    // What is shown can be typed, and then means the same.
    let table = settings.explain();
    let mut config = settings.config.clone();
    let kinds = OPTIONS.iter().map(|option| &option.kind);
    let named = kinds.filter(|kind| matches!(kind, Kind::Path | Kind::PathOrOff));
    assert_eq!(named.count(), 1 + optional_paths(&mut config).len());
    let mut paths = optional_paths(&mut config)
        .map(|path| path.clone())
        .to_vec();
    paths.push(Some(config.data));
    let mut shown = paths.iter().flatten().map(|path| path.to_string_lossy());
    if shown.any(|path| path.contains('\n')) {
        return;
    }
    // What etcd is asked with needs paths beside it.
    let is_of_etcd = |option: &ConfigOption| option.name.starts_with("etcd_");
    let rows = table.lines().skip(1).zip(OPTIONS);
    let rows = rows.filter(|(_, option)| !is_of_etcd(option));
    let flags = rows.filter(|(_, option)| !matches!(option.kind, Kind::Path | Kind::PathOrOff));
    let flags = flags.map(|(row, option)| {
        let mut words = row.split_whitespace();
        assert_eq!(words.next(), Some(option.name));
        (option.name, words.next().expect("a value").to_string())
    });
    let again = Sources {
        flags: flags.collect(),
        ..Sources::default()
    };
    let mut again = Settings::resolve(&again).expect("what is shown is allowed");
    assert_eq!(again.explain().lines().count(), OPTIONS.len() + 1);
    // A path may hold spaces, so the words of its row do not give the path back.
    again.config.data.clone_from(&settings.config.data);
    let given = &settings.config;
    again
        .config
        .etcd_endpoints
        .clone_from(&given.etcd_endpoints);
    again.config.etcd_prefix.clone_from(&given.etcd_prefix);
    again.config.etcd_user.clone_from(&given.etcd_user);
    let before = optional_paths(&mut again.config).into_iter().zip(paths);
    before.for_each(|(path, given)| *path = given);
    assert_eq!(again.config, settings.config);
}

/// Every path of a configuration that may be absent.
fn optional_paths(config: &mut Config) -> [&mut Option<PathBuf>; 17] {
    [
        &mut config.cluster,
        &mut config.log_file,
        &mut config.audit_file,
        &mut config.schema,
        &mut config.users,
        &mut config.admin_token_file,
        &mut config.tls_cert,
        &mut config.tls_key,
        &mut config.tls_client_ca,
        &mut config.etcd_secret_file,
        &mut config.etcd_ca,
        &mut config.etcd_cert,
        &mut config.etcd_key,
        &mut config.cluster_secret_file,
        &mut config.cluster_tls_cert,
        &mut config.cluster_tls_key,
        &mut config.cluster_tls_ca,
    ]
}

/// A number of the command line means what it says, computed with room for every overflow.
fn check_quantity(name: &str, text: &str, flags: &[(&'static str, String)], settings: &Settings) {
    let option = OPTIONS.iter().find(|option| option.name == name);
    let option = option.expect("flags are made from the table");
    let units: &[(&str, u128)] = match option.kind {
        Kind::Size(..) => &[
            ("", 1),
            ("B", 1),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
        ],
        Kind::Duration(..) => &[
            ("us", 1),
            ("ms", 1_000),
            ("s", 1_000_000),
            ("m", 60_000_000),
            ("h", 3_600_000_000),
        ],
        _ => return,
    };
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '_')
            .unwrap_or(text.len()),
    );
    let number: u128 = number.replace('_', "").parse().expect("it was accepted");
    let unit = unit.trim_start();
    let own: u128 = match option.kind {
        Kind::Duration(Unit::Microseconds, ..) => 1,
        Kind::Duration(Unit::Milliseconds, ..) => 1_000,
        Kind::Duration(Unit::Seconds, ..) => 1_000_000,
        _ => 1,
    };
    let factor = match units.iter().find(|(known, _)| *known == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => own,
        None => panic!("{text:?} was accepted for {name}"),
    };
    assert_eq!(number * factor % own, 0, "{text:?} for {name}");
    let meant = number * factor / own;
    let config = &settings.config;
    let is = match name {
        "interval_ms" => config.interval_ms.into(),
        "value_bytes_max" => config.value_bytes_max.into(),
        "frame_bytes_max" => config.frame_bytes_max.into(),
        "output_bytes_max" => config.output_bytes_max.into(),
        "idle_timeout_s" => config.idle_timeout_s.into(),
        "resp_idle_timeout_s" => config.resp_idle_timeout_s.into(),
        "token_horizon_s" => config.token_horizon_s.into(),
        "partial_frame_timeout_ms" => config.partial_frame_timeout_ms.into(),
        "write_stall_timeout_ms" => config.write_stall_timeout_ms.into(),
        "cache_bytes" => config.cache_bytes.into(),
        "segment_bytes" => config.segment_bytes.into(),
        "disk_bytes_max" => config.disk_bytes_max.into(),
        "memory_max" => config.memory_max.into(),
        "cleaning_bytes_per_s" => config.cleaning_bytes_per_s.into(),
        "scrub_period_s" => config.scrub_period_s.into(),
        "spin_us" => config.spin_us.into(),
        "clock_wait_s" => config.clock_wait_s.into(),
        other => panic!("{other} is a quantity that this test does not know"),
    };
    // Of two flags the later one holds.
    let is_last = |flags: &[(&str, String)]| {
        flags
            .iter()
            .rfind(|(n, _)| *n == name)
            .is_none_or(|(_, t)| t == text)
    };
    assert!(
        meant == is || !is_last(flags),
        "{text:?} for {name} means {meant}, not {is}"
    );
}

#[test]
fn options_of_every_kind_are_kept() {
    let deployed = include_str!("../../../deploy/penstock.toml");
    let uncommented: String = deployed
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .collect();
    let file = |text: &str| [&[0], text.as_bytes()].concat();
    let mut inputs = vec![
        ("deployed".to_string(), file(&deployed[..900])),
        ("every-option".to_string(), file(&uncommented)),
        ("unknown".to_string(), file("shard = 2\n")),
        ("nested".to_string(), file("[listen]\nport = 1\n")),
        ("twice".to_string(), file("io = \"auto\"\nio = \"uring\"\n")),
        ("line-in-a-key".to_string(), file("\"a\\nb\" = 1\n")),
        ("broken".to_string(), file("listen = \"127.0.0.1:\n")),
        (
            "conflict".to_string(),
            file("value_bytes_max = \"16MiB\"\n"),
        ),
    ];
    for (number, option) in (0u8..).zip(OPTIONS) {
        let texts = match option.kind {
            Kind::Size(..) => ["64KiB", "1_000_000", "18446744073709551615GiB"],
            Kind::Duration(..) => ["1500us", "2 s", "99999999999999999h"],
            Kind::Address => ["[::1]:0", "localhost:7411", "1.2.3.4"],
            Kind::AddressOrOff => ["[::1]:0", "off", "on"],
            _ => ["1", "auto", "true"],
        };
        for (which, text) in (0u8..).zip(texts) {
            let len = u8::try_from(text.len()).expect("short");
            let input = [&[1, number, len], text.as_bytes(), &[which % 2]].concat();
            inputs.push((format!("{}-{which}", option.name), input));
        }
    }
    // A certificate and its key are allowed together alone.
    let flag = |name: &str| {
        let number = OPTIONS.iter().position(|option| option.name == name);
        let number = u8::try_from(number.expect("an option")).expect("few options");
        [number, 1, b'p', 1].to_vec()
    };
    let pair = [vec![2], flag("tls_cert"), flag("tls_key")].concat();
    inputs.push(("certificate-and-key".to_string(), pair));
    keep(FOLDER, "configuration", &inputs);
}

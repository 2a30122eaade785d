//! Options of earlier builds. Each is refused by its name, with what took its place.

use super::OPTIONS;
use super::option::{ConfigOption, nearest};

/// An option that is gone.
#[derive(Clone, Copy, Debug)]
pub struct RemovedOption {
    /// Its key in the file. Flag and variable followed from it, as those of an option do.
    pub name: &'static str,
    /// What took its place.
    pub instead: &'static str,
}

/// Every option that is gone.
pub const REMOVED: &[RemovedOption] = &[
    RemovedOption {
        name: "huge_pages",
        instead: "the system says it, in /sys/kernel/mm/transparent_hugepage/enabled",
    },
    RemovedOption {
        name: "snapshot_bytes",
        instead: "a shard takes a snapshot behind 32MiB of short records, or more of long ones",
    },
    RemovedOption {
        name: "frames_in_flight",
        instead: "at most two group commits of a shard are on their way at once",
    },
    RemovedOption {
        name: "durable_by",
        instead: "the disk's ring makes writes durable, and the thread of a shard makes a lone one \
                  itself while other programs want its core",
    },
    RemovedOption {
        name: "calibrate",
        instead: "remove the file CALIBRATION of the data directory, and the start times the disk",
    },
    RemovedOption {
        name: "tcp_keepalive_s",
        instead: "the kernel probes each silent client connection after a minute",
    },
];

/// What is said of a name that no option has. `written` writes an option as the same source does.
pub(super) fn no_such(name: &str, written: impl Fn(&ConfigOption) -> String) -> String {
    let named = |it: &&RemovedOption| {
        name.strip_prefix(it.name)
            .is_some_and(|rest| matches!(rest, "" | "_file"))
    };
    match REMOVED.iter().find(named) {
        Some(RemovedOption { instead, .. }) => format!("the option is gone: {instead}"),
        None => format!(
            "no such option; the nearest is {}",
            written(nearest(OPTIONS, name))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ENVIRONMENT_PREFIX, Settings, Sources};

    fn refusal(sources: &Sources) -> String {
        let refused = Settings::resolve(sources);
        refused.expect_err("it is gone").to_string()
    }

    #[test]
    fn an_option_that_is_gone_is_refused_in_each_source_with_what_took_its_place() {
        for RemovedOption { name, instead } in REMOVED {
            assert!(OPTIONS.iter().all(|option| option.name != *name), "{name}");
            let file = refusal(&Sources {
                file: Some(("p.toml".into(), format!("\n{name} = 2\n"))),
                ..Sources::default()
            });
            let expected = format!("p.toml:2: {name}: the option is gone: {instead}");
            assert_eq!(file, expected);
            let flag = refusal(&Sources {
                flags: vec![(name, "2".into())],
                ..Sources::default()
            });
            let written = name.replace('_', "-");
            assert_eq!(flag, format!("--{written}: the option is gone: {instead}"));
            for end in ["", "_FILE"] {
                let variable = format!("{ENVIRONMENT_PREFIX}{}{end}", name.to_uppercase());
                let message = refusal(&Sources {
                    environment: vec![(variable.clone(), "2".into())],
                    ..Sources::default()
                });
                let expected = format!("environment {variable}: the option is gone: {instead}");
                assert_eq!(message, expected);
            }
        }
    }
}

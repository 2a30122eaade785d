//! The sources of a configuration, merged by rank and checked.

use std::net::IpAddr;
use std::path::PathBuf;

use super::environment::{self, VariableFile};
use super::link_tls::link_tls_conflict;
use super::option::{ConfigOption, Value};
use super::ports::port_conflict;
use super::quantity::size_text;
use super::removed::no_such;
use super::source::{ConfigError, Origin, position, source_text};
use super::toml_file::read_file;
use super::{Config, OPTIONS, exposed};

/// Room that a frame needs beside one value of the largest size: headers, index, two keys,
/// instructions, extension.
const FRAME_OVERHEAD_BYTES: u64 = 16 << 10;

/// What each source says, before anything is resolved.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Option names (as in the table) with the texts given by flags.
    pub flags: Vec<(&'static str, String)>,
    /// Every variable of the process; those without the prefix are passed over.
    pub environment: Vec<(String, String)>,
    /// The files that variables name which end in `_FILE`.
    pub environment_files: Vec<VariableFile>,
    /// Path and text of the TOML file, if one was named.
    pub file: Option<(PathBuf, String)>,
}

impl Sources {
    /// Reads this process's environment, and the files that it and `config` name.
    pub fn of_process(
        flags: Vec<(&'static str, String)>,
        config: Option<PathBuf>,
    ) -> Result<Sources, ConfigError> {
        let environment = std::env::vars_os()
            .map(|(name, value)| {
                (
                    name.to_string_lossy().into_owned(),
                    value.to_string_lossy().into_owned(),
                )
            })
            .collect();
        let named = config.or_else(|| std::env::var_os("PENSTOCK_CONFIG").map(PathBuf::from));
        Sources::read(flags, environment, named)
    }

    /// Reads the files that `environment` names, and the configuration `named`.
    fn read(
        flags: Vec<(&'static str, String)>,
        environment: Vec<(String, String)>,
        named: Option<PathBuf>,
    ) -> Result<Sources, ConfigError> {
        let environment_files =
            environment::read_files(&environment).map_err(ConfigError::Variable)?;
        let file = match named {
            Some(path) => match std::fs::read_to_string(&path) {
                Ok(text) => Some((path, text)),
                Err(error) => {
                    return Err(ConfigError::Unreadable {
                        path,
                        cause: error.to_string(),
                    });
                }
            },
            None => None,
        };
        Ok(Sources {
            flags,
            environment,
            environment_files,
            file,
        })
    }
}

/// Every option resolved, together with where it came from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the server runs with.
    pub config: Config,
    shown: Vec<String>,
    origins: Vec<Origin>,
    file: Option<PathBuf>,
    /// Variables under the prefix that tell of services of Kubernetes.
    service_links: Vec<String>,
}

impl Settings {
    /// Merges the sources by rank and checks each value and what must hold between them.
    pub fn resolve(sources: &Sources) -> Result<Settings, ConfigError> {
        let mut chosen: Vec<(Origin, String)> = OPTIONS
            .iter()
            .map(|option| (Origin::Default, option.default.to_string()))
            .collect();
        let mut values: Vec<Value> = OPTIONS
            .iter()
            .map(|option| option.parse(option.default).expect("tested"))
            .collect();
        let file = sources.file.as_ref().map(|(path, _)| path.clone());

        let mut given = Vec::new();
        if let Some((path, text)) = &sources.file {
            read_file(path, text, &mut given)?;
        }
        let of_variables = environment::given(&sources.environment, &sources.environment_files);
        for value in of_variables.map_err(ConfigError::Variable)? {
            let origin = match value.is_of_file {
                true => Origin::EnvironmentFile,
                false => Origin::Environment,
            };
            given.push((value.index, origin, value.text));
        }
        for (name, text) in &sources.flags {
            let index = position(name).ok_or_else(|| ConfigError::Unknown {
                source: format!("--{}", name.replace('_', "-")),
                cause: no_such(name, ConfigOption::flag),
            })?;
            given.push((index, Origin::Flag, text.clone()));
        }

        for (index, origin, text) in given {
            let option = &OPTIONS[index];
            let value = option.parse(&text).ok_or_else(|| ConfigError::BadValue {
                source: source_text(option, origin, file.as_deref()),
                value: text.clone(),
                allowed: option.allowed_instead_of(&text),
            })?;
            // A wrong value is refused even if a higher source overrides it: it would bite when the
            // flag goes away.
            if origin >= chosen[index].0 {
                chosen[index] = (origin, text);
                values[index] = value;
            }
        }

        let place = |name| position(name).expect("named in the table");
        for beside in [place("admin_listen"), place("resp_listen")] {
            if chosen[beside].0 == Origin::Default
                && let Value::Address(listen) = values[place("listen")]
                && let Value::MaybeAddress(Some(address)) = &mut values[beside]
                && listen.port() == 0
            {
                address.set_port(0);
            }
        }
        let resp = place("resp_listen");
        let is_alone = matches!(values[place("cluster")], Value::MaybePath(None))
            && matches!(values[place("etcd_endpoints")], Value::MaybeUrls(None));
        if chosen[resp].0 == Origin::Default && !is_alone {
            values[resp] = Value::MaybeAddress(None);
        }

        let shown = OPTIONS
            .iter()
            .zip(&values)
            .map(|(option, value)| option.show(value))
            .collect();
        let settings = Settings {
            config: Config::from_values(values),
            shown,
            origins: chosen.into_iter().map(|(origin, _)| origin).collect(),
            file,
            service_links: environment::service_links(&sources.environment),
        };
        settings.check_together()?;
        Ok(settings)
    }

    /// Where the option of that name came from; `None` for a name that is not in the table.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        position(name).map(|index| self.origins[index])
    }

    /// What was passed over, as one line; `None` if nothing was.
    pub fn passed_over(&self) -> Option<String> {
        let first = self.service_links.first()?;
        let others = match self.service_links.len() - 1 {
            0 => String::new(),
            1 => " and 1 other".into(),
            others => format!(" and {others} others"),
        };
        Some(format!(
            "environment {}{others}: passed over, Kubernetes tells of a service by it; \
             enableServiceLinks: false in the pod's spec takes it away",
            first.escape_debug()
        ))
    }

    /// The table that `penstock config explain` prints: option, value, origin, meaning, one row
    /// each.
    pub fn explain(&self) -> String {
        let rows: Vec<[String; 4]> = OPTIONS
            .iter()
            .enumerate()
            .map(|(index, option)| {
                let origin = match self.origins[index] {
                    Origin::Default => "default".to_string(),
                    origin => source_text(option, origin, self.file.as_deref()),
                };
                [
                    option.name.to_string(),
                    self.shown[index].clone(),
                    origin,
                    option.meaning().to_string(),
                ]
            })
            .collect();
        let heading = ["OPTION", "VALUE", "FROM", "MEANING"].map(String::from);
        let width = |column: usize| {
            rows.iter()
                .chain([&heading])
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        };
        let (name, value, origin) = (width(0), width(1), width(2));
        std::iter::once(&heading)
            .chain(&rows)
            .map(|row| {
                format!(
                    "{:name$}  {:value$}  {:origin$}  {}\n",
                    row[0], row[1], row[2], row[3]
                )
            })
            .collect()
    }

    /// What must hold between options. The text names both, with their values, and what to change.
    fn check_together(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        self.check_tls()?;
        if let Some((name, cause)) = link_tls_conflict(config) {
            return self.conflict(name, cause);
        }
        if let Err(unprotected) = exposed(config, None) {
            return self.conflict(unprotected.listener.option(), &unprotected.to_string());
        }
        self.check_resp()?;
        self.check_etcd()?;
        let frame_min = u64::from(config.value_bytes_max) + FRAME_OVERHEAD_BYTES;
        if u64::from(config.frame_bytes_max) < frame_min {
            return self.conflict(
                "frame_bytes_max",
                &format!(
                    "a value of value_bytes_max = {} and its headers need at least {frame_min} \
                     bytes",
                    size_text(config.value_bytes_max.into())
                ),
            );
        }
        if config.output_bytes_max < config.frame_bytes_max {
            return self.conflict(
                "output_bytes_max",
                &format!(
                    "it must hold one reply of frame_bytes_max = {}",
                    size_text(config.frame_bytes_max.into())
                ),
            );
        }
        let segment_min = config.segment_bytes_min();
        if config.segment_bytes > 0 && config.segment_bytes < segment_min {
            return self.conflict(
                "segment_bytes",
                &format!(
                    "four of the largest records must fit, and with value_bytes_max = {} these \
                     take {}; raise it or lower value_bytes_max",
                    size_text(config.value_bytes_max.into()),
                    size_text(segment_min)
                ),
            );
        }
        match port_conflict(config, config.shards.max(1), None) {
            Some((name, cause)) => self.conflict(name, &cause),
            None => Ok(()),
        }
    }

    /// A certificate has a key, and clients show theirs over TLS alone.
    fn check_tls(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        let (certificate, key) = (config.tls_cert.is_some(), config.tls_key.is_some());
        match (certificate, key, config.tls_client_ca.is_some()) {
            (true, false, _) => self.conflict("tls_cert", "its key is missing: give tls_key, too"),
            (false, true, _) => self.conflict("tls_key", "it is the key of no tls_cert"),
            (false, false, true) => self.conflict(
                "tls_client_ca",
                "clients show certificates over TLS alone: give tls_cert and tls_key, too",
            ),
            _ => Ok(()),
        }
    }

    /// The plan has one home, and what etcd is asked with belongs together.
    fn check_etcd(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        let Some(access) = config.etcd_access() else {
            let beside = [
                ("etcd_user", config.etcd_user.is_some()),
                ("etcd_secret_file", config.etcd_secret_file.is_some()),
                ("etcd_ca", config.etcd_ca.is_some()),
                ("etcd_cert", config.etcd_cert.is_some()),
                ("etcd_key", config.etcd_key.is_some()),
                ("cluster_secret_file", config.cluster_secret_file.is_some()),
            ];
            return match beside.iter().find(|(_, is_given)| *is_given) {
                Some((name, _)) => self.conflict(name, "there are no etcd_endpoints"),
                None => Ok(()),
            };
        };
        if let Some(path) = &config.cluster {
            let cause = format!("the plan has one home, and cluster = {path:?} is another");
            return self.conflict("etcd_endpoints", &cause);
        }
        if config.cluster_secret_file.is_none() {
            let cause = "the secret of the cluster is missing: give cluster_secret_file";
            return self.conflict("etcd_endpoints", cause);
        }
        match access.check() {
            Ok(()) => Ok(()),
            Err((name, cause)) => self.conflict(name, cause),
        }
    }

    /// What CLUSTER names to clients of Redis belongs to a port for them.
    fn check_resp(&self) -> Result<(), ConfigError> {
        let config = &self.config;
        let ports = config.resp_shard_ports != 0;
        let announced = [
            ("resp_announce", config.resp_announce.is_some()),
            ("resp_announce_ports", config.resp_announce_ports != 0),
        ];
        if config.resp_listen.is_none() {
            let of_resp = [
                ("resp_shard_ports", ports),
                ("resp_cluster_enabled", config.resp_cluster_enabled),
            ];
            for (name, is_given) in of_resp.into_iter().chain(announced) {
                if is_given {
                    return self.conflict(name, "there is no resp_listen");
                }
            }
        }
        if config.resp_announce_ports != 0 && !ports {
            return self.conflict("resp_announce_ports", "there are no resp_shard_ports");
        }
        if let Some(host) = &config.resp_announce
            && !is_host(host)
        {
            let cause = "a host is an IP address, or 1 to 253 letters, digits, '.', '-' and '_'";
            return self.conflict("resp_announce", cause);
        }
        if config.is_clustered()
            && let Some((name, _)) = announced.iter().find(|(_, is_given)| *is_given)
        {
            let cause = "the plan of the cluster has what clients are sent to: resp and resp_ports \
                         of the node";
            return self.conflict(name, cause);
        }
        Ok(())
    }

    fn conflict(&self, name: &str, cause: &str) -> Result<(), ConfigError> {
        let index = position(name).expect("named in the table");
        let option = &OPTIONS[index];
        Err(ConfigError::Conflict {
            source: source_text(option, self.origins[index], self.file.as_deref()),
            value: self.shown[index].clone(),
            cause: cause.to_string(),
        })
    }
}

/// Whether clients of Redis can be told that word as a host: it has none of the signs that divide
/// an answer of CLUSTER NODES.
fn is_host(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    word.parse::<IpAddr>().is_ok()
        || ((1..=253).contains(&word.len()) && word.bytes().all(is_letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Kind;
    use penstock_net::level::AckLevel;

    fn resolve(
        flags: &[(&'static str, &str)],
        environment: &[(&str, &str)],
        file: &str,
    ) -> Result<Settings, ConfigError> {
        let own = |pair: &(&str, &str)| (pair.0.to_string(), pair.1.to_string());
        Settings::resolve(&Sources {
            flags: flags.iter().map(|(n, t)| (*n, t.to_string())).collect(),
            environment: environment.iter().map(own).collect(),
            environment_files: Vec::new(),
            file: Some(("p.toml".into(), file.to_string())),
        })
    }

    fn refusal(flags: &[(&'static str, &str)], environment: &[(&str, &str)], file: &str) -> String {
        let line = resolve(flags, environment, file).unwrap_err().to_string();
        assert!(!line.contains('\n'), "one line: {line}");
        line
    }

    #[test]
    fn nothing_given_is_the_defaults() {
        let settings = resolve(&[], &[], "").unwrap();
        assert_eq!(settings.config, Config::default());
        assert_eq!(settings.config.listen.to_string(), "127.0.0.1:7411");
        assert_eq!(settings.config.segment_bytes, 0);
        assert_eq!(settings.config.idle_timeout_s, 300);
        assert_eq!(settings.config.durability, AckLevel::Disk);
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let file = "shards = 3\nspin_us = 3\nprefault_percent = 5\n";
        let environment = [("PENSTOCK_SHARDS", "2"), ("PENSTOCK_SPIN_US", "2")];
        let settings = resolve(&[("shards", "1")], &environment, file).unwrap();
        let config = &settings.config;
        assert_eq!(
            (config.shards, config.spin_us, config.prefault_percent),
            (1, 2, 5)
        );
        assert_eq!(settings.origin("shards"), Some(Origin::Flag));
        assert_eq!(settings.origin("spin_us"), Some(Origin::Environment));
        assert_eq!(
            settings.origin("prefault_percent"),
            Some(Origin::File { line: 3 })
        );
        assert_eq!(settings.origin("data"), Some(Origin::Default));
        assert_eq!(settings.origin("date"), None);
    }

    #[test]
    fn a_wrong_value_is_refused_even_where_a_flag_overrides_it() {
        let line = refusal(&[("io", "threads")], &[], "io = \"epoll\"");
        assert_eq!(
            line,
            "p.toml:1: io = \"epoll\": allowed is auto, uring or threads"
        );
    }

    #[test]
    fn unknown_key_names_its_line_and_the_nearest_option() {
        let line = refusal(&[], &[], "# head\n\nsegment_byte = 1\n");
        assert_eq!(
            line,
            "p.toml:3: segment_byte: no such option; the nearest is segment_bytes"
        );
        assert!(refusal(&[], &[], "[server]\nlisten = 1").contains("p.toml:1: server"));
    }

    #[test]
    fn unknown_variable_names_the_nearest_one_and_foreign_ones_are_passed_over() {
        let line = refusal(&[], &[("PENSTOCK_LISTN", "x")], "");
        assert_eq!(
            line,
            "environment PENSTOCK_LISTN: no such option; the nearest is PENSTOCK_LISTEN"
        );
        let others = [
            ("HOME", "/"),
            ("PENSTOCK_ADDR", "x"),
            ("PENSTOCK_USER", "ann"),
            ("PENSTOCK_SECRET_FILE", "z"),
            ("PENSTOCK_CONFIG", "y"),
            ("PENSTOCK_TLS_CA", "z"),
        ];
        resolve(&[], &others, "").unwrap();
    }

    #[test]
    fn the_file_of_a_variable_ranks_as_the_variable_and_is_named() {
        let with = |text: &str, flags: &[(&'static str, &str)]| {
            Settings::resolve(&Sources {
                flags: flags.iter().map(|(n, t)| (*n, t.to_string())).collect(),
                environment: vec![("PENSTOCK_SHARDS_FILE".into(), "/run/shards".into())],
                environment_files: vec![VariableFile {
                    variable: "PENSTOCK_SHARDS_FILE".into(),
                    text: text.into(),
                }],
                file: Some(("p.toml".into(), "shards = 3".into())),
            })
        };
        let settings = with("2", &[]).unwrap();
        assert_eq!(settings.config.shards, 2);
        assert_eq!(settings.origin("shards"), Some(Origin::EnvironmentFile));
        assert!(settings.explain().contains("PENSTOCK_SHARDS_FILE"));
        assert_eq!(with("2", &[("shards", "1")]).unwrap().config.shards, 1);
        let message = with("two", &[]).unwrap_err().to_string();
        let begin = "PENSTOCK_SHARDS_FILE = \"two\": allowed is";
        assert!(message.starts_with(begin), "{message}");
    }

    #[test]
    fn wrong_type_in_the_file_names_file_line_key_value_and_what_is_allowed() {
        let line = refusal(&[], &[], "\nshards = \"two\"");
        assert_eq!(
            line,
            "p.toml:2: shards = \"\\\"two\\\"\": allowed is a whole number, 0..256"
        );
        assert!(refusal(&[], &[], "insecure = 1").contains("allowed is true or false"));
        assert!(refusal(&[], &[], "data = 7").contains("allowed is a path"));
        assert!(refusal(&[], &[], "spin_us = 1.5").contains("= \"1.5\""));
        assert!(refusal(&[], &[], "shards = -1").contains("= \"-1\""));
    }

    #[test]
    fn broken_toml_names_its_line() {
        let line = refusal(&[], &[], "shards = 1\nlisten = \n");
        assert!(line.starts_with("p.toml:2: not TOML: "), "{line}");
        let line = refusal(&[], &[], "shards = 1\ndata = \"/var/lib\nspin_us = 1\n");
        assert!(line.starts_with("p.toml:2: not TOML: "), "{line}");
    }

    #[test]
    fn what_kubernetes_adds_to_the_environment_is_reported_in_one_line() {
        let links = [
            ("PENSTOCK_PORT_7411_TCP", "tcp://10.0.0.1:7411"),
            ("PENSTOCK_PORT", "tcp://10.0.0.1:7411"),
            ("PENSTOCK_SERVICE_HOST", "10.0.0.1"),
        ];
        let line = resolve(&[], &links, "").unwrap().passed_over();
        let line = line.expect("three");
        assert!(line.starts_with("environment PENSTOCK_PORT and 2 others: passed over"));
        assert!(line.contains("enableServiceLinks: false") && !line.contains('\n'));
        assert_eq!(resolve(&[], &[], "").unwrap().passed_over(), None);
    }

    #[test]
    fn unreadable_file_names_its_path() {
        let missing = PathBuf::from("/nowhere/p.toml");
        let environment = vec![("PENSTOCK_SHARDS".into(), "2".into())];
        let error = Sources::read(Vec::new(), environment, Some(missing)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read the configuration /nowhere/p.toml: ")
        );
    }

    #[test]
    fn address_beyond_loopback_needs_the_flag() {
        for address in ["0.0.0.0:7410", "[::]:7410", "192.168.1.4:7410"] {
            for name in ["listen", "resp_listen", "admin_listen"] {
                let line = refusal(&[(name, address)], &[], "");
                let flag = format!("--{} = ", name.replace('_', "-"));
                assert!(
                    line.starts_with(&flag) && line.contains("--insecure"),
                    "{line}"
                );
                resolve(&[(name, address), ("insecure", "true")], &[], "").unwrap();
            }
        }
        let tls = [
            ("tls_cert", "c"),
            ("tls_key", "k"),
            ("listen", "0.0.0.0:7411"),
        ];
        let line = refusal(&tls, &[], "");
        assert!(line.contains("it lacks users"), "{line}");
        for address in ["127.0.0.9:1", "[::1]:1", "localhost:1", "127.0.0.1:0"] {
            resolve(&[("listen", address)], &[], "").unwrap();
        }
    }

    #[test]
    fn a_certificate_needs_its_key_and_certificates_of_clients_need_tls() {
        for (flags, begin) in [
            (&[("tls_cert", "c")][..], "--tls-cert = \"c\": its key"),
            (&[("tls_key", "k")], "--tls-key = \"k\""),
            (&[("tls_client_ca", "a")], "--tls-client-ca = \"a\""),
        ] {
            let line = refusal(flags, &[], "");
            assert!(line.starts_with(begin), "{line}");
        }
        let all = [("tls_cert", "c"), ("tls_key", "k"), ("tls_client_ca", "a")];
        let config = resolve(&all, &[], "").unwrap().config;
        assert_eq!(config.tls_client_ca, Some("a".into()));
        assert_eq!(Config::default().tls_cert, None);
    }

    #[test]
    fn a_plan_in_etcd_names_what_belongs_to_it_and_no_file() {
        let url = ("etcd_endpoints", "http://127.0.0.1:2379,http://[::1]:2379/");
        let secret = ("cluster_secret_file", "secret");
        let settings = resolve(&[url, secret], &[], "").expect("good");
        let access = settings.config.etcd_access().expect("named");
        assert_eq!(
            access.endpoints,
            ["http://127.0.0.1:2379", "http://[::1]:2379"]
        );
        assert_eq!(access.plan_key(), "/penstock/plan");
        assert_eq!(settings.config.resp_listen, None);
        for (flags, named) in [
            (&[url][..], "give cluster_secret_file"),
            (&[url, secret, ("cluster", "c.toml")], "another"),
            (&[url, secret, ("etcd_user", "root")], "etcd_secret_file"),
            (&[("etcd_user", "root")], "no etcd_endpoints"),
            (
                &[("etcd_endpoints", "127.0.0.1:2379")],
                "http://10.0.0.1:2379",
            ),
            (
                &[secret, ("etcd_endpoints", "https://a:1")],
                "needs etcd_ca",
            ),
        ] {
            let message = refusal(flags, &[], "");
            assert!(message.contains(named), "{message}");
        }
    }

    #[test]
    fn admin_port_is_an_address_or_off_and_free_where_the_servers_own_is() {
        let admin = |flags: &[(&'static str, &str)]| {
            let settings = resolve(flags, &[], "").unwrap();
            settings.config.admin_listen.map(|it| it.to_string())
        };
        assert_eq!(admin(&[]).as_deref(), Some("127.0.0.1:7412"));
        assert_eq!(admin(&[("admin_listen", "off")]), None);
        let free = [("listen", "127.0.0.1:0")];
        assert_eq!(admin(&free).as_deref(), Some("127.0.0.1:0"));
        let own = [("listen", "127.0.0.1:0"), ("admin_listen", "[::1]:7412")];
        assert_eq!(admin(&own).as_deref(), Some("[::1]:7412"));
        let same = refusal(&[("admin_listen", "127.0.0.1:7411")], &[], "");
        assert!(same.contains("listen = 127.0.0.1:7411"), "{same}");
        let shards = [("shard_ports", "7412"), ("shards", "2")];
        assert!(refusal(&shards, &[], "").contains("7412..7413"));
        let line = refusal(&[("admin_listen", "on")], &[], "");
        assert!(line.contains("or off"), "{line}");
    }

    #[test]
    fn the_port_for_clients_of_redis_is_off_in_a_cluster_and_a_port_of_its_own() {
        let resp = |flags: &[(&'static str, &str)]| {
            let settings = resolve(flags, &[], "").unwrap();
            settings.config.resp_listen.map(|it| it.to_string())
        };
        assert_eq!(resp(&[]).as_deref(), Some("127.0.0.1:7413"));
        assert_eq!(resp(&[("resp_listen", "off")]), None);
        let free = [("listen", "127.0.0.1:0")];
        assert_eq!(resp(&free).as_deref(), Some("127.0.0.1:0"));
        let clustered = [("cluster", "cluster.toml")];
        assert_eq!(resp(&clustered), None);
        let named = [("cluster", "cluster.toml"), ("resp_listen", "[::1]:9")];
        assert_eq!(resp(&named).as_deref(), Some("[::1]:9"));
        for (address, cause) in [
            ("127.0.0.1:7411", "listen = 127.0.0.1:7411"),
            ("127.0.0.1:7412", "admin_listen = 127.0.0.1:7412"),
            ("10.0.0.1:7413", "--insecure"),
        ] {
            let message = refusal(&[("resp_listen", address)], &[], "");
            assert!(message.contains(cause), "{message}");
        }
        let shards = [("shard_ports", "7413"), ("shards", "2")];
        assert!(refusal(&shards, &[], "").contains("resp_listen"));
    }

    #[test]
    fn what_clients_of_redis_are_sent_to_belongs_to_a_port_for_them() {
        let (off, ports) = (("resp_listen", "off"), ("resp_shard_ports", "7430"));
        let host = ("resp_announce", "shop.example");
        let announced = ("resp_announce_ports", "30000");
        let all = [ports, host, announced, ("resp_cluster_enabled", "true")];
        let config = resolve(&all, &[], "").expect("good").config;
        assert_eq!(config.resp_announce.as_deref(), Some("shop.example"));
        assert_eq!(config.resp_announce_ports, 30_000);
        for option in all {
            let cause = refusal(&[off, option], &[], "");
            assert!(cause.contains("there is no resp_listen"), "{cause}");
        }
        for bad in ["h:9", "x,y@z", "fe80::1%eth0"] {
            let cause = refusal(&[("resp_announce", bad)], &[], "");
            assert!(cause.contains("a host is an IP address"), "{bad}: {cause}");
        }
        for good in ["::1", "10.0.0.7", "node_1.shop-2.example"] {
            assert!(
                resolve(&[("resp_announce", good)], &[], "").is_ok(),
                "{good}"
            );
        }
        let alone = refusal(&[announced], &[], "");
        assert!(alone.contains("there are no resp_shard_ports"), "{alone}");
        let node = [
            ("cluster", "c.toml"),
            ("resp_listen", "127.0.0.1:7413"),
            ports,
        ];
        assert!(resolve(&node, &[], "").is_ok());
        for option in [host, announced] {
            let cause = refusal(&[&node[..], &[option]].concat(), &[], "");
            assert!(cause.contains("resp and resp_ports of the node"), "{cause}");
        }
        let shards = [("resp_shard_ports", "7412"), ("shards", "2")];
        assert!(refusal(&shards, &[], "").contains("that of admin_listen = 127.0.0.1:7412"));
    }

    #[test]
    fn limits_that_exclude_each_other_are_refused_with_both_named() {
        let frame = refusal(
            &[("value_bytes_max", "4MiB"), ("output_bytes_max", "9MiB")],
            &[],
            "",
        );
        assert!(
            frame.contains("frame_bytes_max") && frame.contains("value_bytes_max = 4MiB"),
            "{frame}"
        );
        let segment = refusal(&[("segment_bytes", "2MiB")], &[], "");
        assert!(segment.contains("--segment-bytes = \"2MiB\""), "{segment}");
        // The bound of the table is what the smallest values need.
        let small = |segment_bytes| {
            let sources = [
                ("segment_bytes", segment_bytes),
                ("value_bytes_max", "1KiB"),
            ];
            resolve(&sources, &[], "").map(|settings| settings.config)
        };
        let least = small("1044KiB").unwrap();
        assert_eq!(least.segment_bytes, least.segment_bytes_min());
        assert!(small("1MiB").is_err());
        let output = refusal(&[("output_bytes_max", "1MiB")], &[], "");
        assert!(output.contains("frame_bytes_max = 2MiB"), "{output}");
        assert!(refusal(&[("shard_ports", "65535"), ("shards", "2")], &[], "").contains("65536"));
        assert!(
            refusal(&[("shard_ports", "7410"), ("shards", "2")], &[], "").contains("7410..7411")
        );
    }

    #[test]
    fn every_word_of_every_choice_resolves() {
        for option in OPTIONS {
            let Kind::Choice(words) = option.kind else {
                continue;
            };
            for word in words {
                let settings = resolve(&[(option.name, word)], &[], "").unwrap();
                let row = settings
                    .explain()
                    .lines()
                    .find(|row| row.starts_with(option.name))
                    .map(str::to_string)
                    .unwrap();
                assert!(row.contains(word) && row.contains(&option.flag()), "{row}");
            }
        }
    }

    #[test]
    fn explain_shows_value_origin_and_meaning_of_every_option() {
        let settings = resolve(&[("shards", "2")], &[], "\ncache_bytes = \"3GiB\"").unwrap();
        let table = settings.explain();
        assert_eq!(table.lines().count(), OPTIONS.len() + 1);
        for option in OPTIONS {
            let row = table
                .lines()
                .find(|row| row.split_whitespace().next() == Some(option.name))
                .unwrap();
            assert!(row.ends_with(option.meaning()), "{row}");
        }
        let words = |name: &str| -> Vec<String> {
            let row = table.lines().find(|row| row.starts_with(name)).unwrap();
            row.split_whitespace().take(4).map(String::from).collect()
        };
        assert_eq!(words("shards ")[1..3], ["2", "--shards"]);
        assert_eq!(words("cache_bytes")[1..3], ["3GiB", "p.toml:2:"]);
        assert_eq!(words("data")[1..3], ["./penstock-data", "default"]);
    }
}

//! A client of etcd 3.4 to 3.6 by the JSON gateway of its members: one key, read and swapped.
//!
//! It blocks, within deadlines, and belongs on threads that serve nobody. The calls and the rules
//! stand in `shard/PLAN.md`, *etcd*.

pub mod answer;
pub(crate) mod gateway;

use std::path::PathBuf;

/// Where an etcd is, what of it is ours, and who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAccess {
    /// URLs of its members, `http://` or `https://`, with host and port alone; at least one.
    pub endpoints: Vec<String>,
    /// What our keys begin with.
    pub prefix: String,
    /// Who logs in.
    pub user: Option<String>,
    /// The file of that user's password.
    pub secret_file: Option<PathBuf>,
    /// The certificates of those who sign that of etcd.
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to etcd.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl EtcdAccess {
    /// The key of the cluster's plan.
    #[must_use]
    pub fn plan_key(&self) -> String {
        format!("{}/plan", self.prefix.trim_end_matches('/'))
    }

    /// What is missing or too much, in one line: the option, and why.
    ///
    /// # Errors
    /// The first of it.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let is_secured = |it: &String| it.starts_with("https://");
        let secured = self.endpoints.iter().filter(|it| is_secured(it)).count();
        match () {
            () if self.user.is_some() && self.secret_file.is_none() => Err((
                "etcd_user",
                "its password is missing: give etcd_secret_file",
            )),
            () if self.user.is_none() && self.secret_file.is_some() => {
                Err(("etcd_secret_file", "it is the password of no etcd_user"))
            }
            () if self.cert.is_some() && self.key.is_none() => {
                Err(("etcd_cert", "its key is missing: give etcd_key"))
            }
            () if self.cert.is_none() && self.key.is_some() => {
                Err(("etcd_key", "it is the key of no etcd_cert"))
            }
            () if secured > 0 && self.ca.is_none() => Err((
                "etcd_endpoints",
                "https:// needs etcd_ca: who signs the certificate of etcd",
            )),
            () if secured == 0 && (self.ca.is_some() || self.cert.is_some()) => Err((
                "etcd_endpoints",
                "etcd_ca and etcd_cert are for https://, and no endpoint is",
            )),
            () if secured > 0 && secured < self.endpoints.len() => Err((
                "etcd_endpoints",
                "some are https:// and some http://: all must be one of the two",
            )),
            () => Ok(()),
        }
    }
}

/// Reads URLs with commas between them; `None` if one is none.
#[must_use]
pub fn endpoints_of(text: &str) -> Option<Vec<String>> {
    let all = text.split(',').map(|url| {
        let url = url.trim().trim_end_matches('/');
        let rest = url.strip_prefix("http://");
        let rest = rest.or_else(|| url.strip_prefix("https://"))?;
        let (host, port) = rest.rsplit_once(':')?;
        let is_bare = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .is_some_and(|it| it.parse::<std::net::Ipv6Addr>().is_ok()),
            None => {
                let is_of_name = |it: u8| it.is_ascii_alphanumeric() || b".-_".contains(&it);
                !host.is_empty() && host.bytes().all(is_of_name)
            }
        };
        let has_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        (is_bare && has_port).then(|| url.to_string())
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_a_host_and_a_port() {
        let two = endpoints_of("http://10.0.0.1:2379, https://etcd-2.local:2379/").expect("good");
        assert_eq!(two, ["http://10.0.0.1:2379", "https://etcd-2.local:2379"]);
        assert!(endpoints_of("http://[::1]:2379").is_some());
        for wrong in [
            "",
            "10.0.0.1:2379",
            "http://10.0.0.1",
            "http://:2379",
            "http://a:0",
            "http://a:2379,",
            "http://u:p@a:2379",
            "http://a:2379/v3",
            "http://[a]:2379",
            "ftp://a:2379",
        ] {
            assert_eq!(endpoints_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_belongs_together_is_named() {
        let plain = EtcdAccess {
            endpoints: vec!["http://a:1".into()],
            prefix: "/penstock/".into(),
            user: None,
            secret_file: None,
            ca: None,
            cert: None,
            key: None,
        };
        assert_eq!(plain.check(), Ok(()));
        assert_eq!(plain.plan_key(), "/penstock/plan");
        let some = || Some(PathBuf::from("x"));
        let https = || vec!["https://a:1".to_string()];
        type Change = fn(&mut EtcdAccess, Option<PathBuf>, Vec<String>);
        let wrong: [(Change, &str); 7] = [
            (|it, _, _| it.user = Some("u".into()), "etcd_user"),
            (|it, path, _| it.secret_file = path, "etcd_secret_file"),
            (|it, path, _| it.cert = path, "etcd_cert"),
            (|it, path, _| it.key = path, "etcd_key"),
            (|it, path, _| it.ca = path, "etcd_endpoints"),
            (|it, _, https| it.endpoints = https, "etcd_endpoints"),
            (
                |it, path, https| {
                    it.ca = path;
                    it.endpoints.extend(https);
                },
                "etcd_endpoints",
            ),
        ];
        for (change, named) in wrong {
            let mut access = plain.clone();
            change(&mut access, some(), https());
            assert_eq!(access.check().expect_err(named).0, named);
        }
    }
}

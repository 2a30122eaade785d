//! What must hold between the options about TLS of links.

use super::Config;

/// The option that is wrong and why, if one is.
pub(super) fn link_tls_conflict(config: &Config) -> Option<(&'static str, &'static str)> {
    let files = [
        ("cluster_tls_cert", config.cluster_tls_cert.is_some()),
        ("cluster_tls_key", config.cluster_tls_key.is_some()),
        ("cluster_tls_ca", config.cluster_tls_ca.is_some()),
    ];
    let given = files.iter().find(|(_, is_given)| *is_given);
    let Some((given, _)) = given else {
        let cause = "links may do without TLS only where they have it: give cluster_tls_cert, \
                     cluster_tls_key and cluster_tls_ca, too";
        return config
            .cluster_tls_optional
            .then_some(("cluster_tls_optional", cause));
    };
    if files.iter().any(|(_, is_given)| !is_given) {
        let cause = "links need cluster_tls_cert, cluster_tls_key and cluster_tls_ca together";
        return Some((given, cause));
    }
    let cause = "it is for the links of a node of a cluster: give cluster, too";
    (!config.is_clustered()).then_some((given, cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::exposed;
    use crate::config::exposure::Listener;

    fn config(files: u8) -> Config {
        let file = |bit: u8| (files & bit != 0).then(|| "file.pem".into());
        Config {
            cluster: Some("cluster.toml".into()),
            cluster_tls_cert: file(1),
            cluster_tls_key: file(2),
            cluster_tls_ca: file(4),
            ..Config::default()
        }
    }

    #[test]
    fn three_files_go_together_and_belong_to_a_node_of_a_cluster() {
        for files in 0..8 {
            let conflict = link_tls_conflict(&config(files));
            assert_eq!(conflict.is_none(), files == 0 || files == 7, "{files}");
        }
        let alone = Config {
            cluster: None,
            ..config(7)
        };
        let conflict = link_tls_conflict(&alone).expect("it has no links");
        assert!(conflict.1.contains("give cluster, too"), "{conflict:?}");
        let optional = Config {
            cluster_tls_optional: true,
            ..config(0)
        };
        let conflict = link_tls_conflict(&optional).expect("it has no TLS");
        assert_eq!(conflict.0, "cluster_tls_optional");
    }

    #[test]
    fn links_that_others_reach_need_tls_that_is_not_optional() {
        let links = Some("10.0.0.1:7414".parse().expect("an address"));
        assert_eq!(exposed(&config(7), links), Ok(Vec::new()));
        let optional = Config {
            cluster_tls_optional: true,
            ..config(7)
        };
        for open in [config(0), optional] {
            let refused = exposed(&open, links).expect_err("anybody could forge");
            assert_eq!(refused.listener, Listener::Links);
            let insecure = Config {
                insecure: true,
                ..open
            };
            let allowed = exposed(&insecure, links).expect("somebody has said so");
            assert_eq!(allowed.len(), 1);
        }
    }
}

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
    config.cluster.is_none().then_some((given, cause))
}

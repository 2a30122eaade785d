//! Whether a plan that a home has takes the place of the one in force. Pure but for the secret's
//! file.

use std::fmt;

use crate::cluster::plan::file::ClusterFile;
use crate::cluster::plan::home::{PLAN_BYTES_MAX, PlanPlace};
use crate::stats::RefusalReason;

/// A plan that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: RefusalReason,
    /// One line, which names the place.
    pub(crate) text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The plan that takes the place of `before`, which was taken from the same place.
///
/// # Errors
/// [`Refusal`].
pub(crate) fn judge(
    place: &PlanPlace,
    text: &str,
    before: &ClusterFile,
) -> Result<ClusterFile, Refusal> {
    let refuse = |reason, cause: String| Refusal {
        reason,
        text: format!("{place}: {cause}"),
    };
    if text.len() > PLAN_BYTES_MAX {
        let cause = format!("it has more than {PLAN_BYTES_MAX} bytes");
        return Err(refuse(RefusalReason::TooLong, cause));
    }
    let file = ClusterFile::of(place, text.into()).map_err(|error| Refusal {
        reason: RefusalReason::Malformed,
        text: error.to_string(),
    })?;
    file.is_of_cluster(before)
        .map_err(|cause| refuse(RefusalReason::OtherCluster, cause))?;
    if place.is_ordered()
        && let Err(cause) = follows(&file, before)
    {
        return Err(refuse(RefusalReason::WentBack, cause));
    }
    Ok(file)
}

/// Whether a plan may stand behind another one.
fn follows(file: &ClusterFile, before: &ClusterFile) -> Result<(), String> {
    let (now, then) = (file.revision, before.revision);
    if now < then {
        return Err(format!(
            "its revision goes back from {then} to {now}, as in an etcd that was restored from a \
             backup"
        ));
    }
    if now == then && file.text != before.text {
        return Err(format!(
            "it is another text under the same revision, {now}: each change raises the revision"
        ));
    }
    let both = before.assignments.iter().zip(&file.assignments);
    let mut back = both
        .enumerate()
        .filter(|(_, (then, now))| now.generation < then.generation);
    match back.next() {
        Some((partition, (then, now))) => Err(format!(
            "the generation of partition {partition} goes back from {} to {}",
            then.generation, now.generation
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::EtcdAccess;

    fn etcd() -> PlanPlace {
        PlanPlace::Etcd {
            access: EtcdAccess {
                endpoints: vec!["http://127.0.0.1:1".into()],
                prefix: "/penstock".into(),
                user: None,
                secret_file: None,
                ca: None,
                cert: None,
                key: None,
            },
            secret_file: None,
        }
    }

    const NODES: &str = "
[[node]]
number = 1
links = \"127.0.0.1:7414\"
clients = \"127.0.0.1:7411\"
[[node]]
number = 2
links = \"127.0.0.2:7414\"
clients = \"127.0.0.2:7411\"
";

    fn text(revision: u64, generation: u32) -> String {
        format!(
            "version = 1\ncluster_id = \"000102030405060708090a0b0c0d0e0f\"\n\
             revision = {revision}\n{NODES}[[placement]]\npartitions = [0, 255]\n\
             generation = {generation}\nprimary = 1\nsync = [2]\n"
        )
    }

    #[test]
    fn nodes_may_decide_by_a_plan_of_etcd() {
        let place = etcd();
        let before = ClusterFile::of(&place, text(7, 3)).expect("good");
        let on = format!("failover = true\n{}", text(8, 3));
        let taken = judge(&place, &on, &before).expect("good");
        assert!(taken.plan().is_leased && taken.failover_plan().is_some());
    }

    #[test]
    fn a_plan_that_is_older_or_none_at_all_is_refused_by_name_and_a_newer_one_is_taken() {
        let place = etcd();
        let before = ClusterFile::of(&place, text(7, 3)).expect("good");
        assert!(judge(&place, &text(7, 3), &before).is_ok(), "the same");
        assert!(judge(&place, &text(9, 3), &before).is_ok(), "a later one");
        use RefusalReason::{Malformed, OtherCluster, TooLong, WentBack};
        let good = text(8, 4);
        let long = format!("# {}\n{good}", "x".repeat(PLAN_BYTES_MAX));
        let change = |from: &str, to: &str| good.replace(from, to);
        for (text, reason, named) in [
            (text(6, 9), WentBack, "revision goes back from 7 to 6"),
            (
                text(7, 4),
                WentBack,
                "another text under the same revision, 7",
            ),
            (text(8, 2), WentBack, "partition 0 goes back from 3 to 2"),
            (long, TooLong, "more than 524288 bytes"),
            (change("0001", "ffff"), OtherCluster, "another cluster"),
            (change("revision = 8\n", ""), Malformed, "lacks revision"),
            (change(NODES, ""), Malformed, "there is no [[node]]"),
            (
                change("primary = 1", "primary = 3"),
                Malformed,
                "names node 3",
            ),
            (
                change("number = 2", "number = 1"),
                Malformed,
                "another node has that number",
            ),
            (
                change("[0, 255]", "[0, 254]"),
                Malformed,
                "255 is placed nowhere",
            ),
            ("<html></html>".into(), Malformed, "is not TOML"),
            (String::new(), Malformed, "lacks version"),
            (
                format!("failover = true\nlease_ms = 1700\n{good}"),
                Malformed,
                "grace_ms = 2000 with lease_ms = 1700",
            ),
            (
                format!("secret_file = \"s\"\n{good}"),
                Malformed,
                "each node has its own",
            ),
        ] {
            let refusal = judge(&place, &text, &before).expect_err(named);
            assert_eq!(refusal.reason, reason, "{refusal}");
            assert!(refusal.text.contains(named), "{refusal}");
            assert!(
                refusal
                    .text
                    .starts_with("the plan /penstock/plan in etcd: ")
            );
        }
    }
}

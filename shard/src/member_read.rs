//! A GET that members of a partition may answer: what this node shows of it, or why it does not.

use std::fmt;

use penstock_net::level::AckLevel;
use penstock_net::reply::Standing;
use penstock_net::request::{MemberRead, Version};
use penstock_storage::io::Blocks;
use penstock_storage::store::Store;

use crate::cluster::ClusterMember;

/// Why a GET that members may answer is not answered, although it might be.
pub(crate) struct Stale {
    partition: usize,
    pub(crate) standing: Standing,
    read: MemberRead,
    lacks_version: bool,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stale {
            partition,
            standing: Standing { age_us, through },
            read,
            lacks_version,
        } = self;
        write!(f, "partition {partition}: ")?;
        if *lacks_version {
            let Version { epoch, sequence } = read.version_min;
            return write!(
                f,
                "version {epoch}:{sequence} is not here; it is there up to {}:{}",
                through.epoch, through.sequence
            );
        }
        match age_us {
            &u64::MAX => write!(f, "how old it is here is not known yet")?,
            age_us => write!(f, "it is up to {age_us} us old here")?,
        }
        write!(f, "; at most {} us are wanted", read.staleness_us_max)
    }
}

/// How new what this node shows of a partition is, and whether it does so as a member; `None` if
/// the read is not its to answer.
pub(crate) fn member_freshness<P: Blocks>(
    linked: Option<&mut ClusterMember<P::Block>>,
    store: &Store<P>,
    now_us: u64,
    partition: usize,
    level: AckLevel,
    read: MemberRead,
) -> Option<Result<(Standing, bool), Stale>> {
    let is_served = |linked: &&mut ClusterMember<P::Block>| linked.elsewhere(partition).is_none();
    let through = Version {
        epoch: store.data().numbering().epoch(partition),
        sequence: store.data().numbering().sequences()[partition],
    };
    let (standing, is_member, holds_version) = match linked {
        Some(linked) if is_served(&linked) => {
            let holds_version = linked.holds(partition, read.version_min);
            (Standing { age_us: 0, through }, false, holds_version)
        }
        // A member cannot tell who else has it.
        Some(_) if level.waits_for_members() => return None,
        Some(linked) => {
            let (standing, holds_version) = linked.standing_of_member(now_us, partition, read)?;
            (standing, true, holds_version)
        }
        None => {
            let holds_version = read.version_min <= through;
            (Standing { age_us: 0, through }, false, holds_version)
        }
    };
    let judged = judge(partition, read, standing, holds_version);
    Some(judged.map(|standing| (standing, is_member)))
}

/// What this node says to a GET that members may answer.
fn judge(
    partition: usize,
    read: MemberRead,
    standing: Standing,
    holds_version: bool,
) -> Result<Standing, Stale> {
    let is_new = standing.age_us <= read.staleness_us_max;
    match is_new && holds_version {
        true => Ok(standing),
        false => Err(Stale {
            partition,
            standing,
            read,
            lacks_version: !holds_version,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_or_lacks_the_version_is_refused_with_what_is_there() {
        let read = |staleness_us_max| MemberRead {
            staleness_us_max,
            version_min: Version {
                epoch: 7,
                sequence: 9,
            },
        };
        let standing = |age_us| Standing {
            age_us,
            through: Version {
                epoch: 7,
                sequence: 8,
            },
        };
        let text_of = |bound, age_us, holds| {
            let judged = judge(3, read(bound), standing(age_us), holds);
            judged.map_or_else(|stale| stale.to_string(), |_| String::new())
        };
        assert_eq!(text_of(50, 50, true), "");
        assert_eq!(text_of(0, 0, true), "");
        assert_eq!(text_of(u64::MAX, u64::MAX, true), "");
        assert_eq!(
            text_of(50, 51, true),
            "partition 3: it is up to 51 us old here; at most 50 us are wanted"
        );
        assert_eq!(
            text_of(50, u64::MAX, true),
            "partition 3: how old it is here is not known yet; at most 50 us are wanted"
        );
        assert_eq!(
            text_of(50, 1, false),
            "partition 3: version 7:9 is not here; it is there up to 7:8"
        );
    }
}

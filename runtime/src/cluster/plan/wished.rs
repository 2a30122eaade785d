//! A wish of a node as an edit of the plan: `shard/FAILOVER.md`. Pure.

use std::fmt;
use std::time::SystemTime;

use penstock_net::link::PartitionSet;
use penstock_shard::lease::{Placing, Wish};

use crate::cluster::plan::document::{document_of, edit_placements, note_change};
use crate::cluster::plan::file::ClusterFile;

/// Why a plan is not changed as it is wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WishError {
    /// The wish was decided by a plan of another number: decide anew by this one.
    OtherPlan {
        /// The number of the plan that is there.
        there: u64,
    },
    /// The plan cannot be changed so, now or later: tell a person. One line.
    Refused(String),
}

impl fmt::Display for WishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WishError::OtherPlan { there } => write!(f, "the plan has revision {there} now"),
            WishError::Refused(cause) => f.write_str(cause),
        }
    }
}

/// The text of a plan as node `me` wishes it, with the next revision. The wish was decided by the
/// plan of number `decided_by`. Comments and the order of what stands in the plan stay.
///
/// # Errors
/// [`WishError`].
pub(crate) fn wished(
    text: &str,
    decided_by: u64,
    wish: &Wish,
    me: u8,
    changed_at: SystemTime,
) -> Result<String, WishError> {
    let deed = format!("node {me}: {wish}");
    edited(text, decided_by, (&deed, changed_at), |placings| {
        let used_up = used_up(wish, placings);
        if used_up.is_none() {
            wish.apply(me, placings);
        }
        used_up
    })
}

/// The same where a node goes on writing partitions in their next generation.
///
/// # Errors
/// [`WishError`].
pub(crate) fn renewed(
    text: &str,
    decided_by: u64,
    partitions: &PartitionSet,
    me: u8,
    changed_at: SystemTime,
) -> Result<String, WishError> {
    let deed = format!("node {me}: next generation behind many starts");
    edited(text, decided_by, (&deed, changed_at), |placings| {
        let is_used_up = |it: &u16| !placings[usize::from(*it)].has_generation();
        let used_up = partitions.iter().find(is_used_up);
        if used_up.is_none() {
            for partition in partitions.iter() {
                placings[usize::from(partition)].assignment.renew();
            }
        }
        used_up
    })
}

/// The text with a change of its placings, or the partition that has no generation left for it.
fn edited(
    text: &str,
    decided_by: u64,
    (deed, changed_at): (&str, SystemTime),
    change: impl FnOnce(&mut [Placing]) -> Option<u16>,
) -> Result<String, WishError> {
    let before = ClusterFile::without_secret(text.into()).map_err(WishError::Refused)?;
    if before.revision != decided_by {
        let there = before.revision;
        return Err(WishError::OtherPlan { there });
    }
    let mut document = document_of(text).map_err(WishError::Refused)?;
    let mut placings = before.placings();
    if let Some(partition) = change(&mut placings) {
        return Err(WishError::Refused(format!(
            "the generations of partition {partition} are used up"
        )));
    }
    let mut file = before.clone();
    file.place_all(placings);
    edit_placements(&mut document, &before, &file);
    note_change(&mut document, before.revision, deed, changed_at);
    let text = document.to_string();
    // What the nodes will read is what is meant.
    let read = ClusterFile::without_secret(text.clone()).map_err(WishError::Refused)?;
    match read.is_same(&file) && read.revision == before.revision + 1 {
        true => Ok(text),
        false => Err(WishError::Refused(
            "what was to be written says something else".into(),
        )),
    }
}

/// The first partition that may need a generation and has none left.
fn used_up(wish: &Wish, placings: &[Placing]) -> Option<u16> {
    let is_used_up = |partition: &u16| !placings[usize::from(*partition)].has_generation();
    match wish {
        Wish::TakeOver { partitions, .. } | Wish::Join { partitions, .. } => {
            partitions.iter().find(is_used_up)
        }
        Wish::Remove { silent } => {
            let mut all = silent.iter().flat_map(|(_, partitions)| partitions.iter());
            all.find(is_used_up)
        }
        Wish::Admit { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound as u64).expect("below a usize")
        }

        fn is(&mut self, of: usize) -> bool {
            self.below(of) == 0
        }
    }

    const NODES: u8 = 5;

    /// A plan of five nodes in some ranges, each with a comment.
    fn plan(random: &mut Random) -> String {
        let mut text = String::from(
            "# ours\nversion = 1\ncluster_id = \"000102030405060708090a0b0c0d0e0f\"\n\
             revision = 7 # counted\nfailover = true\n",
        );
        for node in 1..=NODES {
            let learner = ["", "learner = true\n"][usize::from(node == NODES)];
            text += &format!(
                "[[node]]\nnumber = {node} # node {node}\nlinks = \"127.0.0.{node}:7414\"\n\
                 clients = \"127.0.0.{node}:7411\"\n{learner}"
            );
        }
        let mut first = 0;
        while first < 256 {
            let last = match random.is(6) {
                true => 255,
                false => (first + random.below(90)).min(255),
            };
            let mut nodes: Vec<u8> = (1..=NODES).collect();
            for at in 0..nodes.len() {
                let with = random.below(nodes.len());
                nodes.swap(at, with);
            }
            let mut lists = [Vec::new(), Vec::new(), Vec::new()];
            for &node in &nodes[1..] {
                if let Some(list) = lists.get_mut(random.below(4)) {
                    list.push(node);
                }
            }
            let generation = 1 + random.below(20);
            text += &format!(
                "\n# from {first}\n[[placement]]\npartitions = [{first}, {last}] # a range\n\
                 generation = {generation}\nprimary = {}\n",
                nodes[0]
            );
            for (name, list) in ["sync", "joining", "learners"].iter().zip(&lists) {
                if !list.is_empty() || random.is(2) {
                    text += &format!("{name} = {list:?} # {name}\n");
                }
            }
            for name in ["handover", "accept_loss", "accept_incomplete"] {
                if random.is(4) {
                    text += &format!("{name} = true\n");
                }
            }
            first = last + 1;
        }
        text
    }

    /// Some of the partitions whose placings are such.
    fn some(random: &mut Random, is: impl Fn(&Placing) -> bool, all: &[Placing]) -> PartitionSet {
        let rare = 1 + random.below(4);
        let all = (0..).zip(all);
        let some = all.filter(|(_, placing)| is(placing) && random.is(rare));
        some.map(|(partition, _)| partition).collect()
    }

    fn wish(random: &mut Random, me: u8, placings: &[Placing]) -> Wish {
        let mut other = 1 + u8::try_from(random.below(4)).expect("small");
        other += u8::from(other >= me);
        match random.below(4) {
            0 => Wish::TakeOver {
                from: other,
                partitions: some(
                    random,
                    |it| it.assignment.primary == other && it.is_promotable(me),
                    placings,
                ),
            },
            1 => {
                let nodes = (1..=NODES).filter(|&node| node != me);
                let silent = nodes.map(|node| {
                    let is = |it: &Placing| {
                        it.assignment.primary == me && it.sync().any(|it| it == node)
                    };
                    (node, some(random, is, placings))
                });
                Wish::Remove {
                    silent: silent.filter(|(_, set)| !set.is_empty()).collect(),
                }
            }
            2 => Wish::Join {
                node: other,
                partitions: some(
                    random,
                    |it| it.assignment.primary == me && it.is_learner(other),
                    placings,
                ),
            },
            _ => Wish::Admit {
                node: other,
                partitions: some(
                    random,
                    |it| it.assignment.primary == me && it.joining.contains(&other),
                    placings,
                ),
            },
        }
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_plan_that_is_edited_says_what_the_wish_says_and_keeps_its_comments() {
        let mut seen = [false; 4];
        for seed in 1..=400 {
            let mut random = Random(seed);
            let mut text = plan(&mut random);
            // Several changes, so that ranges are split, and joined again.
            for revision in 7..13 {
                let me = 1 + u8::try_from(random.below(5)).expect("small");
                let before = ClusterFile::without_secret(text.clone()).expect("good");
                let wish = wish(&mut random, me, &before.placings());
                let named = format!("seed {seed}, node {me}, {wish:?}, {text}");
                let mut meant = before.placings();
                wish.apply(me, &mut meant);
                seen[match wish {
                    Wish::TakeOver { .. } => 0,
                    Wish::Remove { .. } => 1,
                    Wish::Join { .. } => 2,
                    Wish::Admit { .. } => 3,
                }] |= meant != before.placings();
                let edited = wished(&text, revision, &wish, me, at(revision)).expect(&named);
                let read = ClusterFile::without_secret(edited.clone()).expect(&named);
                assert_eq!(read.placings(), meant, "{named}");
                assert_eq!(read.nodes, before.nodes, "{named}");
                assert_eq!(read.failover, before.failover, "{named}");
                assert_eq!(read.revision, revision + 1, "{named}");
                assert_eq!(read.changed.by, format!("node {me}: {wish}"), "{named}");
                assert_eq!(read.changed.at, format!("1970-01-01T00:00:{revision:02}Z"));
                let head = text.find("\n[[placement]]").expect("there");
                let comments = |text: &str| {
                    let lines = text.lines().filter(|line| line.starts_with('#'));
                    lines.map(str::to_string).collect::<Vec<_>>()
                };
                assert_eq!(comments(&edited), comments(&text), "{named}");
                assert!(edited.contains("revision = ") && edited.contains("# counted"));
                assert!(edited.contains(&text[text.find("[[node]]").expect("there")..head]));
                text = edited;
            }
        }
        assert_eq!(seen, [true; 4], "each wish has changed something");
    }

    #[test]
    fn a_wish_of_a_part_of_a_range_splits_it_and_another_plan_or_no_generation_refuses_it() {
        let text = "version = 1 # first\ncluster_id = \"000102030405060708090a0b0c0d0e0f\"\n\
            revision = 7\nfailover = true\n\n[[node]]\nnumber = 1\nlinks = \"127.0.0.1:7414\"\n\
            clients = \"a:1\"\n\n[[node]]\nnumber = 2\nlinks = \"127.0.0.2:7414\"\n\
            clients = \"b:1\"\n\n# who writes\n[[placement]]\npartitions = [0, 255] # all\n\
            generation = 4\nprimary = 1 # the large one\nsync = [2]\n";
        let wish = Wish::TakeOver {
            from: 1,
            partitions: (0..100).collect(),
        };
        let edited = wished(text, 7, &wish, 2, at(0)).expect("good");
        let head = &text[..text.find("# who writes").expect("there")];
        let head = head.replace("revision = 7", "revision = 8").replace(
            "failover = true\n",
            "failover = true\nchanged_at = \"1970-01-01T00:00:00Z\"\n\
             changed_by = \"node 2: takeover of node 1\"\n",
        );
        let expected = format!(
            "{head}# who writes\n[[placement]]\npartitions = [0, 99] # all\ngeneration = 5\n\
             primary = 2 # the large one\nsync = []\nlearners = [1]\n\n[[placement]]\n\
             partitions = [100, 255]\ngeneration = 4\nprimary = 1\nsync = [2]\n"
        );
        assert_eq!(edited, expected);
        let renewed = renewed(text, 7, &PartitionSet::from_iter([255]), 1, at(0));
        let read = ClusterFile::without_secret(renewed.expect("good")).expect("good");
        let generations = [254, 255].map(|at: usize| read.assignments[at].generation);
        assert_eq!(generations, [4, 5]);
        assert_eq!(
            read.changed.by,
            "node 1: next generation behind many starts"
        );
        let other = wished(text, 6, &wish, 2, at(0));
        assert_eq!(other, Err(WishError::OtherPlan { there: 7 }));
        let last = text.replace("generation = 4", "generation = 16383");
        let used_up = wished(&last, 7, &wish, 2, at(0)).expect_err("used up");
        assert!(used_up.to_string().contains("generations of partition 0"));
        let inline = text.replace("[[node]]", "[[nodes]]");
        assert!(matches!(
            wished(&inline, 7, &wish, 2, at(0)),
            Err(WishError::Refused(_))
        ));
    }
}

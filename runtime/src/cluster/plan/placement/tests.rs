//! Changes of a plan in a file.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::cluster::plan::new_cluster::NewNode;

const HEAD: &str = "# Ours.
version = 1
cluster_id = \"000102030405060708090a0b0c0d0e0f\"
secret_file = \"secret\"

[[node]]
number = 1
links = \"127.0.0.1:7414\"
clients = \"127.0.0.1:7411\" # here
[[node]]
number = 2
links = \"127.0.0.1:7415\"
clients = \"127.0.0.1:7511\"
[[node]]
number = 3
links = \"127.0.0.1:7416\"
clients = \"127.0.0.1:7611\"

";

const PLACED: &str = "# Who writes.
[[placement]]
partitions = [0, 255] # all
generation = 4
primary = 1   # the large machine
sync = [ 2 ]
learners = [3]
";

const FORCED: Takeover = Takeover::Forced {
    accepted: Accepted::Nothing,
    is_sync_kept: false,
};

fn accepting(accepted: Accepted) -> Takeover {
    Takeover::Forced {
        accepted,
        is_sync_kept: false,
    }
}

/// A file in a folder of its own.
struct Example(PathBuf);

impl Drop for Example {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(self.0.parent().expect("a folder")));
    }
}

impl Example {
    fn new(name: &str, text: &str) -> Example {
        let unique = format!("penstock-placed-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(unique);
        fs::create_dir_all(&folder).expect("made");
        let secret = folder.join("secret");
        fs::write(&secret, [b's'; 32]).expect("written");
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).expect("set");
        fs::write(folder.join("cluster.toml"), text).expect("written");
        Example(folder.join("cluster.toml"))
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("there")
    }

    fn draft(&self) -> Draft {
        Draft::read(&PlanPlace::File(self.0.clone()), "a test").expect("good")
    }

    fn moved(
        &self,
        partitions: RangeInclusive<u16>,
        to: u8,
        takeover: Takeover,
    ) -> Result<Moved, String> {
        let mut draft = self.draft();
        let partitions: Vec<u16> = partitions.collect();
        let moved = draft.move_partitions(&partitions, to, takeover);
        let moved = moved.map_err(|error| error.to_string())?;
        draft.write().expect("written");
        Ok(moved)
    }
}

#[test]
fn another_node_writes_in_a_generation_of_its_own_and_comments_and_order_stay() {
    // The placements stand before the nodes.
    let (head, nodes) = HEAD.split_at(HEAD.find("[[node]]").expect("there"));
    let example = Example::new("switch", &format!("{head}{PLACED}\n{nodes}"));
    let moved = example
        .moved(100..=255, 2, Takeover::HandedOver)
        .expect("moved");
    assert_eq!(moved.partitions, (100..=255).collect::<Vec<u16>>());
    assert_eq!((moved.from.as_slice(), moved.generation), (&[1][..], 5));
    let first = PLACED.replace("[0, 255]", "[0, 99]");
    let second = "\n[[placement]]\npartitions = [100, 255]\ngeneration = 5\nprimary = 2\n\
        sync = [1]\nlearners = [3]\nhandover = true\n";
    assert_eq!(example.text(), format!("{head}{first}{second}\n{nodes}"));

    // Partitions that the node writes already stay, except that it no longer waits for a
    // handover.
    let moved = example
        .moved(0..=255, 2, Takeover::HandedOver)
        .expect("moved");
    assert_eq!((moved.partitions.len(), moved.generation), (100, 5));
    let whole = PLACED
        .replace("generation = 4", "generation = 5")
        .replace("primary = 1 ", "primary = 2 ")
        .replace("[ 2 ]", "[1]");
    let whole = format!("{head}{whole}handover = true\n\n{nodes}");
    assert_eq!(example.text(), whole, "they are alike and one again");
    let loss = accepting(Accepted::Loss);
    let moved = example.moved(0..=9, 2, loss).expect("moved");
    assert_eq!((moved.from.len(), moved.generation), (0, 6), "{moved:?}");
    let text = example.text();
    assert_eq!(text.matches("accept_loss = true").count(), 1, "{text}");
    assert_eq!(text.matches("handover = true").count(), 1, "{text}");
    assert_eq!(
        example.moved(0..=255, 2, loss).expect("").partitions.len(),
        246
    );
    assert!(
        example
            .moved(0..=255, 2, loss)
            .expect("nothing to do")
            .partitions
            .is_empty()
    );
}

#[test]
fn who_is_lost_leaves_the_sync_set_unless_it_is_to_stay_and_a_return_is_seen_to() {
    let example = Example::new("lost", &format!("{HEAD}{PLACED}"));
    example.moved(0..=255, 2, FORCED).expect("moved");
    let text = example.text();
    assert!(
        text.contains("sync = []\nlearners = [3, 1]\n"),
        "nobody is waited for in silence: {text}"
    );
    let (nodes, is_one_empty) = example.draft().waited_for(&[0, 255]);
    assert!(nodes.is_empty() && is_one_empty);

    // It may not write again before it has joined.
    let refused = example.moved(0..=255, 1, FORCED).expect_err("a learner");
    assert!(refused.contains("is a learner of partition 0"), "{refused}");
    let place = |standing| {
        let mut draft = example.draft();
        let changed = draft.place(0..=255, 1, standing).expect("placed");
        draft.write().expect("written");
        changed
    };
    assert_eq!(
        (place(Standing::Joining), place(Standing::Joining)),
        (256, 0)
    );
    let text = example.text();
    assert!(text.contains("sync = []\nlearners = [3]\njoining = [1]\n"));
    // Nobody who is waited for knows of what was acknowledged before.
    assert!(text.contains("generation = 6\nprimary = 2 "), "{text}");
    assert_eq!(example.draft().waited_for(&[7]), (vec![1], false));
    let refused = example.moved(0..=255, 1, FORCED).expect_err("not yet");
    assert!(refused.contains("still joins"), "{refused}");
    assert_eq!(place(Standing::Sync), 256);
    let text = example.text();
    assert!(text.contains("sync = [1]\nlearners = [3]\n"), "{text}");
    assert!(!text.contains("joining"), "{text}");
    assert!(text.contains("generation = 6\n"), "it is proven: {text}");
    let kept = Takeover::Forced {
        accepted: Accepted::Nothing,
        is_sync_kept: true,
    };
    example.moved(0..=255, 1, kept).expect("moved");
    let text = example.text();
    assert!(text.contains("sync = [2]\nlearners = [3]\n"), "{text}");
    assert!(text.contains("# the large machine"), "{text}");
}

#[test]
fn a_sync_set_in_which_nobody_may_be_promoted_begins_in_a_generation_of_its_own() {
    let example = Example::new("renewed", &format!("{HEAD}{PLACED}handover = true\n"));
    let place = |partitions, node, standing| {
        let mut draft = example.draft();
        draft.place(partitions, node, standing).expect("placed");
        let renewed = draft.renewals();
        assert_eq!(draft.is_one_handed_over(&renewed), !renewed.is_empty());
        draft.write().expect("written");
        renewed
    };
    assert!(place(0..=255, 3, Standing::Joining).is_empty());
    assert!(example.text().contains("generation = 4\n"));
    let renewed = place(0..=99, 2, Standing::Learner);
    assert_eq!(renewed, (0..=99).collect::<Vec<u16>>());
    let text = example.text();
    assert!(text.contains("[0, 99] # all\ngeneration = 5\n"), "{text}");
    assert_eq!(text.matches("generation = 4\n").count(), 1, "{text}");
    assert_eq!(text.matches("handover = true").count(), 1, "{text}");

    // Where a partition has a new generation anyway it has no second one.
    let mut draft = example.draft();
    let moved = draft.move_partitions(&[200], 2, accepting(Accepted::Loss));
    assert_eq!(moved.expect("moved").generation, 5);
    draft.leave_sync(&[200], 1);
    assert!(draft.renewals().is_empty());
    let mut draft = example.draft();
    draft.drop_node(2).expect("it writes nothing");
    assert_eq!(draft.renewals(), (100..=255).collect::<Vec<u16>>());
}

fn new(node: &str) -> NewNode {
    NewNode::parse(node).expect("a node")
}

#[test]
fn nodes_come_and_go_and_leave_what_is_written_of_the_others() {
    let example = Example::new("nodes", &format!("{HEAD}{PLACED}"));
    let mut draft = example.draft();
    draft
        .add(&new("7,127.0.0.1:7417,seven:7411,seven:7413,7430-7432"))
        .and_then(|()| draft.place(0..=255, 7, Standing::Learner))
        .expect("added");
    draft.write().expect("written");
    let added = "\n[[node]]\nnumber = 7\nlinks = \"127.0.0.1:7417\"\nclients = \"seven:7411\"\n\
                 resp = \"seven:7413\"\nresp_ports = [7430, 7432]\n";
    let placed = PLACED.replace("[3]", "[3, 7]");
    let text = example.text();
    assert!(text.contains(&format!("7611\"\n{added}")), "{text}");
    assert!(text.ends_with(&placed), "{text}");
    let mut draft = example.draft();
    let elsewhere = "127.0.0.1:7418".parse().expect("good");
    assert!(draft.set_address(7, Some(elsewhere), None).expect("free"));
    assert!(
        draft.set_address(1, Some(elsewhere), None).is_err(),
        "taken"
    );
    assert!(draft.stay_learner(7, true).expect("known"));
    draft.write().expect("written");
    let moved = added.replace("7417", "7418") + "learner = true\n";
    assert!(example.text().contains(&moved), "{}", example.text());
    let mut draft = example.draft();
    draft.renew_all(7..=9).expect("there are some");
    draft.write().expect("written");
    assert!(
        example
            .text()
            .contains("[7, 9]\ngeneration = 5\nprimary = 1\n")
    );
    for partitions in [0..=6, 10..=255] {
        let mut draft = example.draft();
        draft.renew_all(partitions).expect("there are some");
        draft.write().expect("written");
    }
    let placed = PLACED.replace("= 4", "= 5").replace("[3]", "[3, 7]");
    assert!(example.text().ends_with(&placed), "{}", example.text());
    let mut draft = example.draft();
    draft.drop_node(7).expect("it writes nothing");
    draft.write().expect("written");
    let placed = PLACED.replace("= 4", "= 5");
    assert_eq!(example.text(), format!("{HEAD}{placed}"));

    let mut draft = example.draft();
    draft.drop_node(2).expect("it writes nothing");
    draft.write().expect("written");
    let text = example.text();
    assert!(
        text.contains("sync = []") && !text.contains("7415"),
        "{text}"
    );
    assert!(text.contains("# here") && text.contains("# all"), "{text}");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let text = format!("{HEAD}{PLACED}");
    let example = Example::new("refused", &text);
    for (partitions, to, takeover, named) in [
        (
            0..=255,
            3,
            Takeover::HandedOver,
            "makes it one of the sync set",
        ),
        (0..=255, 3, FORCED, "--accept-loss"),
        (0..=255, 4, FORCED, "no node 4: it has 1, 2, 3"),
        (0..=256, 2, FORCED, "no partition 256"),
    ] {
        let cause = example.moved(partitions, to, takeover).expect_err(named);
        assert!(cause.contains(named), "{cause}");
    }
    let mut draft = example.draft();
    for (refused, named) in [
        (draft.drop_node(1), "writes partition 0"),
        (draft.drop_node(9), "no node 9"),
        (
            draft.place(0..=9, 1, Standing::Sync).map(drop),
            "writes partition 0",
        ),
        (draft.add(&new("2,127.0.0.1:1,here:1")), "there is node 2"),
        (
            draft.add(&new("9,127.0.0.1:7416,here:1")),
            "there is node 3",
        ),
    ] {
        let cause = refused.expect_err(named).to_string();
        assert!(cause.contains(named), "{cause}");
    }
    assert_eq!(example.text(), text);
    assert_eq!(
        fs::read_dir(example.0.parent().expect("a folder"))
            .expect("there")
            .count(),
        2
    );

    // A learner may, if what it lacks is known to be lost.
    example
        .moved(0..=255, 3, accepting(Accepted::Loss))
        .expect("moved");
    let text = example.text();
    assert!(
        text.contains("sync = [ 2 ]\nlearners = [1]\naccept_loss = true\n"),
        "{text}"
    );
}

#[test]
fn a_file_keeps_its_mode_and_a_link_to_it_stays_one() {
    use std::os::unix::fs::symlink;
    let example = Example::new("mode", &format!("{HEAD}{PLACED}"));
    fs::set_permissions(&example.0, fs::Permissions::from_mode(0o640)).expect("set");
    let link = example.0.with_file_name("link.toml");
    symlink(&example.0, &link).expect("linked");
    let mut draft = Draft::read(&PlanPlace::File(link.clone()), "a test").expect("good");
    let some: Vec<u16> = (0..=9).collect();
    draft.move_partitions(&some, 2, FORCED).expect("moved");
    draft.write().expect("written");
    let mode = |path: &Path| {
        fs::symlink_metadata(path)
            .expect("there")
            .permissions()
            .mode()
    };
    assert_eq!(mode(&example.0) & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(example.text().contains("partitions = [10, 255]"));
}

#[test]
fn what_takeovers_have_split_is_one_placement_again_when_it_is_renewed() {
    let example = Example::new("joined", &format!("{HEAD}{PLACED}"));
    for partitions in [10..=20, 20..=29, 100..=255] {
        let mut draft = example.draft();
        draft.renew_all(partitions).expect("there are some");
        draft.write().expect("written");
    }
    assert_eq!(example.text().matches("[[placement]]").count(), 5);
    let mut draft = example.draft();
    draft.renew_all(0..=255).expect("there are some");
    draft.write().expect("written");
    let text = example.text();
    assert_eq!(text.matches("[[placement]]").count(), 1, "{text}");
    assert!(text.ends_with(&PLACED.replace("= 4", "= 7")), "{text}");
}

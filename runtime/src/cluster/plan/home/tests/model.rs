//! The same calls on each home, held against what a plan is to be: one text, and its revision.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cluster::plan::home::tests::real_etcd::RealEtcd;
use crate::cluster::plan::home::{PlanHome, PlanPlace, Revision, StoredPlan, Swapped, Watched};

/// A file in a folder of its own.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let unique = format!("penstock-home-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(unique));
        std::fs::create_dir_all(&folder.0).expect("made");
        folder
    }

    fn place(&self) -> PlanPlace {
        PlanPlace::File(self.0.join("cluster.toml"))
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("below a usize")
    }
}

fn is_plan(stored: &Option<StoredPlan>, plan: &Option<(String, Revision)>) -> bool {
    let stored = stored.as_ref().map(|it| (&it.text, &it.revision));
    stored == plan.as_ref().map(|(text, revision)| (text, revision))
}

/// Two that know nothing of each other call in turns. Whatever a call says is what the model says.
fn a_home_is_what_the_model_says(place: &PlanPlace, steps: usize, seed: u64) {
    let mut homes: [Box<dyn PlanHome>; 2] = [(); 2].map(|()| place.open().expect("no files"));
    let mut random = Random(seed);
    let mut plan: Option<(String, Revision)> = None;
    // Revisions of before, which are no more.
    let mut old: Vec<Revision> = Vec::new();
    let at_once = Duration::ZERO;
    for step in 0..steps {
        let home = &mut homes[random.below(2)];
        match random.below(5) {
            0 => {
                let loaded = home.load().expect("it answers");
                assert!(is_plan(&loaded, &plan), "step {step}: {loaded:?}, {plan:?}");
            }
            1 | 2 => {
                let text = format!("text = {step}\n{}", "#\n".repeat(random.below(2_000)));
                let expected = plan.as_ref().map(|(_, revision)| revision);
                let swapped = home.compare_and_swap(expected, &text);
                let Ok(Swapped::Done(revision)) = swapped else {
                    panic!("step {step}: {swapped:?}");
                };
                old.extend(plan.take().map(|(_, revision)| revision));
                assert!(
                    !old.contains(&revision),
                    "step {step}: {revision:?} comes again"
                );
                plan = Some((text, revision));
            }
            3 => {
                let is_none_expected = old.is_empty() || random.below(4) == 0;
                if is_none_expected && plan.is_none() {
                    continue;
                }
                let index = random.below(old.len().max(1));
                let expected = (!is_none_expected).then(|| &old[index]);
                let swapped = home.compare_and_swap(expected, "stale = 1\n");
                let Ok(Swapped::Conflict(there)) = swapped else {
                    panic!("step {step}: {swapped:?}");
                };
                assert!(is_plan(&there, &plan), "step {step}: {there:?}, {plan:?}");
            }
            _ => {
                let Some((text, revision)) = &plan else {
                    continue;
                };
                let same = home.watch(revision, at_once);
                assert_eq!(same, Ok(Watched::Same), "step {step}");
                if let Some(known) = old.last() {
                    let changed = Watched::Changed(StoredPlan {
                        text: text.clone(),
                        revision: revision.clone(),
                    });
                    assert_eq!(home.watch(known, at_once), Ok(changed), "step {step}");
                }
            }
        }
    }
    assert!(
        old.len() > steps / 8,
        "most steps change something: {}",
        old.len()
    );
}

/// Each of four threads counts up, by a swap of what it has read, until it has done so ten times.
fn no_change_of_a_home_is_lost(place: &PlanPlace) {
    const THREADS: u64 = 4;
    const CHANGES: u64 = 10;
    let mut home = place.open().expect("no files");
    let there = home.load().expect("it answers").map(|it| it.revision);
    let begun = home.compare_and_swap(there.as_ref(), "0");
    assert!(matches!(begun, Ok(Swapped::Done(_))), "{begun:?}");
    let conflicts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut home = place.open().expect("no files");
                let mut done = 0;
                while done < CHANGES {
                    let plan = home.load().expect("it answers").expect("it is there");
                    let next = plan.text.parse::<u64>().expect("a number") + 1;
                    match home.compare_and_swap(Some(&plan.revision), &next.to_string()) {
                        Ok(Swapped::Done(_)) => done += 1,
                        Ok(Swapped::Conflict(Some(_))) => {
                            conflicts.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let plan = home.load().expect("it answers").expect("it is there");
    assert_eq!(
        plan.text,
        (THREADS * CHANGES).to_string(),
        "after {conflicts:?} conflicts"
    );
}

#[test]
fn a_file_is_what_the_model_of_a_home_says_and_loses_no_change() {
    let folder = Folder::new("file");
    for seed in [1, 77] {
        a_home_is_what_the_model_says(&folder.place(), 300, seed);
        std::fs::remove_file(folder.0.join("cluster.toml")).expect("it is there");
    }
    no_change_of_a_home_is_lost(&folder.place());
}

#[test]
fn an_etcd_is_what_the_model_of_a_home_says_and_loses_no_change() {
    let Some(etcd) = RealEtcd::start("model") else {
        return;
    };
    for seed in [1, 77] {
        a_home_is_what_the_model_says(&etcd.place(&format!("model-{seed}")), 300, seed);
    }
    no_change_of_a_home_is_lost(&etcd.place("counted"));
}

#[test]
fn a_plan_that_is_taken_away_is_gone_for_those_who_watch() {
    let folder = Folder::new("gone");
    let mut home = folder.place().open().expect("no files");
    assert_eq!(home.load(), Ok(None));
    let Ok(Swapped::Done(revision)) = home.compare_and_swap(None, "x = 1\n") else {
        panic!("nothing was there");
    };
    std::fs::remove_file(folder.0.join("cluster.toml")).expect("it is there");
    assert_eq!(home.watch(&revision, Duration::ZERO), Ok(Watched::Gone));
    let Some(etcd) = RealEtcd::start("gone") else {
        return;
    };
    let mut home = etcd.place("gone").open().expect("no files");
    let Ok(Swapped::Done(revision)) = home.compare_and_swap(None, "x = 1\n") else {
        panic!("nothing was there");
    };
    let key = r#"{"key":"L2dvbmUvcGxhbg=="}"#;
    let deleted = ureq::post(format!("{}/v3/kv/deleterange", etcd.endpoint())).send(key);
    assert_eq!(deleted.expect("deleted").status(), 200);
    assert_eq!(home.watch(&revision, Duration::ZERO), Ok(Watched::Gone));
    assert_eq!(
        home.compare_and_swap(Some(&revision), "x = 2\n"),
        Ok(Swapped::Conflict(None))
    );
}

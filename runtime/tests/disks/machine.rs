use std::path::Path;

use penstock::directory::Directory;
use penstock::startup::checks::{Check, Demand, allowed_cores, check_all};

use crate::{Folder, options};

fn demand(directory: &Directory) -> Demand<'_> {
    Demand {
        segments: directory.segments(),
        shards: 1,
        segment_bytes: 1 << 20,
        connections_max: 100,
    }
}

fn named<'a>(checks: &'a [Check], name: &str) -> &'a Check {
    checks
        .iter()
        .find(|check| check.name == name)
        .expect("it is looked at")
}

#[test]
fn everything_that_is_checked_has_a_value_and_every_problem_a_mend() {
    let folder = Folder::new("checks");
    let directory = folder.data();
    let checks = check_all(&demand(&directory));
    for check in &checks {
        println!("{check:?}");
        assert!(!check.value.is_empty());
        if let Some(problem) = &check.problem {
            assert!(
                !problem.cause.is_empty() && !problem.mend.is_empty(),
                "{check:?}"
            );
        }
    }
    assert_eq!(checks.len(), 10);
    assert!(
        named(&checks, "cores").problem.is_none(),
        "one shard fits everywhere"
    );
    let left = std::fs::read_dir(directory.segments().folder())
        .expect("list")
        .count();
    assert_eq!(left, 0);
}

#[test]
fn what_cannot_be_had_is_said_with_both_numbers() {
    let folder = Folder::new("demands");
    let directory = folder.data();
    let cores = u32::try_from(allowed_cores().len()).expect("few");
    assert!(cores > 0);
    let checks = check_all(&Demand {
        shards: cores + 1,
        segment_bytes: 1 << 50,
        connections_max: 1 << 40,
        ..demand(&directory)
    });
    let problem = named(&checks, "cores")
        .problem
        .as_ref()
        .expect("too many shards");
    assert!(
        problem
            .cause
            .contains(&format!("{} shards share {cores} cores", cores + 1))
    );
    assert!(
        problem.mend.contains(&format!("--shards {cores}")),
        "{problem:?}"
    );
    assert!(named(&checks, "free space").problem.is_some());
    assert!(named(&checks, "open files").problem.is_some());
}

#[test]
fn a_directory_in_memory_is_distinguished_from_a_disk() {
    let path = Path::new("/dev/shm").join(format!("penstock-checks-{}", std::process::id()));
    let directory = match Directory::open(&path, options()) {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            return;
        }
    };
    let checks = check_all(&demand(&directory));
    let problem = named(&checks, "file system").problem.clone();
    drop(directory);
    std::fs::remove_dir_all(path).expect("remove");
    assert!(
        problem
            .expect("it is tmpfs")
            .cause
            .contains("nothing survives a power cut")
    );
}

//! What a home in etcd makes of lost, late, cut and foreign answers.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::cluster::plan::home::tests::real_etcd::access;
use crate::cluster::plan::home::tests::scripted_etcd::{Fault, ScriptedEtcd};
use crate::cluster::plan::home::{
    HomeError, PLAN_BYTES_MAX, PlanHome, PlanPlace, Revision, Swapped, Watched,
};

fn revision(modified: u64) -> Revision {
    Revision::Key { etcd: 7, modified }
}

fn home_of(etcds: &[&ScriptedEtcd]) -> Box<dyn PlanHome> {
    let endpoints = etcds.iter().map(|it| it.endpoint.clone()).collect();
    let place = PlanPlace::Etcd {
        access: access(endpoints, "penstock"),
        secret_file: None,
    };
    place.open().expect("no files")
}

#[test]
fn a_swap_whose_answer_is_lost_is_settled_by_reading_and_is_done_once() {
    use Fault::{AnswerCut, AnswerLate, AnswerLost, NoQuorum, NotDone, Page, Redirect};
    for faults in [
        &[AnswerLost][..],
        &[AnswerLate],
        &[AnswerCut],
        &[NotDone],
        &[Page],
        &[NoQuorum],
        &[Redirect],
        &[NotDone, AnswerLost, Page],
        &[AnswerLost, NoQuorum, AnswerCut],
    ] {
        let etcd = ScriptedEtcd::start();
        etcd.put(b"before", 11);
        etcd.script(faults, None);
        let swapped = home_of(&[&etcd]).compare_and_swap(Some(&revision(11)), "after");
        assert_eq!(swapped, Ok(Swapped::Done(revision(12))), "{faults:?}");
        let state = etcd.state.lock().expect("no thread panics");
        assert_eq!(
            (state.value.as_deref(), state.mod_revision),
            (Some(&b"after"[..]), 12)
        );
    }
}

#[test]
fn a_swap_that_was_done_and_replaced_before_it_was_answered_is_a_conflict() {
    let etcd = ScriptedEtcd::start();
    etcd.put(b"before", 11);
    etcd.script(&[Fault::AnswerLostAndChanged], None);
    let swapped = home_of(&[&etcd]).compare_and_swap(Some(&revision(11)), "after");
    let Ok(Swapped::Conflict(Some(there))) = swapped else {
        panic!("{swapped:?}");
    };
    assert_eq!(
        (there.text.as_str(), there.revision),
        ("another", revision(13))
    );
}

#[test]
fn a_swap_that_nobody_answers_is_unknown_and_not_failed() {
    let etcd = ScriptedEtcd::start();
    etcd.put(b"before", 11);
    etcd.script(&[], Some(Fault::AnswerLost));
    let mut home = home_of(&[&etcd]);
    let swapped = home.compare_and_swap(Some(&revision(11)), "after");
    assert!(matches!(swapped, Err(HomeError::Unknown(_))), "{swapped:?}");
    // It was done, which a reading tells.
    etcd.script(&[], None);
    let there = home.load().expect("it answers").expect("it is there");
    assert_eq!(
        (there.text.as_str(), there.revision),
        ("after", revision(12))
    );
}

#[test]
fn a_reading_goes_to_the_next_endpoint_and_says_what_was_wrong_with_each() {
    use Fault::{AnswerCut, AnswerLate, AnswerLost, NoQuorum, Page, Redirect};
    for fault in [AnswerCut, AnswerLate, AnswerLost, NoQuorum, Page, Redirect] {
        let (bad, good) = (ScriptedEtcd::start(), ScriptedEtcd::start());
        bad.script(&[], Some(fault));
        good.put(b"the plan", 5);
        let mut home = home_of(&[&bad, &good]);
        for _ in 0..3 {
            let plan = home
                .load()
                .expect("the other one answers")
                .expect("it is there");
            assert_eq!(plan.revision, revision(5));
        }
        let asked = bad.state.lock().expect("no thread panics").requests;
        assert_eq!(asked, 1, "{fault:?}: the one that answers stays the first");
        // No other one.
        let error = home_of(&[&bad]).load().expect_err("nobody answers");
        let HomeError::Unavailable(text) = error else {
            panic!("{fault:?}: {error:?}");
        };
        let named = match fault {
            AnswerLate => "no answer in 300 ms",
            NoQuorum => "etcd says \"etcdserver: request timed out\"",
            Page => "(status 502) is not etcd's JSON gateway: \"<html><title>502 Bad Gateway",
            Redirect => "(status 302) is not etcd's JSON gateway",
            _ => "",
        };
        assert!(
            text.contains(named) && text.contains(&bad.endpoint),
            "{fault:?}: {text}"
        );
    }
}

#[test]
fn a_watch_sees_a_revision_that_goes_back_and_a_text_that_is_too_long_for_a_plan() {
    let etcd = ScriptedEtcd::start();
    etcd.put(b"newest", 20);
    let mut home = home_of(&[&etcd]);
    assert_eq!(home.watch(&revision(20), Duration::ZERO), Ok(Watched::Same));
    etcd.put(b"of a backup", 15);
    let watched = home.watch(&revision(20), Duration::ZERO);
    let Ok(Watched::Changed(plan)) = watched else {
        panic!("{watched:?}");
    };
    assert_eq!(
        (plan.text.as_str(), plan.revision),
        ("of a backup", revision(15))
    );
    etcd.put(&vec![b'#'; PLAN_BYTES_MAX + 1], 21);
    let plan = home.load().expect("it answers").expect("it is there");
    assert!(plan.text.len() > PLAN_BYTES_MAX);
    // Beyond what etcd itself takes.
    etcd.put(&vec![b'#'; 3 << 20], 22);
    let error = home.load().expect_err("nothing so long is read");
    assert!(
        error.to_string().contains("more than 3145728 bytes"),
        "{error}"
    );
}

#[test]
fn a_token_that_expires_is_renewed_and_a_wrong_password_is_reported() {
    let folder = std::env::temp_dir().join(format!("penstock-token-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    let secret = folder.join("secret");
    std::fs::write(&secret, "pencil\n").expect("written");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("set");
    let etcd = ScriptedEtcd::start();
    etcd.put(b"the plan", 5);
    let login = |password: &str| Some(("penstock".to_string(), password.to_string(), 1));
    etcd.state.lock().expect("no thread panics").login = login("pencil");
    let mut access = access(vec![etcd.endpoint.clone()], "penstock");
    let anonymous = PlanPlace::Etcd {
        access: access.clone(),
        secret_file: None,
    };
    let refused = anonymous.open().expect("no files").load();
    assert!(matches!(refused, Err(HomeError::Refused(_))), "{refused:?}");
    access.user = Some("penstock".into());
    access.secret_file = Some(secret.clone());
    let place = PlanPlace::Etcd {
        access,
        secret_file: None,
    };
    let mut home = place.open().expect("no files");
    let logins = || etcd.state.lock().expect("no thread panics").logins;
    for _ in 0..3 {
        assert!(home.load().is_ok());
    }
    assert_eq!(logins(), 1);
    etcd.script(&[Fault::TokenExpired], None);
    assert!(home.load().is_ok());
    etcd.script(&[Fault::TokenExpired], None);
    let swapped = home.compare_and_swap(Some(&revision(5)), "after");
    assert_eq!(swapped, Ok(Swapped::Done(revision(6))));
    assert_eq!(logins(), 3);
    // The password is another one since, and then the file tells it.
    etcd.state.lock().expect("no thread panics").login = login("chalk");
    etcd.script(&[Fault::TokenExpired], None);
    let refused = home.load();
    let Err(HomeError::Refused(text)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        text.contains("the login of \"penstock\"") && text.contains("invalid user ID"),
        "{text}"
    );
    std::fs::write(&secret, "chalk").expect("written");
    assert!(home.load().is_ok());
    std::fs::remove_dir_all(&folder).expect("removed");
}

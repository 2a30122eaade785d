//! Answers of etcd and plans of clusters: what is read is in bounds, what is not is told in one
//! line that is short, and nothing takes memory out of proportion.
//!
//! An input is one byte that chooses what is read (0 to 3: a key, a swap, a login, a plan), then
//! its text. Of answers, the byte also chooses the status.

use penstock::cluster::plan::home::PlanPlace;
use penstock::cluster::plan::placement::nodes_in;
use penstock::etcd::EtcdAccess;
use penstock::etcd::answer::{AnswerError, read_login, read_range, read_swap};

use crate::in_proportion;
use crate::target::Choices;

const STATUSES: [u16; 4] = [200, 401, 503, 302];

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let choice = choices.byte();
    let status = STATUSES[usize::from(choice / 4) % STATUSES.len()];
    let body = choices.rest();
    let error = match choice % 4 {
        0 => match in_proportion(input.len(), || read_range(status, body)) {
            Ok(range) => {
                assert_eq!(status, 200);
                let found = range.found.iter();
                found.for_each(|it| assert!(it.mod_revision > 0 && it.value.len() < body.len()));
                return;
            }
            Err(error) => error,
        },
        1 => match in_proportion(input.len(), || read_swap(status, body)) {
            Ok(swap) => {
                assert_eq!(status, 200);
                let there = swap.outcome.err().flatten();
                assert!(there.is_none_or(|it| it.mod_revision > 0));
                return;
            }
            Err(error) => error,
        },
        2 => match in_proportion(input.len(), || read_login(status, body)) {
            Ok(token) => {
                assert!(!token.is_empty() && token.bytes().all(|it| it.is_ascii_graphic()));
                return;
            }
            Err(error) => error,
        },
        _ => return judge_plan(body),
    };
    let text = error.to_string();
    assert!(!text.contains('\n') && text.len() < 1_000, "{text:?}");
    if status == 200 && !body.starts_with(b"{") {
        let is_blank = |it: &u8| it.is_ascii_whitespace();
        let is_object = body.iter().find(|it| !is_blank(it)) == Some(&b'{');
        assert!(
            is_object || matches!(error, AnswerError::NotEtcd(_)),
            "{error:?}"
        );
    }
}

fn judge_plan(body: &[u8]) {
    let place = PlanPlace::Etcd {
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
    };
    let text = String::from_utf8_lossy(body).into_owned();
    let bytes = text.len();
    // The table of the partitions is there once and for all.
    match in_proportion(bytes + 256, || nodes_in(&place, text)) {
        Ok(nodes) => {
            assert!(!nodes.is_empty() && nodes.len() <= 255);
            let mut numbers: Vec<u8> = nodes.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), nodes.len(), "no two nodes have one number");
        }
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n'), "{line:?}");
            assert!(line.len() <= 16 * bytes + 2_000);
        }
    }
}

//! The search of rights beside a model that looks at every prefix.

use penstock_net::limits::RIGHTS_PREFIXES_MAX;
use penstock_net::rights::{Denied, Grants, Need, Right, Rights};

use crate::Random;

const PROGRAMS: [&str; 3] = ["buy", "hold", "refund"];

/// What was granted, one by one.
type Granted = Vec<(Right, Option<&'static str>, Vec<u8>)>;

/// Few bytes of which many prefixes of one another are made, the least and the greatest included.
fn bytes(random: &mut Random, len_max: usize) -> Vec<u8> {
    let common: &[u8] = [&b""[..], b"tenant:0", b"tenant:00001:"][random.below(3)];
    let len = random.below(len_max + 1);
    let rest = (0..len).map(|_| {
        *[0, b'a', b'a', b'b', 0xFE, 0xFF]
            .get(random.below(6))
            .unwrap()
    });
    common.iter().copied().chain(rest).collect()
}

fn granted(random: &mut Random) -> Granted {
    let count = [0, 1, 2, 10, 100][random.below(5)];
    let mut all = Granted::new();
    for _ in 0..count {
        let right = Right::ALL[random.below(4)];
        let program = (right == Right::Run)
            .then(|| ["*", "buy", "hold"][random.below(if count > 2 { 3 } else { 2 })]);
        let prefix = bytes(random, 6);
        all.push((right, program, prefix));
    }
    all
}

fn rights_of(granted: &Granted) -> Rights {
    let mut grants = Grants::new();
    for (right, program, prefix) in granted {
        match program {
            None => grants.grant(*right, prefix).expect("within the limits"),
            Some(program) => grants
                .grant_run(program, prefix)
                .expect("within the limits"),
        }
    }
    Rights::new("ann", &grants)
}

#[test]
fn a_key_has_the_rights_of_every_prefix_that_it_begins_with_and_no_others() {
    let mut random = Random(7);
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..400 {
        let granted = granted(&mut random);
        let rights = rights_of(&granted);
        for _ in 0..100 {
            let mut key = bytes(&mut random, 10);
            if !granted.is_empty() && random.below(3) == 0 {
                let (_, _, prefix) = &granted[random.below(granted.len())];
                key = [&prefix[..], &key[..random.below(key.len() + 1)]].concat();
            }
            let begins = |right: Right, program: Option<&str>| {
                let mut all = granted.iter();
                all.any(|(granted, runs, prefix)| {
                    let is_program = match (runs, program) {
                        (Some("*"), _) | (Some(_), None) => true,
                        (runs, program) => *runs == program,
                    };
                    *granted == right && is_program && key.starts_with(prefix)
                })
            };
            for right in [Right::Read, Right::Write, Right::Admin] {
                let has = begins(right, None);
                assert_eq!(
                    rights.allows(Need::of(right), &key),
                    has,
                    "{granted:?} {key:?}"
                );
                let lacking = Denied {
                    user: "ann",
                    right,
                    at: &key,
                    is_prefix: false,
                    program: None,
                };
                let demanded = rights.demand(Need::of(right), &key);
                assert_eq!(demanded.err(), (!has).then_some(lacking));
                allowed += usize::from(has);
                denied += usize::from(!has);
            }
            for program in [
                None,
                Some(PROGRAMS[0]),
                Some(PROGRAMS[1]),
                Some(PROGRAMS[2]),
            ] {
                let has = begins(Right::Run, program);
                let demanded = rights.demand_run(program, &key);
                assert_eq!(demanded.is_ok(), has, "{program:?} {granted:?} {key:?}");
                if let Err(denied) = demanded {
                    assert_eq!((denied.right, denied.program), (Right::Run, program));
                }
            }
        }
        assert_eq!(rights.is_any(), !granted.is_empty());
    }
    assert!(allowed > 5_000 && denied > 5_000, "{allowed} {denied}");
}

#[test]
fn a_search_among_the_most_prefixes_takes_nothing_from_the_heap() {
    let mut grants = Grants::new();
    for number in 0..RIGHTS_PREFIXES_MAX {
        let prefix = format!("tenant:{number:05}:");
        grants
            .grant(Right::Write, prefix.as_bytes())
            .expect("within the limits");
    }
    let rights = Rights::new("ann", &grants);
    let used = allocation_counter::measure(|| {
        for number in 0..2 * RIGHTS_PREFIXES_MAX {
            let mut key = *b"tenant:00000:1";
            for (place, byte) in key[7..12].iter_mut().rev().enumerate() {
                let digit = number / 10usize.pow(u32::try_from(place).expect("5 digits")) % 10;
                *byte = b'0' + u8::try_from(digit).expect("a digit");
            }
            let has = rights.allows(Need::WRITE, &key);
            assert_eq!(has, number < RIGHTS_PREFIXES_MAX);
            assert!(rights.demand(Need::READ, &key).is_err());
        }
    });
    assert_eq!(used.count_total, 0);
}

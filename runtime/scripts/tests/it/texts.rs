//! Texts that cores share.

use std::sync::Arc;

use penstock_scripts::{
    ENTRY_BYTES, EVALUATED_MAX, LoadError, SCRIPT_BYTES_MAX, SCRIPTS_BYTES_MAX, ScriptLimits,
    ScriptTexts, digest,
};
use penstock_shard::scripts::ScriptEnd;

use crate::store::Client;

#[test]
fn a_loaded_script_runs_on_every_core() {
    let texts = Arc::new(ScriptTexts::new());
    let digest = texts.load(b"return ARGV[1]").expect("it compiles");
    for _ in 0..2 {
        let mut core = Client::of(Arc::clone(&texts), ScriptLimits::default());
        assert_eq!(core.eval_sha(digest, &[], &["x"]), "$1\r\nx\r\n");
    }
}

#[test]
fn a_script_that_came_with_an_eval_runs_on_every_core_by_its_digest() {
    let texts = Arc::new(ScriptTexts::new());
    let mut first = Client::of(Arc::clone(&texts), ScriptLimits::default());
    let mut second = Client::of(Arc::clone(&texts), ScriptLimits::default());
    let name = digest(b"return 7");
    assert_eq!(second.eval_sha(name, &[], &[]), "");
    assert_eq!(second.end, ScriptEnd::Unknown);
    assert_eq!(first.value("return 7"), ":7\r\n");
    assert!(texts.exists(&name));
    assert_eq!(second.eval_sha(name, &[], &[]), ":7\r\n");
}

#[test]
fn no_core_runs_a_script_that_was_flushed() {
    let texts = Arc::new(ScriptTexts::new());
    let name = texts.load(b"return 7").expect("it compiles");
    let mut core = Client::of(Arc::clone(&texts), ScriptLimits::default());
    assert_eq!(core.eval_sha(name, &[], &[]), ":7\r\n");
    texts.flush();
    assert_eq!(core.eval_sha(name, &[], &[]), "");
    assert_eq!(core.end, ScriptEnd::Unknown);
    assert!(!texts.exists(&name));
}

#[test]
fn what_does_not_compile_is_not_loaded() {
    let texts = ScriptTexts::new();
    let error = texts.load(b"return if").expect_err("it is no script");
    let text = "ERR Error compiling script (new function): user_script:1: unexpected symbol near";
    assert_eq!(error.to_string(), format!("{text} 'if'"));
    let error = texts.load(b"#!js\nx").expect_err("it is no Lua");
    assert_eq!(
        error.to_string(),
        "ERR Could not find scripting engine 'js'"
    );
    let long = vec![b' '; SCRIPT_BYTES_MAX + 1];
    assert_eq!(
        texts.load(&long),
        Err(LoadError::TooLong { bytes: long.len() })
    );
    assert_eq!(texts.size(), (0, 0));
}

#[test]
fn loaded_scripts_stay_and_evaluated_ones_go() {
    let texts = Arc::new(ScriptTexts::new());
    let mut core = Client::of(Arc::clone(&texts), ScriptLimits::default());
    core.value("return 'evaluated'");
    let filler = |number: usize| {
        let text = format!("return {number}");
        text.clone() + &" ".repeat(SCRIPT_BYTES_MAX - text.len())
    };
    let count = SCRIPTS_BYTES_MAX / (SCRIPT_BYTES_MAX + ENTRY_BYTES);
    for number in 0..count {
        texts
            .load(filler(number).as_bytes())
            .expect("evaluated scripts make room");
    }
    // What is left is filled to the last byte.
    let left = SCRIPTS_BYTES_MAX - count * (SCRIPT_BYTES_MAX + ENTRY_BYTES) - ENTRY_BYTES;
    let last = " ".repeat(left);
    texts
        .load(last.as_bytes())
        .expect("evaluated scripts make room");
    assert_eq!(texts.size(), (count + 1, SCRIPTS_BYTES_MAX));
    assert!(!texts.exists(&digest(b"return 'evaluated'")));
    let refused = texts.load(filler(count).as_bytes());
    let full = LoadError::Full {
        scripts: count + 1,
        bytes: SCRIPTS_BYTES_MAX + SCRIPT_BYTES_MAX + ENTRY_BYTES,
    };
    assert!(full.to_string().contains(&SCRIPTS_BYTES_MAX.to_string()));
    assert_eq!(refused, Err(full));
    assert!(texts.exists(&digest(filler(0).as_bytes())));
    assert!(texts.size().1 <= SCRIPTS_BYTES_MAX);
    texts.flush();
    assert_eq!(texts.size(), (0, 0));
}

#[test]
fn an_evaluated_script_goes_when_it_was_not_used_for_the_longest_time() {
    let texts = Arc::new(ScriptTexts::new());
    let mut core = Client::of(Arc::clone(&texts), ScriptLimits::default());
    for number in 0..=EVALUATED_MAX {
        core.value(&format!("return {number}"));
        if number == 1 {
            let mut other = Client::of(Arc::clone(&texts), ScriptLimits::default());
            other.eval_sha(digest(b"return 0"), &[], &[]);
        }
    }
    assert_eq!(texts.size().0, EVALUATED_MAX);
    assert!(texts.exists(&digest(b"return 0")));
    assert!(!texts.exists(&digest(b"return 1")));
}

#[test]
fn many_short_scripts_are_loaded_and_push_no_evaluated_one_out() {
    let texts = Arc::new(ScriptTexts::new());
    let mut core = Client::of(Arc::clone(&texts), ScriptLimits::default());
    core.value("return 'evaluated'");
    for number in 0..2 * EVALUATED_MAX {
        texts
            .load(format!("return {number}").as_bytes())
            .expect("there is room");
    }
    assert_eq!(texts.size().0, 2 * EVALUATED_MAX + 1);
    assert!(texts.exists(&digest(b"return 'evaluated'")));
    // What was loaded stays, however many come by EVAL alone.
    for number in 0..=EVALUATED_MAX {
        core.value(&format!("return 'another', {number}"));
    }
    assert_eq!(texts.size().0, 3 * EVALUATED_MAX);
    assert!(texts.exists(&digest(b"return 0")));
}

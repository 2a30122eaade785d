//! The repository keeps to its limits, and the checker finds what does not.

use std::fs;
use std::path::{Path, PathBuf};

use penstock_tidy::{Allowed, Finding, Rule, Tree, findings, verdict};

#[test]
fn the_repository_is_within_its_limits_or_its_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = findings(&Tree::read(&root).unwrap()).unwrap();
    let list = fs::read_to_string(root.join(".ci/tidy.allow")).unwrap();
    let wrong = verdict(&found, &Allowed::read(&list).unwrap());
    assert!(
        wrong.is_empty(),
        "{}\n{} complaints",
        wrong.join("\n"),
        wrong.len()
    );
}

/// A repository of made-up files.
struct Made(PathBuf);

impl Made {
    fn new(name: &str, files: &[(&str, &str)]) -> Made {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tidy-{name}"));
        let _ = fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Made(root)
    }

    fn findings(&self) -> Vec<Finding> {
        findings(&Tree::read(&self.0).unwrap()).unwrap()
    }

    /// Rule, subject and figure of everything found.
    fn found(&self) -> Vec<(Rule, String, usize)> {
        let found = self.findings().into_iter();
        found.map(|it| (it.rule, it.subject, it.figure)).collect()
    }
}

#[test]
fn a_file_of_901_lines_is_found_and_one_of_900_is_not() {
    let (long, full) = ("//\n".repeat(901), "//\n".repeat(900));
    let made = Made::new("file", &[("a/long.rs", &long), ("a/full.rs", &full)]);
    let found = made.findings();
    assert_eq!(made.found(), [(Rule::File, "a/long.rs".to_string(), 901)]);
    let report = verdict(&found, &Allowed::default());
    assert_eq!(
        report,
        ["a/long.rs: 901 lines; 900 is the limit\n    a/long.rs:901: the last line"]
    );
}

#[test]
fn a_function_of_101_lines_is_found_with_its_type_and_its_first_line() {
    let body = |lines: usize| "        let _ = 1;\n".repeat(lines - 2);
    let text = format!(
        "struct Log;\n\nimpl Log {{\n    /// Long.\n    #[inline]\n    pub fn append(\n        \
         &self,\n    ) {{\n{}    }}\n    fn full() {{\n{}    }}\n}}\n",
        body(99),
        body(100),
    );
    let made = Made::new("function", &[("log.rs", &text)]);
    let found = made.findings();
    assert_eq!(
        made.found(),
        [(Rule::Function, "log.rs::Log::append".to_string(), 101)]
    );
    assert_eq!(found[0].places, ["log.rs:6: `Log::append`"]);
}

#[test]
fn methods_of_a_type_are_counted_over_files_without_tests_and_traits() {
    let methods = |from: usize, to: usize| -> String {
        (from..to)
            .map(|at| format!("fn m{at}(&self) {{}}\n"))
            .collect()
    };
    let first = format!(
        "pub struct Log;\nimpl Log {{\n{}}}\n\
         #[cfg(test)]\nmod tests {{\nimpl Log {{ fn t() {{}} }}\n}}\n",
        methods(0, 100)
    );
    let other = format!(
        "impl<T> Log {{\n{}}}\nimpl Clone for Log {{ fn clone(&self) -> Log {{ Log }} }}\n",
        methods(100, 120)
    );
    let files = [("a/src/log.rs", &first[..]), ("a/src/other.rs", &other[..])];
    assert_eq!(Made::new("methods", &files).found(), []);
    let more = "impl Log { fn one_more(&self) {} }\n";
    let files = [files[0], files[1], ("a/src/more.rs", more)];
    let found = Made::new("more-methods", &files).found();
    assert_eq!(found, [(Rule::Methods, "a/src::Log".to_string(), 121)]);
    // Another type of that name: each has the methods of its file.
    let files = [
        files[0],
        files[1],
        ("a/src/more.rs", "struct Log; impl Log { fn one(&self) {} }"),
    ];
    assert_eq!(Made::new("two-types", &files).found(), []);
}

#[test]
fn a_type_of_21_fields_is_found_and_one_of_20_is_not() {
    let of = |name: &str, count: usize| -> String {
        let fields: String = (0..count).map(|at| format!("f{at}: u8,\n")).collect();
        format!("struct {name} {{\n{fields}}}\n")
    };
    let text = of("Full", 20) + &of("Large", 21);
    let made = Made::new(
        "fields",
        &[("a/src/one.rs", &text), ("a/tests/two.rs", &text)],
    );
    assert_eq!(
        made.found(),
        [(Rule::Fields, "a/src::Large".to_string(), 21)]
    );
}

#[test]
fn a_line_of_101_characters_is_counted_but_not_a_row_or_a_word_that_cannot_be_broken() {
    let long = format!("// {}", "ä ".repeat(49));
    assert_eq!(long.chars().count(), 101);
    let name = format!("fn {}() {{}}", "a_".repeat(50));
    let row = format!("| {}|", "cell ".repeat(30));
    let code =
        format!("{long}\n{name}\n/// {row}\n{long}\n// {row}\nfn f() {{\n    //! {row}\n}}\n");
    let document = format!("{row}\n\n{}\n", "word ".repeat(30));
    let made = Made::new("line", &[("code.rs", &code), ("text.md", &document)]);
    assert_eq!(
        made.found(),
        [
            (Rule::Line, "code.rs".to_string(), 3),
            (Rule::Line, "text.md".to_string(), 1)
        ]
    );
    assert_eq!(
        made.findings()[0].places,
        [
            "code.rs:1: 101 characters",
            "code.rs:4: 101 characters",
            "code.rs:5: 156 characters",
        ]
    );
}

#[test]
fn a_path_that_a_document_names_must_exist() {
    let document = "See [the log](src/log.rs#L3), [gone](src/gone.rs) and \
        [the net](https://x.y/z.rs).\n\
        `src/log.rs:12` stands, `store/src/log.rs` too; `src/lost.rs` and `memory.rs` do not.\n\
        `read/write`, `/etc/penstock.toml`, `{a,b}.rs`, `.rs` and `target/x/y.rs` are no paths.\n\
        A user's own are not meant: `./data/x.rs`, `data/x.log`.\n\
        ```sh\ncat store/absent.toml store/src/log.rs\n```\n";
    let made = Made::new(
        "path",
        &[("store/DOC.md", document), ("store/src/log.rs", "")],
    );
    let found = made.findings();
    assert_eq!(made.found(), [(Rule::Path, "store/DOC.md".to_string(), 4)]);
    assert_eq!(
        found[0].places,
        [
            "store/DOC.md:1: src/gone.rs",
            "store/DOC.md:2: src/lost.rs",
            "store/DOC.md:2: memory.rs",
            "store/DOC.md:6: store/absent.toml",
        ]
    );
}

#[test]
fn a_path_may_begin_at_the_root_at_the_document_or_at_its_crate() {
    let document = "`a/src/x.rs`, `y/z.rs`, `src/x.rs`, `b/w.rs`\n";
    let made = Made::new(
        "begin",
        &[
            ("a/Cargo.toml", ""),
            ("a/src/x.rs", ""),
            ("a/docs/y/z.rs", ""),
            ("a/docs/DOC.md", document),
            ("b/w.rs", ""),
            ("docs/src/w.rs", ""),
        ],
    );
    assert_eq!(made.found(), []);
}

#[test]
fn modules_that_import_each_other_are_found_through_re_exports_and_macros() {
    let made = Made::new(
        "cycle",
        &[
            ("c/src/lib.rs", "mod a;\nmod b;\nmod d;\npub use b::B;\n"),
            ("c/src/a.rs", "use crate::B;\npub struct A(B);\n"),
            (
                "c/src/b.rs",
                "pub struct B;\nfn f() {\n    assert!(crate::d::is_so());\n}\n",
            ),
            (
                "c/src/d.rs",
                "pub fn is_so() -> bool {\n    let _: Option<super::a::A> = None;\n    true\n}\n",
            ),
        ],
    );
    let found = made.findings();
    assert_eq!(made.found(), [(Rule::Cycle, "c/src/lib.rs".to_string(), 3)]);
    assert_eq!(
        found[0].places,
        [
            "c/src/a.rs:1: uses b",
            "c/src/b.rs:3: uses d",
            "c/src/d.rs:2: uses a",
        ]
    );
}

#[test]
fn the_files_of_one_type_may_use_each_other_and_tests_do_not_count() {
    let made = Made::new(
        "one-type",
        &[
            ("c/src/lib.rs", "mod log;\nmod place;\n"),
            (
                "c/src/log.rs",
                "mod supply;\nuse crate::place::Place;\npub struct Log(Place);\n\
                 use supply::fill;\n",
            ),
            (
                "c/src/log/supply.rs",
                "use super::Log;\npub fn fill(_: &Log) {}\n",
            ),
            (
                "c/src/place.rs",
                "pub struct Place;\n#[cfg(test)]\nmod tests {\n    use crate::log::Log;\n}\n",
            ),
        ],
    );
    assert_eq!(made.found(), []);
}

#[test]
fn siblings_below_one_type_must_not_form_a_circle_of_their_own() {
    let made = Made::new(
        "siblings",
        &[
            ("c/src/lib.rs", "mod log;\n"),
            (
                "c/src/log/mod.rs",
                "mod a;\nmod b;\npub struct Log;\nfn f() {\n    a::a();\n}\n",
            ),
            (
                "c/src/log/a.rs",
                "use super::Log;\nuse super::b::b;\npub fn a() {}\n",
            ),
            ("c/src/log/b.rs", "pub fn b() {\n    super::a::a();\n}\n"),
        ],
    );
    assert_eq!(made.found(), [(Rule::Cycle, "c/src/lib.rs".to_string(), 2)]);
}

#[test]
fn a_file_that_is_not_rust_is_named_with_its_line() {
    let made = Made::new("broken", &[("broken.rs", "fn a() {}\nfn b( {\n")]);
    let refused = findings(&Tree::read(&made.0).unwrap()).unwrap_err();
    assert!(
        refused.starts_with("broken.rs:2: cannot be parsed"),
        "{refused}"
    );
}

fn finding(figure: usize) -> Finding {
    Finding {
        rule: Rule::Function,
        subject: "log.rs::append".into(),
        figure,
        places: vec!["log.rs:7: `append`".into()],
    }
}

#[test]
fn a_listed_figure_may_shrink_and_not_grow() {
    let allowed = Allowed::read("# head\nlog.rs::append function 130\n").unwrap();
    assert_eq!(verdict(&[finding(130)], &allowed), [""; 0]);
    assert_eq!(verdict(&[finding(120)], &allowed), [""; 0]);
    assert_eq!(
        verdict(&[finding(131)], &allowed),
        [
            "log.rs::append: 131 lines; 130 the list has, and a figure may only shrink\n    \
             log.rs:7: `append`"
        ]
    );
}

#[test]
fn an_entry_that_nothing_needs_is_reported() {
    let allowed = Allowed::read("log.rs::append function 130\n").unwrap();
    let report = verdict(&[], &allowed);
    assert_eq!(report.len(), 1);
    assert!(report[0].starts_with("log.rs::append: listed with 130 lines, and within the limit"));
}

#[test]
fn writing_the_list_lowers_and_removes_but_never_raises_or_adds() {
    let allowed = Allowed::read("gone.rs file 950\nlog.rs::append function 130\n").unwrap();
    let mut other = finding(140);
    other.subject = "log.rs::other".into();
    let lowered = allowed.lowered(&[finding(120), other.clone()]);
    assert_eq!(lowered, Allowed::of(&[finding(120)]));
    assert_eq!(
        allowed.lowered(&[finding(131)]),
        Allowed::of(&[finding(130)])
    );
    let anew = Allowed::of(&[finding(131), other]);
    assert_eq!(Allowed::read(&anew.text()), Ok(anew));
}

#[test]
fn a_line_of_the_list_that_is_no_entry_is_refused_with_its_number() {
    for (text, what) in [
        ("a.rs file\n", "tidy.allow:1: not `subject rule figure`"),
        ("a.rs size 3\n", "tidy.allow:1: no rule of that name"),
        (
            "#\na.rs file many\n",
            "tidy.allow:2: the figure is no number",
        ),
        ("a.rs file 3\na.rs file 4\n", "tidy.allow:2: listed twice"),
    ] {
        let refused = Allowed::read(text).unwrap_err();
        assert!(refused.starts_with(what), "{refused}");
    }
}

//! `penstock user` on a file: secrets are printed once, and the file never has one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use penstock::users::read_users;
use penstock_net::auth::{Secret, SecretKind, Verifier};
use penstock_net::rights::Need;

use crate::command::command;
use crate::scratch;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = scratch::folder(format!("user-{name}"));
        fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("users")
    }
}

fn user(file: &Path, words: &[&str], input: &str) -> Output {
    let mut child = command(&[&["user"], words].concat())
        .env("PENSTOCK_USERS", file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    // A command that asks for nothing does not read it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// What a command that was done prints.
fn done(file: &Path, words: &[&str]) -> String {
    let output = user(file, words, "");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {printed}");
    String::from_utf8(output.stdout).expect("text")
}

fn secret_of(printed: &str) -> Secret {
    let line = printed.strip_suffix('\n').expect("a line");
    assert!(!line.contains('\n'), "the secret alone");
    Secret::new(line.as_bytes().to_vec()).expect("a secret")
}

fn fits(verifier: &Verifier, secret: &Secret) -> bool {
    *verifier == Verifier::with(secret, verifier.salt, verifier.iterations)
}

#[test]
fn secrets_that_are_printed_are_those_of_the_file_which_has_none() {
    let folder = Folder::new("secrets");
    let file = folder.file();
    let password = secret_of(&done(&file, &["add", "ann"]));
    let key = secret_of(&done(&file, &["add", "till", "--key", "one"]));
    let other = secret_of(&done(&file, &["key", "till", "two"]));
    done(&file, &["add", "desk", "--certificate", "desk.shop"]);
    let given = user(
        &file,
        &["add", "bob", "--password-stdin"],
        "correct horse\n",
    );
    assert_eq!(
        (given.status.code(), &given.stdout[..]),
        (Some(0), &b""[..])
    );
    let users = read_users(&file).expect("sound");
    assert_eq!(users.len(), 4);
    let verifier = |login: &str| users.login(login).expect("there").1;
    assert!(fits(verifier("ann"), &password) && fits(verifier("till/one"), &key));
    assert!(fits(verifier("till/two"), &other) && !fits(verifier("till/one"), &other));
    let horse = Secret::new(b"correct horse".to_vec()).expect("a secret");
    assert!(fits(verifier("bob"), &horse));
    assert_eq!(
        (password.kind(), key.kind()),
        (SecretKind::Password, SecretKind::Key)
    );
    assert!(users.of_certificate("desk.shop").is_some());
    let mode = fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&file).expect("read");
    let list = done(&file, &["list"]);
    for secret in [&password, &key, &other, &horse] {
        let secret = str::from_utf8(secret.expose()).expect("text");
        assert!(!text.contains(secret) && !list.contains(secret));
    }
    assert!(!list.contains("SCRAM"), "{list}");
    let again = secret_of(&done(&file, &["password", "ann"]));
    let users = read_users(&file).expect("sound");
    assert!(fits(users.login("ann").expect("there").1, &again));
    done(&file, &["key", "till", "one", "--remove"]);
    done(&file, &["remove", "bob"]);
    let list = done(&file, &["list"]);
    let expected = "ann: password\n    no rights\ndesk: certificate desk.shop\n    no rights\n\
                    till: key two\n    no rights\n";
    assert_eq!(list, expected);
}

#[test]
fn rights_are_granted_and_revoked_in_the_words_of_the_file_and_comments_stay() {
    let folder = Folder::new("rights");
    let file = folder.file();
    done(&file, &["add", "till", "--key", "one"]);
    let text = fs::read_to_string(&file).expect("read");
    fs::write(
        &file,
        text.replace("user till\n", "user till    # the box office\n"),
    )
    .expect("kept");
    done(
        &file,
        &[
            "grant", "till", "run", "buy", "hold", "on", "stock:", "order:",
        ],
    );
    done(&file, &["grant", "till", "read", ""]);
    done(&file, &["grant", "till", "write", "order:", "\"\\x01\""]);
    done(&file, &["revoke", "till", "run", "hold"]);
    let list = done(&file, &["list", "till"]);
    let rights = "till: key one\n    read \"\"\n    write \"\\x01\" order:\n    \
                  run buy on order: stock:\n";
    assert_eq!(list, rights);
    let users = read_users(&file).expect("sound");
    let till = users.find("till").expect("there").rights();
    assert!(till.allows(Need::READ, b"anything") && till.allows(Need::WRITE, b"\x01"));
    let text = fs::read_to_string(&file).expect("read");
    assert!(text.contains("user till    # the box office\n"), "{text}");
}

#[test]
fn what_cannot_be_done_is_reported_in_one_line_with_its_exit_code() {
    let folder = Folder::new("refused");
    let file = folder.file();
    let refused = |words: &[&str], input: &str, code: i32, printed: &str| {
        let output = user(&file, words, input);
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert!(
            text.contains(printed) && text.lines().count() == 1,
            "{words:?}: {text}"
        );
        assert!(output.stdout.is_empty(), "no secret of what was not done");
    };
    refused(&["list"], "", 2, "No such file");
    refused(&["grant", "ann", "read", "x"], "", 2, "No such file");
    done(&file, &["add", "ann"]);
    refused(&["add", "ann"], "", 2, "user ann stands in line");
    refused(&["add", "a b"], "", 2, "user takes one name, not 2 words");
    refused(
        &["add", "bob", "--password-stdin"],
        "",
        2,
        "1 to 512 bytes, not 0",
    );
    refused(
        &["add", "bob", "--password-stdin"],
        "a\nb\n",
        2,
        "no byte below 0x20",
    );
    refused(
        &["grant", "ann", "raed", "x"],
        "",
        2,
        "the rights are read, write, run and admin",
    );
    refused(
        &["grant", "ann", "read", "x*"],
        "",
        2,
        "a prefix stands for",
    );
    refused(
        &["grant", "bob", "read", "x"],
        "",
        1,
        "there is no user bob",
    );
    refused(
        &["revoke", "ann", "read", "x"],
        "",
        1,
        "user ann has no such right",
    );
    refused(
        &["key", "ann", "one", "--remove"],
        "",
        1,
        "user ann has no key one",
    );
    refused(&["list", "bob"], "", 1, "there is no user bob");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).expect("set");
    refused(
        &["list"],
        "",
        2,
        "others may write it (mode 0664): chmod 600",
    );
    refused(
        &["remove", "ann"],
        "",
        2,
        "others may write it (mode 0664): chmod 600",
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, format!("{text}user cut")).expect("written");
    refused(&["list"], "", 2, "users:9: the file ends within a line");
}

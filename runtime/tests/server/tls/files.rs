//! The files of a certificate: what is refused at the start, and what changes while it serves.

use super::*;

/// What a start says that is refused.
fn refusal(folder: &Folder, flags: &[&str]) -> String {
    let Output { status, stderr, .. } = command(folder, flags).output().expect("the server");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert_eq!(status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn files_that_make_no_identity_are_refused_in_one_line_that_names_them() {
    let folder = Folder::new("files");
    let root = Authority::new("root");
    let middle = Authority::made("middle", Some(&root));
    let (leaf, other) = (middle.signs("leaf"), middle.signs("other"));
    let old = root.signs_with("old", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let marked = format!("\u{feff}{}", leaf.certificate);
    let without = format!("{}{}", leaf.certificate, root.pem);
    for (certificate, key, mode, words) in [
        (
            &leaf.certificate,
            &other.key,
            0o600,
            ["key.pem", "not that of the first certificate"],
        ),
        (
            &old.certificate,
            &old.key,
            0o600,
            ["cert.pem:1: ", "ended at 2002-01-01"],
        ),
        (&without, &leaf.key, 0o600, ["cert.pem:1: ", "CN=middle"]),
        (
            &leaf.certificate,
            &leaf.key,
            0o644,
            ["key.pem", "others may read it (mode 0644)"],
        ),
        (
            &leaf.key,
            &leaf.key,
            0o600,
            ["cert.pem", "no certificate in PEM"],
        ),
        (
            &marked,
            &leaf.key,
            0o600,
            ["cert.pem:1: ", "byte order mark"],
        ),
        (
            &leaf.certificate,
            &format!("\u{feff}{}", leaf.key),
            0o600,
            ["key.pem", "byte order mark"],
        ),
        (
            &leaf.certificate,
            &leaf.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
            0o600,
            ["key.pem", "is encrypted"],
        ),
    ] {
        let certificate = folder.put("cert.pem", certificate, 0o644);
        let key = folder.put("key.pem", key, mode);
        let printed = refusal(&folder, &["--tls-cert", &certificate, "--tls-key", &key]);
        words
            .iter()
            .for_each(|word| assert!(printed.contains(word), "{printed:?} has no {word:?}"));
    }
    let key = folder.put("key.pem", &leaf.key, 0o600);
    let printed = refusal(
        &folder,
        &["--tls-cert", "/nonexistent.pem", "--tls-key", &key],
    );
    assert!(
        printed.contains("tls_cert: /nonexistent.pem: cannot be read"),
        "{printed}"
    );
    let printed = refusal(&folder, &["--tls-key", &key]);
    assert!(printed.contains("--tls-key"), "{printed}");
}

#[test]
fn a_new_certificate_is_taken_while_connections_live_and_a_bad_one_changes_nothing() {
    let folder = Folder::new("reload");
    let (first, second, third) = (
        Authority::new("1"),
        Authority::new("2"),
        Authority::new("3"),
    );
    let server = Server::start(&folder, &first.signs("server"), &[]);
    let client = server.serves(&first.trusted());
    let ends = server.number("penstock_tls_certificate_expires_seconds");
    assert!(ends > 1_700_000_000.0, "{ends}");

    // By its time, without a word.
    folder.put_pair(&second.signs_with("server", |params| {
        params.not_after = date_time_ymd(2040, 1, 1);
    }));
    server.until("penstock_tls_certificate_expires_seconds", 2_208_988_800.0);
    server.serves(&second.trusted());
    client.ping().wait().expect("it lives");
    server
        .connect(Some(first.trusted()))
        .expect_err("its certificate is gone");

    // The key of another one.
    folder.put("key.pem", &third.signs("server").key, 0o600);
    server.until_logged(&["ERROR", "key.pem", "stays in force"]);
    server.until("penstock_tls_certificate_refused", 1.0);
    server.serves(&second.trusted());

    // By SIGHUP.
    let pair = third.signs("server");
    folder.put("cert.pem", &pair.certificate, 0o644);
    folder.put("key.pem", &pair.key, 0o600);
    server.hang_up();
    server.until_logged(&["SIGHUP", "cert.pem is read anew"]);
    server.until("penstock_tls_certificate_refused", 0.0);
    server.serves(&third.trusted());
    client.ping().wait().expect("it lives");
}

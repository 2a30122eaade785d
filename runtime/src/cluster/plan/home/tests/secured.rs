//! A real etcd that wants a login, and one that wants TLS and a certificate of who asks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::cluster::plan::home::tests::real_etcd::{RealEtcd, access};
use crate::cluster::plan::home::{HomeError, PlanHome, PlanPlace, StoredPlan, Swapped};
use crate::etcd::EtcdAccess;

fn home_of(access: &EtcdAccess) -> Box<dyn PlanHome> {
    let place = PlanPlace::Etcd {
        access: access.clone(),
        secret_file: None,
    };
    place.open().expect("sound files")
}

/// The plan, once etcd has answered: on a busy machine the check of a password takes longer than a
/// call may.
fn loaded(home: &mut dyn PlanHome) -> Result<Option<StoredPlan>, HomeError> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match home.load() {
            Err(HomeError::Unavailable(_)) if Instant::now() < until => {}
            answer => return answer,
        }
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let unique = format!("penstock-secured-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(unique));
        fs::create_dir_all(&folder.0).expect("made");
        folder
    }

    /// Writes a file that nobody else may read.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        path
    }

    /// Writes a key and its certificate, signed by `issuer`.
    fn certificate(&self, name: &str, issuer: &Issuer<'_, KeyPair>) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let mut params =
            CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).expect("names");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let signed = params.signed_by(&key, issuer).expect("signed");
        (
            self.write(&format!("{name}.pem"), &signed.pem()),
            self.write(&format!("{name}.key"), &key.serialize_pem()),
        )
    }
}

fn authority() -> (String, Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).expect("signed").pem();
    (pem, Issuer::new(params, key))
}

#[test]
fn an_etcd_that_wants_a_login_takes_changes_of_who_has_the_right() {
    let Some(etcd) = RealEtcd::start("login") else {
        return;
    };
    let ask = |call: &str, body: Value| {
        let url = format!("{}/v3/auth/{call}", etcd.endpoint());
        let answer = ureq::post(url).send(body.to_string());
        assert_eq!(answer.expect(call).status(), 200, "{call}");
    };
    ask("user/add", json!({"name": "root", "password": "root"}));
    ask("role/add", json!({"name": "root"}));
    ask("user/grant", json!({"user": "root", "role": "root"}));
    ask(
        "user/add",
        json!({"name": "penstock", "password": "pencil"}),
    );
    ask("role/add", json!({"name": "penstock"}));
    ask(
        "user/grant",
        json!({"user": "penstock", "role": "penstock"}),
    );
    // The right to read and write /sale/plan, and nothing else.
    let right = json!({"permType": "READWRITE", "key": "L3NhbGUvcGxhbg=="});
    ask("role/grant", json!({"name": "penstock", "perm": right}));
    ask("enable", json!({}));

    let folder = Folder::new("login");
    let mut anybody = access(vec![etcd.endpoint().into()], "sale");
    let Err(HomeError::Refused(text)) = loaded(&mut *home_of(&anybody)) else {
        panic!("nobody has logged in");
    };
    assert!(
        text.contains("user name is empty") && text.contains("etcd_user"),
        "{text}"
    );
    anybody.user = Some("penstock".into());
    anybody.secret_file = Some(folder.write("wrong", "chalk\n"));
    let Err(HomeError::Refused(text)) = loaded(&mut *home_of(&anybody)) else {
        panic!("the password is wrong");
    };
    assert!(text.contains("authentication failed"), "{text}");
    anybody.secret_file = Some(folder.write("right", "pencil\n"));
    let mut home = home_of(&anybody);
    assert_eq!(loaded(&mut *home), Ok(None));
    let swapped = home.compare_and_swap(None, "x = 1\n");
    assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
    anybody.prefix = "/others".into();
    let Err(HomeError::Refused(text)) = loaded(&mut *home_of(&anybody)) else {
        panic!("it has no right there");
    };
    assert!(text.contains("permission denied"), "{text}");
}

#[test]
fn an_etcd_with_tls_is_asked_by_who_trusts_it_and_shows_a_certificate() {
    let folder = Folder::new("tls");
    let (pem, issuer) = authority();
    let ca = folder.write("ca.pem", &pem);
    let (cert, key) = folder.certificate("server", &issuer);
    let flags = [
        ("--cert-file", &cert),
        ("--key-file", &key),
        ("--trusted-ca-file", &ca),
    ];
    let flags = flags
        .iter()
        .map(|(flag, path)| format!("{flag}={}", path.display()));
    let flags: Vec<String> = flags.chain(["--client-cert-auth=true".into()]).collect();
    let (client, client_key) = folder.certificate("client", &issuer);
    let secure = |endpoint: &str| EtcdAccess {
        ca: Some(ca.clone()),
        cert: Some(client.clone()),
        key: Some(client_key.clone()),
        ..access(vec![endpoint.into()], "sale")
    };
    let Some(etcd) = RealEtcd::start_secured("tls", &flags, &secure) else {
        return;
    };
    let good = secure(etcd.endpoint());
    assert!(etcd.endpoint().starts_with("https://"));
    let mut home = home_of(&good);
    let swapped = home.compare_and_swap(None, "x = 1\n");
    assert!(matches!(swapped, Ok(Swapped::Done(_))), "{swapped:?}");
    assert!(home.load().expect("it answers").is_some());

    let (other_pem, other) = authority();
    let other_ca = folder.write("other.pem", &other_pem);
    let (stranger, stranger_key) = folder.certificate("stranger", &other);
    for refused in [
        EtcdAccess {
            ca: Some(other_ca),
            ..good.clone()
        },
        EtcdAccess {
            cert: None,
            key: None,
            ..good.clone()
        },
        EtcdAccess {
            cert: Some(stranger),
            key: Some(stranger_key),
            ..good.clone()
        },
    ] {
        let loaded = home_of(&refused).load();
        assert!(
            matches!(loaded, Err(HomeError::Unavailable(_))),
            "{loaded:?}"
        );
    }
    // What is no certificate is told by its option.
    let no_pem = EtcdAccess {
        ca: Some(folder.write("empty.pem", "nothing")),
        ..good
    };
    let place = PlanPlace::Etcd {
        access: no_pem,
        secret_file: None,
    };
    let message = place.open().err().expect("refused");
    assert!(
        message.starts_with("etcd_ca: ") && message.contains("no certificate in PEM"),
        "{message}"
    );
}

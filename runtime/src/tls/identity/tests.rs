use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, date_time_ymd,
};

use super::super::names::common_name;
use super::*;

const NOW_UNIX_S: u64 = 1_795_000_000;

const CLIENTS: Purpose = Purpose::Clients {
    needs_certificate: true,
};

/// A certificate with its key, which may sign others.
struct Made {
    text: String,
    issuer: Issuer<'static, KeyPair>,
    key: String,
}

fn params(name: &str, may_sign: bool) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    if may_sign {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}

fn made(params: CertificateParams, by: Option<&Made>) -> Made {
    let key = KeyPair::generate().expect("a key");
    let certificate = match by {
        Some(by) => params.signed_by(&key, &by.issuer),
        None => params.self_signed(&key),
    };
    Made {
        text: certificate.expect("signed").pem(),
        key: key.serialize_pem(),
        issuer: Issuer::new(params, key),
    }
}

fn read(chain: &str, key: &str, client_ca: Option<&str>) -> Result<Identity, Defect> {
    let client_ca = client_ca.map(str::as_bytes);
    Identity::read(
        chain.as_bytes(),
        key.as_bytes(),
        client_ca,
        CLIENTS,
        NOW_UNIX_S,
    )
}

fn defect(chain: &str, key: &str, client_ca: Option<&str>) -> Defect {
    let Err(defect) = read(chain, key, client_ca) else {
        panic!("it is taken");
    };
    assert!(!defect.cause.contains('\n'), "{}", defect.cause);
    defect
}

#[test]
fn a_chain_of_any_length_with_its_key_is_taken_and_names_its_first_end() {
    let root = made(params("root", true), None);
    let mut middle = params("middle", true);
    middle.not_after = date_time_ymd(2031, 1, 2);
    let middle = made(middle, Some(&root));
    let leaf = made(params("leaf", false), Some(&middle));
    for chain in [
        leaf.text.clone(),
        format!("{}{}", leaf.text, middle.text),
        format!("{}{}{}", leaf.text, middle.text, root.text),
    ] {
        let identity = read(&chain, &leaf.key, Some(&root.text)).expect("sound");
        let is_known = chain.contains(&middle.text);
        assert_eq!(identity.expires_unix_s == 1_925_078_400, is_known);
    }
    let alone = made(params("alone", false), None);
    read(&alone.text, &alone.key, None).expect("sound");
}

#[test]
fn a_chain_without_its_middle_or_in_a_wrong_order_is_refused_with_both_names() {
    let root = made(params("root", true), None);
    let middle = made(params("middle", true), Some(&root));
    let leaf = made(params("leaf", false), Some(&middle));
    let without = format!("{}{}", leaf.text, root.text);
    let found = defect(&without, &leaf.key, None);
    assert_eq!((found.source, found.line), (Source::Certificate, Some(1)));
    assert!(
        found.cause.contains("CN=middle") && found.cause.contains("CN=root"),
        "{found:?}"
    );
    let turned = format!("{}{}{}", leaf.text, root.text, middle.text);
    assert_eq!(defect(&turned, &leaf.key, None).line, Some(1));
    // Another certificate with the name of the middle.
    let other = made(params("middle", true), Some(&root));
    let forged = format!("{}{}", leaf.text, other.text);
    assert!(
        defect(&forged, &leaf.key, None)
            .cause
            .contains("does not hold")
    );
}

#[test]
fn the_key_of_another_certificate_and_what_is_no_key_are_refused() {
    let leaf = made(params("leaf", false), None);
    let other = made(params("other", false), None);
    let found = defect(&leaf.text, &other.key, None);
    assert_eq!(found.source, Source::Key);
    assert!(
        found.cause.contains("not that of the first certificate"),
        "{found:?}"
    );
    for text in ["", "a key", &leaf.text[..]] {
        let found = defect(&leaf.text, text, None);
        assert!(
            found.source == Source::Key && found.cause.contains("no private key"),
            "{found:?}"
        );
    }
    let cut = &leaf.key[..leaf.key.len() / 2];
    assert_eq!(defect(&leaf.text, cut, None).source, Source::Key);
}

#[test]
fn a_certificate_that_has_ended_or_has_not_begun_is_refused_by_name_and_line() {
    let root = made(params("root", true), None);
    let mut old = params("old", false);
    old.not_before = date_time_ymd(2001, 1, 1);
    old.not_after = date_time_ymd(2002, 1, 1);
    let old = made(old, Some(&root));
    let found = defect(&format!("# a comment\n\n{}", old.text), &old.key, None);
    assert_eq!((found.source, found.line), (Source::Certificate, Some(3)));
    assert!(
        found.cause.contains("CN=old ended at 2002-01-01"),
        "{found:?}"
    );
    let mut new = params("new", false);
    new.not_before = date_time_ymd(2040, 1, 1);
    new.not_after = date_time_ymd(2041, 1, 1);
    let new = made(new, Some(&root));
    let found = defect(&new.text, &new.key, None);
    assert!(
        found.cause.contains("CN=new is valid from 2040-01-01"),
        "{found:?}"
    );
    let found = defect(&root.text, &root.key, Some(&old.text));
    assert_eq!(found.source, Source::Ca);
}

#[test]
fn every_cut_and_flipped_byte_of_a_certificate_is_refused_or_taken_and_never_a_panic() {
    let leaf = made(params("leaf", false), None);
    for cut in 0..leaf.text.len() {
        let Err(found) = read(&leaf.text[..cut], &leaf.key, None) else {
            // The end of its last line.
            assert!(cut + 8 > leaf.text.len(), "{cut}");
            continue;
        };
        assert_eq!(found.source, Source::Certificate);
    }
    for at in 0..leaf.text.len() {
        let mut flipped = leaf.text.clone().into_bytes();
        flipped[at] ^= 1;
        let _ = Identity::read(&flipped, leaf.key.as_bytes(), None, CLIENTS, NOW_UNIX_S);
    }
}

#[test]
fn the_common_name_is_the_name_of_a_client() {
    let name_of = |text: &str| {
        let der = CertificateDer::from_pem_slice(text.as_bytes()).expect("PEM");
        common_name(&der).map(|it| it.to_string())
    };
    assert_eq!(
        name_of(&made(params("till-7", false), None).text).as_deref(),
        Some("till-7")
    );
    assert_eq!(
        name_of(&made(params("Käthe", false), None).text).as_deref(),
        Some("Käthe")
    );
    let long = "n".repeat(65);
    assert_eq!(name_of(&made(params(&long, false), None).text), None);
    let mut nameless = params("", false);
    nameless.distinguished_name.remove(DnType::CommonName);
    assert_eq!(name_of(&made(nameless, None).text), None);
    assert!(KeyPair::generate_for(&PKCS_ED25519).is_ok());
}

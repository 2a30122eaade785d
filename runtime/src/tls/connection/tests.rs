use std::io::{Read, Write};
use std::sync::LazyLock;

use penstock_client::tls::{ClientTls, TlsSession};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::super::identity::{Identity, Purpose};
use super::*;

/// A server's identity, and what a client needs to trust it and to show a name itself.
struct Setup {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// The time of all checks of certificates.
const NOW_UNIX_S: u64 = 1_795_000_000;

/// A certificate of this common name for localhost, signed by itself, and its key.
fn certified(name: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec!["localhost".into()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("signed");
    (certificate.pem(), key.serialize_pem())
}

fn setup(client_name: Option<&str>) -> Setup {
    let (certificate, key) = certified("server");
    let of_client = client_name.map(certified);
    let client_ca = of_client.as_ref().map(|(text, _)| text.as_bytes());
    let (chain, key) = (certificate.as_bytes(), key.as_bytes());
    let purpose = Purpose::Clients {
        needs_certificate: true,
    };
    let identity = Identity::read(chain, key, client_ca, purpose, NOW_UNIX_S).expect("sound");
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(chain).expect("PEM"))
        .expect("an anchor");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots);
    let client = match &of_client {
        None => builder.with_no_client_auth(),
        Some((text, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(text.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    Setup {
        server: identity.config,
        client: Arc::new(client),
    }
}

impl Setup {
    fn client(&self) -> ClientConnection {
        let name = "localhost".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::clone(&self.client), name).expect("made");
        client.set_buffer_limit(None);
        client
    }

    /// Both ends behind the handshake; bytes of the client come `step` at a time.
    fn connected(&self, step: usize) -> (TlsConnection, ClientConnection) {
        let (mut server, mut client) =
            (TlsConnection::new(Arc::clone(&self.server)), self.client());
        let mut plaintext = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            for some in said_by(&mut client).chunks(step) {
                server.receive(some, &mut plaintext).expect("a good client");
            }
            let mut output = Vec::new();
            server.take_output(&mut output);
            received_by(&mut client, &output).expect("a good server");
        }
        assert!(plaintext.is_empty());
        (server, client)
    }
}

fn said_by(client: &mut ClientConnection) -> Vec<u8> {
    let mut said = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut said).expect("memory");
    }
    said
}

fn received_by(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>, rustls::Error> {
    let mut plaintext = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("room");
        client.process_new_packets()?;
        let _ = client.reader().read_to_end(&mut plaintext);
    }
    Ok(plaintext)
}

/// Bytes that differ from place to place.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

#[test]
fn a_handshake_in_pieces_of_one_byte_is_that_of_whole_ones_and_both_ends_have_one_binding() {
    let setup = setup(None);
    let mut bindings = Vec::new();
    for step in [1, 7, 1 << 20] {
        let (server, client) = setup.connected(step);
        let peer = server.peer();
        let theirs = client.export_keying_material([0; 32], BINDING_LABEL, Some(&[]));
        assert_eq!(peer.channel_binding, theirs.expect("finished"));
        assert_eq!(peer.certificate_name, None);
        bindings.push(peer.channel_binding);
    }
    bindings.sort_unstable();
    bindings.dedup();
    assert_eq!(bindings.len(), 3, "each connection has its own");
}

#[test]
fn bytes_of_any_length_arrive_as_they_were_sent_in_both_directions() {
    let (mut server, mut client) = setup(None).connected(1 << 20);
    for len in [0, 1, 100, 16_383, 16_384, 16_385, 1 << 20] {
        let whole = bytes(len);
        client.writer().write_all(&whole).expect("room");
        let mut plaintext = b"before".to_vec();
        for some in said_by(&mut client).chunks(1000) {
            server.receive(some, &mut plaintext).expect("sound");
        }
        assert!(plaintext == [b"before", &whole[..]].concat(), "{len}");

        // In runs of many lengths, of which a call takes some.
        let mut runs: Vec<&[u8]> = Vec::new();
        let mut rest = &whole[..];
        while !rest.is_empty() {
            let run;
            (run, rest) = rest.split_at(rest.len().min(1 + runs.len() * 37));
            runs.push(run);
        }
        let (mut ciphertext, mut taken) = (Vec::new(), 0);
        while taken < len {
            let mut passed = taken;
            let left = runs.iter().filter_map(|run| {
                let skipped = passed.min(run.len());
                passed -= skipped;
                Some(&run[skipped..]).filter(|run| !run.is_empty())
            });
            let sealed = server.seal(left, &mut ciphertext);
            assert!((1..=SEALED_BYTES_MAX).contains(&sealed));
            taken += sealed;
        }
        assert!(
            received_by(&mut client, &ciphertext).expect("sound") == whole,
            "{len}"
        );
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_record_ends_the_connection_and_what_came_before_is_there() {
    let setup = setup(None);
    let sent = |client: &mut ClientConnection, text: &[u8]| {
        client.writer().write_all(text).expect("room");
        said_by(client)
    };
    let len = {
        let (_, mut client) = setup.connected(1 << 20);
        sent(&mut client, b"changed").len()
    };
    for at in 0..len {
        let (mut server, mut client) = setup.connected(1 << 20);
        let mut both = sent(&mut client, b"whole");
        let whole = both.len();
        both.extend(sent(&mut client, b"changed"));
        both[whole + at] ^= 1 << (at % 8);
        // A length that rises waits for bytes that do not come.
        both.extend([0; 1 << 15]);
        let mut plaintext = Vec::new();
        server
            .receive(&both, &mut plaintext)
            .expect_err("it was changed");
        // Type and version in the head of a record carry nothing: the true type is sealed.
        let says_nothing = at < 3;
        assert!(
            plaintext == b"whole" || (says_nothing && plaintext == b"wholechanged"),
            "{at}"
        );
        assert!(server.has_ended() && server.has_output(), "an alert is due");
        let mut alert = Vec::new();
        server.take_output(&mut alert);
        received_by(&mut client, &alert).expect_err("it is an alert");
        assert_eq!(server.seal(std::iter::once(&b"late"[..]), &mut alert), 0);
        let held = plaintext.len();
        server
            .receive(&both, &mut plaintext)
            .expect("nothing is looked at");
        assert_eq!(plaintext.len(), held);
    }
}

#[test]
fn bytes_that_are_no_tls_and_records_that_never_end_are_refused() {
    let setup = setup(None);
    let server = || TlsConnection::new(Arc::clone(&setup.server));
    for (bytes, part) in [
        (&b"*1\\r\\n$4\\r\\nPING\\r\\n"[..], "no TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "no TLS"),
        (&[0x20, 0, 0, 0, 0xE7, 1, 1, 0, 0, 0, 0, 0, 0, 0], "no TLS"),
    ] {
        let fault = server()
            .receive(bytes, &mut Vec::new())
            .expect_err("refused");
        assert!(fault.to_string().contains(part), "{fault}");
    }
    // A message of a handshake that goes on and on.
    let mut endless = server();
    let mut plaintext = Vec::new();
    let first = [&[22, 3, 1, 0x40, 0, 1, 0xFF, 0xFF, 0xFF][..], &[0; 0x3FFC]].concat();
    let next = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let mut taken = endless.receive(&first, &mut plaintext);
    for _ in 0..16 {
        taken = taken.and_then(|()| endless.receive(&next, &mut plaintext));
    }
    taken.expect_err("64 KiB are enough");
}

#[test]
fn a_client_certificate_is_needed_where_its_signer_is_named_and_its_name_is_known() {
    let (server, _) = setup(Some("till-7")).connected(1 << 20);
    assert_eq!(server.peer().certificate_name.as_deref(), Some("till-7"));
    let nameless = setup(None).client;
    let setup = Setup {
        client: nameless,
        ..setup(Some("till-7"))
    };
    let mut server = TlsConnection::new(Arc::clone(&setup.server));
    let mut client = setup.client();
    server
        .receive(&said_by(&mut client), &mut Vec::new())
        .expect("a hello");
    let mut output = Vec::new();
    server.take_output(&mut output);
    // It does not trust this server either, which ends the handshake as well.
    received_by(&mut client, &output).expect_err("another certificate");
    let fault = server.receive(&said_by(&mut client), &mut Vec::new());
    let message = fault.expect_err("an alert").to_string();
    assert!(message.contains("alert"), "{message}");
}

#[test]
fn a_clean_end_is_known_on_both_sides() {
    let (mut server, mut client) = setup(None).connected(1 << 20);
    client.writer().write_all(b"the last").expect("room");
    client.send_close_notify();
    let mut plaintext = Vec::new();
    server
        .receive(&said_by(&mut client), &mut plaintext)
        .expect("sound");
    assert!(server.has_ended() && plaintext == b"the last");
    let mut said = Vec::new();
    assert_eq!(server.seal(std::iter::once(&b"answer"[..]), &mut said), 6);
    server.close();
    server.take_output(&mut said);
    assert_eq!(received_by(&mut client, &said).expect("sound"), b"answer");
    assert!(
        client
            .process_new_packets()
            .expect("sound")
            .peer_has_closed()
    );
}

#[test]
fn new_keys_are_answered_by_the_writer_and_records_keep_their_order() {
    let (mut server, mut client) = setup(None).connected(1 << 20);
    for round in 0..3 {
        client.refresh_traffic_keys().expect("it may");
        client.writer().write_all(b"question").expect("room");
        let mut plaintext = Vec::new();
        server
            .receive(&said_by(&mut client), &mut plaintext)
            .expect("sound");
        assert_eq!(plaintext, b"question", "{round}");
        let mut said = Vec::new();
        server.seal(std::iter::once(&b"answer"[..]), &mut said);
        assert_eq!(received_by(&mut client, &said).expect("sound"), b"answer");
    }
}

const CLUSTER_ID: [u8; 16] = [0xC1; 16];

fn name_of(node: u8) -> NodeName {
    let cluster_id = CLUSTER_ID;
    NodeName { node, cluster_id }
}

/// The identities of nodes 1 and 2.
static NODES: LazyLock<[Identity; 2]> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let root = params.self_signed(&key).expect("signed").pem();
    let issuer = rcgen::Issuer::new(params, key);
    let identity = |node| {
        let name = name_of(node);
        let params = CertificateParams::new(vec![name.to_string()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
        let (certificate, key) = (certificate.as_bytes(), key.serialize_pem());
        let (key, root) = (key.as_bytes(), Some(root.as_bytes()));
        Identity::read(certificate, key, root, Purpose::Links(name), NOW_UNIX_S).expect("sound")
    };
    [identity(1), identity(2)]
});

/// The ends of a link from node 1 to node 2 that have said nothing.
pub(super) fn link_ends() -> (TlsConnection, TlsConnection) {
    let dialing = NODES[0].dialing.clone().expect("it is for links");
    let source = TlsConnection::dial(dialing, name_of(2));
    (source, TlsConnection::new(Arc::clone(&NODES[1].config)))
}

/// A server and a client that have said nothing.
pub(super) fn session_ends() -> (TlsConnection, TlsSession) {
    static MADE: LazyLock<(Arc<ServerConfig>, ClientTls)> = LazyLock::new(|| {
        let (chain, key) = certified("server");
        let purpose = Purpose::Clients {
            needs_certificate: false,
        };
        let identity = Identity::read(chain.as_bytes(), key.as_bytes(), None, purpose, NOW_UNIX_S);
        let tls = ClientTls::trusting(chain.as_bytes()).expect("a root");
        (identity.expect("sound").config, tls)
    });
    let (config, tls) = &*MADE;
    let session = TlsSession::begin(tls, "localhost:1").expect("begun");
    (TlsConnection::new(Arc::clone(config)), session)
}

/// The ends of a link from node 1 to node 2, behind the handshake.
fn linked() -> (TlsConnection, TlsConnection) {
    let (mut source, mut destination) = link_ends();
    let (mut bytes, mut plaintext) = (Vec::new(), Vec::new());
    while source.is_handshaking() || destination.is_handshaking() {
        source.take_output(&mut bytes);
        destination
            .receive(&bytes, &mut plaintext)
            .expect("a good source");
        bytes.clear();
        destination.take_output(&mut bytes);
        source
            .receive(&bytes, &mut plaintext)
            .expect("a good destination");
        bytes.clear();
    }
    assert!(plaintext.is_empty());
    (source, destination)
}

#[test]
fn both_ends_of_a_link_have_one_binding_and_each_knows_the_node_of_the_other() {
    let (source, destination) = linked();
    let binding_of = |connection: &TlsConnection| match connection.channel() {
        Channel::Tls { binding, certified } => (binding, certified),
        Channel::Plain => panic!("it is TLS"),
    };
    let (source, destination) = (binding_of(&source), binding_of(&destination));
    assert_eq!(source.0, destination.0);
    assert_eq!(source.1, Some(name_of(2)));
    assert_eq!(destination.1, Some(name_of(1)));
    let other = linked();
    assert_ne!(binding_of(&other.0).0, source.0);
}

#[test]
fn a_warm_link_takes_one_buffer_of_the_heap_to_seal_a_record_of_tls_and_two_to_open_it() {
    const RECORDS: u64 = 4;
    const RECORD_BYTES: usize = 16 << 10;
    let (mut source, mut destination) = linked();
    let sent = bytes(4 * RECORD_BYTES);
    let (mut ciphertext, mut plaintext) = (Vec::new(), Vec::new());
    let mut pass = || {
        ciphertext.clear();
        plaintext.clear();
        let mut taken = (0, 0);
        let sealing = allocation_counter::measure(|| {
            assert_eq!(
                source.seal(std::iter::once(&sent[..]), &mut ciphertext),
                sent.len()
            );
        });
        taken.0 = sealing.count_total;
        let opening = allocation_counter::measure(|| {
            destination
                .receive(&ciphertext, &mut plaintext)
                .expect("sound");
        });
        taken.1 = opening.count_total;
        assert!(plaintext == sent);
        taken
    };
    for _ in 0..3 {
        pass();
    }
    // The record; and the plaintext, behind the input that rustls holds until it is whole.
    assert_eq!(pass(), (RECORDS, 2 * RECORDS));
}

/// What an encrypted link costs: `cargo test --release ... --ignored --nocapture price`.
#[test]
#[ignore = "it measures"]
fn price_of_encrypted_links() {
    let (mut source, mut destination) = linked();
    for len in [200, 4 << 10, 64 << 10] {
        let sent = bytes(len);
        let rounds = (1 << 30) / (len + 2000);
        let (mut ciphertext, mut plaintext) = (Vec::new(), Vec::new());
        let [mut sealing, mut opening] = [std::time::Duration::ZERO; 2];
        for _ in 0..rounds {
            ciphertext.clear();
            plaintext.clear();
            let began = std::time::Instant::now();
            source.seal(std::iter::once(&sent[..]), &mut ciphertext);
            sealing += began.elapsed();
            let began = std::time::Instant::now();
            destination
                .receive(&ciphertext, &mut plaintext)
                .expect("sound");
            opening += began.elapsed();
        }
        let of = |time: std::time::Duration| {
            let per_second = (len * rounds) as f64 / time.as_secs_f64() / 1e6;
            let each = time.as_nanos() as f64 / rounds as f64;
            format!("{per_second:.0} MB/s, {each:.0} ns")
        };
        println!("{len} bytes: seal {}; open {}", of(sealing), of(opening));
    }
}

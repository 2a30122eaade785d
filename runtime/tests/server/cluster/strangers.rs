//! Who connects to the port of links of a real server, by TLS, and is no node of the cluster.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use penstock_client::Verbs;
use penstock_net::level::AckLevel;
use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::handshake::proof_input;
use penstock_net::link::{
    Channel, Hello, LinkHeader, LinkMessage, LinkReceived, Membership, NodeStart, Open, Proof,
    ProofRole, RefusalCode, Welcome,
};
use rcgen::date_time_ymd;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::nodes::{Cluster, PATIENCE, Server, until, wait_for_follower, wait_for_primary};
use super::pki::{ID, named, node_name, words};
use crate::process::beside_clusters;
use crate::tls::{Authority, Pair};

/// The secret of each cluster of these tests.
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A cluster whose node 2 runs, node 3 is named and does not, and whose CA the test has.
struct Scene {
    cluster: Cluster,
    authority: Authority,
    second: Server,
}

/// What a stranger is told.
#[derive(Debug)]
enum Greeting {
    Welcome(Box<Welcome>),
    Refused(RefusalCode, String),
    /// OPEN was answered.
    Linked,
    /// The connection ended.
    Ended(String),
}

/// One connection to the port of links.
struct Stranger {
    stream: StreamOwned<ClientConnection, TcpStream>,
    received: Vec<u8>,
    next: u64,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let cluster = Cluster::new(name);
        cluster.edits(&["add", "--node", &cluster.third()]);
        let authority = Authority::new("root");
        let own = named(&authority, &[node_name(2, ID)], |_| ());
        cluster.put("ca", &authority.pem, "");
        cluster.put("node-2", &own.certificate, &own.key);
        let second = cluster.start_encrypted(2, &[]);
        Scene {
            cluster,
            authority,
            second,
        }
    }

    fn of_node(&self, node: u8) -> Pair {
        named(&self.authority, &[node_name(node, ID)], |_| ())
    }

    fn socket(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.cluster.links[1])).expect("it listens");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    fn client(&self, shown: Option<&Pair>) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).expect("PEM");
        roots.add(ca).expect("an anchor");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
                let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
                let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
                // Whether they belong together is not looked at.
                let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
                builder.with_client_cert_resolver(Arc::new(shown))
            }
        };
        let name = node_name(2, ID).try_into().expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("made")
    }

    fn connect(&self, shown: Option<&Pair>) -> Stranger {
        Stranger {
            stream: StreamOwned::new(self.client(shown), self.socket()),
            received: Vec::new(),
            next: 1,
        }
    }

    /// What HELLO of this node is told by who shows that.
    fn greeting_of(&self, shown: Option<&Pair>, node: u8) -> Greeting {
        self.connect(shown).greet(&hello(node, [1; 32]))
    }
}

fn hello(node: u8, nonce: [u8; 32]) -> Hello {
    Hello {
        versions: (2, 2),
        log_format: 1,
        cluster_id: [0xC1; 16],
        node_id: [0xD3; 16],
        start: NodeStart {
            incarnation: 5,
            start_id: 7,
        },
        nonce,
        node,
        to_node: 2,
        shard: 0,
        shards: 1,
        to_shard: 0,
        record_bytes_max: 1000,
        frame_bytes_max: 8 << 20,
    }
}

impl Stranger {
    fn binding(&self) -> [u8; 32] {
        let label = b"EXPORTER-Channel-Binding";
        let exported = self
            .stream
            .conn
            .export_keying_material([0; 32], label, Some(&[]));
        exported.expect("the handshake is finished")
    }

    fn say(&mut self, number: u64, message: &LinkMessage<'_>) -> std::io::Result<()> {
        let header = LinkHeader {
            number,
            ..LinkHeader::default()
        };
        let mut bytes = Vec::new();
        write_link_frame(&mut bytes, header, message);
        self.stream.write_all(&bytes)
    }

    fn greet(&mut self, hello: &Hello) -> Greeting {
        match self.say(1, &LinkMessage::Hello(*hello)) {
            Ok(()) => self.read_greeting(),
            Err(error) => Greeting::Ended(error.to_string()),
        }
    }

    fn read_greeting(&mut self) -> Greeting {
        loop {
            match read_link_frame(&self.received, self.next, 1 << 20).expect("a sound frame") {
                LinkReceived::Frame(frame) => {
                    let greeting = match &frame.message {
                        LinkMessage::Welcome(welcome) => {
                            Some(Greeting::Welcome(Box::new(*welcome)))
                        }
                        LinkMessage::Refused(it) => {
                            Some(Greeting::Refused(it.code, it.text.to_string()))
                        }
                        LinkMessage::State(_) => Some(Greeting::Linked),
                        LinkMessage::Beat => None,
                        other => panic!("{other:?}"),
                    };
                    let bytes = frame.bytes;
                    self.received.drain(..bytes);
                    self.next += 1;
                    match greeting {
                        Some(greeting) => return greeting,
                        None => continue,
                    }
                }
                LinkReceived::Incomplete { .. } => {}
            }
            let mut piece = [0; 1024];
            match self.stream.read(&mut piece) {
                Ok(0) => return Greeting::Ended("closed".into()),
                Ok(bytes) => self.received.extend_from_slice(&piece[..bytes]),
                Err(error) => return Greeting::Ended(error.to_string()),
            }
        }
    }

    /// What PROOF is told, which is nothing if it is right.
    fn prove(&mut self, proof: Proof) -> Greeting {
        match self.say(2, &LinkMessage::Proof(proof)) {
            Ok(()) => self.read_greeting(),
            Err(error) => Greeting::Ended(error.to_string()),
        }
    }

    /// What PROOF and OPEN are told.
    fn prove_and_open(&mut self, proof: Proof) -> Greeting {
        let open = Open {
            partition: 0,
            membership: Membership::Learner,
            epoch: (1 << 18) | (1 << 8) | 3,
        };
        for (number, message) in [(2, LinkMessage::Proof(proof)), (3, LinkMessage::Open(open))] {
            self.say(number, &message).expect("it listens");
        }
        self.read_greeting()
    }
}

fn source_proof(hello: &Hello, welcome: &Welcome, channel: &Channel, secret: &[u8]) -> Proof {
    let key = blake3::derive_key("penstock cluster secret, links", secret);
    let input = proof_input(ProofRole::Source, hello, welcome, channel);
    *blake3::keyed_hash(&key, input.as_ref()).as_bytes()
}

#[test]
fn a_certificate_of_anybody_else_opens_no_link() {
    let _clusters = beside_clusters();
    let scene = Scene::new("strangers");
    let ended = |shown: Option<&Pair>, alert: &str| match scene.greeting_of(shown, 3) {
        Greeting::Ended(why) => assert!(why.contains(alert), "{why:?} lacks {alert:?}"),
        other => panic!("{alert}: {other:?}"),
    };
    let stranger = Authority::new("root");
    ended(None, "CertificateRequired");
    ended(Some(&named(&stranger, &[node_name(3, ID)], |_| ())), "");
    let old = named(&scene.authority, &[node_name(3, ID)], |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    ended(Some(&old), "CertificateExpired");
    let middle = Authority::made("middle", Some(&scene.authority));
    let below = named(&middle, &[node_name(3, ID)], |_| ());
    ended(Some(&below), "UnknownCA");
    // The key of another certificate: the signature does not hold.
    let torn = Pair {
        key: scene.of_node(3).key,
        ..scene.of_node(3)
    };
    ended(Some(&torn), "DecryptError");

    let refused = |shown: &Pair, node: u8, part: &str| match scene.greeting_of(Some(shown), node) {
        Greeting::Refused(code, text) => {
            assert_eq!(code, RefusalCode::Credentials, "{text}");
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
        other => panic!("{part}: {other:?}"),
    };
    refused(
        &scene.of_node(1),
        3,
        "node 3 shows the certificate of node 1",
    );
    // That of the one that listens, which another one has.
    refused(
        &scene.of_node(2),
        3,
        "node 3 shows the certificate of node 2",
    );
    let elsewhere = named(&scene.authority, &[node_name(3, &"d".repeat(32))], |_| ());
    refused(&elsewhere, 3, "is of another cluster: it names node-3.dddd");
    let client = named(&scene.authority, &[], |_| ());
    refused(&client, 3, "does not name one node of a cluster");
    let two = [node_name(3, ID), node_name(1, ID)];
    refused(
        &named(&scene.authority, &two, |_| ()),
        3,
        "does not name one node of a cluster",
    );
    let wild = named(&scene.authority, &[format!("*.{ID}.penstock")], |_| ());
    refused(&wild, 3, "does not name one node of a cluster");
    let unknown = scene.greeting_of(Some(&scene.of_node(9)), 9);
    assert!(
        matches!(unknown, Greeting::Welcome(_)),
        "the proof comes first: {unknown:?}"
    );

    // With the middle in its chain it is one of the cluster.
    let whole = Pair {
        certificate: format!("{}{}", below.certificate, middle.pem),
        key: below.key,
    };
    let greeting = scene.greeting_of(Some(&whole), 3);
    assert!(matches!(greeting, Greeting::Welcome(_)), "{greeting:?}");

    // Without TLS.
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x90, 0, 0, 0, 0xD7, 2, 1, 0, 0, 0, 0, 0],
    ] {
        let mut stream = scene.socket();
        stream.write_all(bytes).expect("sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // An alert, and no frame.
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
    }
    until("the log tells of them", || {
        let said = |text| scene.second.has_said(text);
        said("a link from 127.0.0.1 is refused: ") && said("shows the certificate of node 1")
    });
}

#[test]
fn a_proof_opens_a_link_on_its_own_connection_alone() {
    let _clusters = beside_clusters();
    let scene = Scene::new("strangers-proof");
    let three = scene.of_node(3);
    let begin = |nonce: u8| {
        let mut stranger = scene.connect(Some(&three));
        let hello = hello(3, [nonce; 32]);
        match stranger.greet(&hello) {
            Greeting::Welcome(welcome) => (stranger, hello, *welcome),
            other => panic!("{other:?}"),
        }
    };
    let over = |binding| Channel::Tls {
        binding,
        certified: None,
    };
    let refused = |stranger: &mut Stranger, proof: Proof, what: &str| match stranger.prove(proof) {
        Greeting::Refused(RefusalCode::Credentials, _) => {}
        other => panic!("{what}: {other:?}"),
    };
    // What the node would have proven to who stands between, carried here.
    let (first, ..) = begin(1);
    let (mut second, hello, welcome) = begin(2);
    assert_ne!(first.binding(), second.binding());
    let carried = source_proof(&hello, &welcome, &over(first.binding()), SECRET);
    refused(&mut second, carried, "of another connection");
    let (mut third, hello, welcome) = begin(3);
    let plain = source_proof(&hello, &welcome, &Channel::Plain, SECRET);
    refused(&mut third, plain, "of a plain connection");
    let (mut fourth, hello, welcome) = begin(4);
    let channel = over(fourth.binding());
    let ignorant = source_proof(
        &hello,
        &welcome,
        &channel,
        b"another secret, long enough, too",
    );
    refused(&mut fourth, ignorant, "without the secret");
    // That of the destination, sent back.
    let (mut fifth, _, welcome) = begin(5);
    refused(&mut fifth, welcome.proof, "sent back");
    // The right one, made here, opens the link.
    let (mut sixth, hello, welcome) = begin(6);
    let right = source_proof(&hello, &welcome, &over(sixth.binding()), SECRET);
    let greeting = sixth.prove_and_open(right);
    assert!(
        matches!(greeting, Greeting::Linked),
        "node 3 is one of the cluster: {greeting:?}"
    );
}

#[test]
fn a_handshake_in_pieces_of_one_byte_is_one_and_half_handshakes_keep_nobody_out() {
    let _clusters = beside_clusters();
    let scene = Scene::new("strangers-half");
    let own = scene.of_node(1);
    scene.cluster.put("node-1", &own.certificate, &own.key);
    let first = scene.cluster.start_encrypted(1, &["--cluster-new"]);
    wait_for_primary(&first);
    wait_for_follower(&first, &scene.second);

    // In pieces.
    let three = scene.of_node(3);
    let mut tls = scene.client(Some(&three));
    let mut stream = scene.socket();
    while tls.is_handshaking() {
        let mut said = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut said).expect("memory");
        }
        for byte in said {
            stream.write_all(&[byte]).expect("it listens");
        }
        if tls.is_handshaking() {
            tls.read_tls(&mut stream).expect("an answer");
            tls.process_new_packets().expect("sound");
        }
    }
    let mut stranger = Stranger {
        stream: StreamOwned::new(tls, stream),
        received: Vec::new(),
        next: 1,
    };
    let greeting = stranger.greet(&hello(3, [1; 32]));
    assert!(matches!(greeting, Greeting::Welcome(_)), "{greeting:?}");

    // Half ones: some bytes of a ClientHello, and silence.
    let mut tls = scene.client(None);
    let mut begin = Vec::new();
    tls.write_tls(&mut begin).expect("memory");
    let client = first.client(AckLevel::Replica);
    let mut most = 0;
    for round in 0..4 {
        let mut half = Vec::new();
        for len in 0..200 {
            let mut stream = scene.socket();
            let _ = stream.write_all(&begin[..1 + len % 100]);
            half.push(stream);
        }
        client
            .set(b"key", b"value")
            .wait()
            .expect("the links of before stay");
        most = most.max(scene.second.threads("penstock-greet"));
        drop(half);
        println!("{round}: at most {most} greetings at a time");
    }
    assert!((1..=128).contains(&most), "{most}");
    // New links come in as before.
    drop(first);
    let own = scene.cluster.tls(1);
    let first = scene.cluster.start(1, &words(&own));
    wait_for_primary(&first);
    first
        .client(AckLevel::Replica)
        .set(b"key", b"again")
        .wait()
        .expect("it is linked");
}

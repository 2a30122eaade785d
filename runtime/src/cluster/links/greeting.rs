//! The handshake of a link on a socket that may block: each side proves that it knows the secret
//! before any partition is named.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use penstock_net::link::frame::{
    LINK_FRAME_BYTES_BEFORE_PROOF_MAX, read_link_frame, write_link_frame,
};
use penstock_net::link::{
    Channel, LinkFault, LinkFrame, LinkHeader, LinkMessage, LinkReceived, NodeName, RefusalCode,
    Refused,
};
use penstock_shard::replication::handshake::{
    Accepting, Claim, Connecting, Introduction, Peer, wrong_proof,
};
use penstock_shard::replication::link_set::not_named;
use penstock_shard::replication::receiver::LinkRefusal;

use crate::cluster::links::link_tls::LinkTls;
use crate::cluster::links::link_versions::highest_offered;
use crate::cluster::plan::file::Secret;
use crate::cluster::plan::seen::Seen;
use crate::tls::TlsConnection;

/// A link that has proven itself.
pub(crate) struct Greeted {
    pub(crate) peer: Peer,
    /// What has come behind the handshake.
    pub(crate) received: Vec<u8>,
    /// What encrypts it.
    pub(crate) tls: Option<TlsConnection>,
}

/// What both sides of a greeting need of their node.
pub(crate) struct Greeter<'a> {
    pub(crate) secret: &'a Secret,
    pub(crate) seen: &'a Seen,
    /// What links are encrypted with; `None` without TLS.
    pub(crate) tls: Option<&'a LinkTls>,
    /// How long a greeting may take.
    pub(crate) patience: Duration,
}

/// Why there is no link.
#[derive(Debug)]
pub(crate) struct Ungreeted {
    /// For people.
    pub(crate) text: String,
    /// The side that has refused the link, and why. `None` if neither has.
    pub(crate) refused: Option<(RefusedBy, RefusalCode)>,
    /// TLS was begun, and the other end has hung up without a word: it may not know TLS.
    pub(crate) is_without_tls: bool,
}

/// The side that refuses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedBy {
    Here,
    There,
}

impl From<String> for Ungreeted {
    fn from(text: String) -> Self {
        Ungreeted {
            text,
            refused: None,
            is_without_tls: false,
        }
    }
}

const CLOSED: &str = "the other end has closed the connection";

/// The first byte of a connection that begins with TLS; no frame begins so.
const TLS_FIRST_BYTE: u8 = 22;

/// The first byte of an alert of TLS.
const TLS_ALERT: u8 = 21;

/// A socket during the handshake, with TLS around its bytes or without.
struct Line<'a> {
    stream: &'a TcpStream,
    tls: Option<TlsConnection>,
    until: Instant,
    /// The other end has sent something.
    has_received: bool,
    received: Vec<u8>,
    /// Length of the frame that is read now. So many bytes leave `received` before the next frame
    /// is read.
    taken: usize,
    next: u64,
}

impl<'a> Line<'a> {
    fn new(stream: &'a TcpStream, patience: Duration) -> Result<Self, String> {
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let alive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(5))
            .with_interval(Duration::from_secs(2))
            .with_retries(5);
        socket2::SockRef::from(stream)
            .set_tcp_keepalive(&alive)
            .map_err(|error| error.to_string())?;
        Ok(Line {
            stream,
            tls: None,
            until: Instant::now() + patience,
            has_received: false,
            received: Vec::new(),
            taken: 0,
            next: 1,
        })
    }

    /// Whether the other end begins with TLS. Nothing is taken from what it sends.
    fn begins_with_tls(&self) -> Result<bool, Ungreeted> {
        loop {
            let left = self.left()?;
            let mut first = [0];
            let peeked = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.peek(&mut first));
            match peeked {
                Ok(0) => return Err(CLOSED.to_string().into()),
                Ok(_) => return Ok(first[0] == TLS_FIRST_BYTE),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string().into()),
            }
        }
    }

    /// Encrypts all that follows: shakes hands first.
    fn secure(&mut self, tls: TlsConnection) -> Result<(), Ungreeted> {
        self.tls = Some(tls);
        let mut output = Vec::new();
        loop {
            let tls = self.tls.as_mut().expect("it was put there");
            tls.take_output(&mut output);
            let is_over = !tls.is_handshaking();
            if !output.is_empty() {
                self.write(&output)?;
                output.clear();
            }
            if is_over {
                return Ok(());
            }
            self.read()?;
        }
    }

    /// What carries the frames, and what that has proved.
    fn channel(&self) -> Channel {
        match &self.tls {
            None => Channel::Plain,
            Some(tls) => tls.channel(),
        }
    }

    /// How long is left.
    fn left(&self) -> Result<Duration, Ungreeted> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err("the other end does not answer".to_string().into()),
            false => Ok(left),
        }
    }

    /// Takes what comes next.
    fn read(&mut self) -> Result<(), Ungreeted> {
        let left = self.left()?;
        let mut piece = [0; 4096];
        let got = self
            .stream
            .set_read_timeout(Some(left))
            .and_then(|()| (&mut &*self.stream).read(&mut piece));
        let bytes = match got {
            Ok(0) => return Err(CLOSED.to_string().into()),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.to_string().into()),
        };
        self.has_received = true;
        let Some(tls) = &mut self.tls else {
            self.received.extend_from_slice(&piece[..bytes]);
            return Ok(());
        };
        let taken = tls.receive(&piece[..bytes], &mut self.received);
        if taken.is_ok() && !tls.has_ended() {
            return Ok(());
        }
        // The alert that says why.
        let mut alert = Vec::new();
        tls.take_output(&mut alert);
        let _ = self.write(&alert);
        Err(match taken {
            Ok(()) => CLOSED.to_string().into(),
            Err(fault) => fault.to_string().into(),
        })
    }

    /// The next frame.
    fn frame(&mut self) -> Result<LinkFrame<'_>, Ungreeted> {
        self.received.drain(..self.taken);
        self.taken = 0;
        loop {
            match read_link_frame(&self.received, self.next, LINK_FRAME_BYTES_BEFORE_PROOF_MAX) {
                Ok(LinkReceived::Frame(frame)) => {
                    self.taken = frame.bytes;
                    break;
                }
                Ok(LinkReceived::Incomplete { .. }) => {}
                Err(fault) => return Err(self.describe(&fault).into()),
            }
            self.read()?;
        }
        self.next += 1;
        // Borrowed anew: the loop may not hand out what it may still extend.
        match read_link_frame(
            &self.received,
            self.next - 1,
            LINK_FRAME_BYTES_BEFORE_PROOF_MAX,
        ) {
            Ok(LinkReceived::Frame(frame)) => match &frame.message {
                LinkMessage::Refused(refused) => Err(Ungreeted {
                    text: format!("it says: {}", refused.text),
                    refused: Some((RefusedBy::There, refused.code)),
                    is_without_tls: false,
                }),
                _ => Ok(frame),
            },
            _ => unreachable!("it was just read"),
        }
    }

    /// What is wrong with bytes that are no frame.
    fn describe(&self, fault: &LinkFault) -> String {
        let is_tls = self.received.first().is_some_and(|first| {
            // A handshake, or the alert of who was sent no TLS.
            [TLS_FIRST_BYTE, TLS_ALERT].contains(first)
        });
        match (&self.tls, is_tls) {
            (None, true) => {
                "it speaks TLS on its links, and this node has no cluster_tls_cert".into()
            }
            _ => fault.to_string(),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(tls) = &mut self.tls else {
            return self.write(bytes);
        };
        let mut ciphertext = Vec::new();
        // A frame of a handshake is short enough for one record.
        tls.seal(std::iter::once(bytes), &mut ciphertext);
        self.write(&ciphertext)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), String> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.stream
            .set_write_timeout(Some(left.max(Duration::from_millis(1))))
            .and_then(|()| (&mut &*self.stream).write_all(bytes))
            .map_err(|error| error.to_string())
    }

    /// Tells the other end why the link is not made.
    fn refuse(&mut self, number: u64, refusal: &LinkRefusal) -> Ungreeted {
        let mut bytes = Vec::new();
        let header = LinkHeader {
            number,
            ..LinkHeader::default()
        };
        let refused = Refused {
            code: refusal.code,
            text: &refusal.text,
        };
        write_link_frame(&mut bytes, header, &LinkMessage::Refused(refused));
        // Whether it still listens or not.
        let _ = self.send(&bytes);
        Ungreeted {
            text: refusal.text.clone(),
            refused: Some((RefusedBy::Here, refusal.code)),
            is_without_tls: false,
        }
    }

    /// Both have proven themselves; the socket is as it was before.
    fn over(self, peer: Peer) -> Result<Greeted, String> {
        self.stream
            .set_read_timeout(None)
            .and_then(|()| self.stream.set_write_timeout(None))
            .map_err(|error| error.to_string())?;
        Ok(Greeted {
            peer,
            received: self.received[self.taken..].to_vec(),
            tls: self.tls,
        })
    }
}

fn nonce() -> Result<[u8; 32], String> {
    let mut nonce = [0; 32];
    crate::system::fill_random(&mut nonce)
        .map_err(|error| format!("no random numbers: {error}"))?;
    Ok(nonce)
}

/// Compares in constant time.
fn is_right(secret: &Secret, claim: &Claim) -> bool {
    secret.digest(claim.input.as_ref()) == blake3::Hash::from(claim.proof)
}

impl Greeter<'_> {
    /// The source's side: makes a link from one of the shards here to one of another node, without
    /// TLS if it `is_plain`.
    pub(crate) fn greet(
        &self,
        stream: &TcpStream,
        me: Introduction,
        wanted: (u8, u16),
        is_plain: bool,
    ) -> Result<Greeted, Ungreeted> {
        let (to_node, secret) = (wanted.0, self.secret);
        let mut line = Line::new(stream, self.patience)?;
        if let Some(tls) = self.tls.filter(|_| !is_plain) {
            let name = NodeName {
                node: to_node,
                cluster_id: me.cluster_id,
            };
            let dialed = TlsConnection::dial(tls.served.dialing(), name);
            if let Err(cause) = line.secure(dialed) {
                let is_without_tls = !line.has_received && Instant::now() < line.until;
                let text = match is_without_tls {
                    true => format!("{}: it may have no TLS on its links", cause.text),
                    false => cause.text,
                };
                return Err(Ungreeted {
                    text,
                    refused: None,
                    is_without_tls,
                });
            }
        }
        let mut out = Vec::new();
        let channel = line.channel();
        let mut connecting =
            Connecting::up_to(highest_offered(), me, wanted, channel, nonce()?, &mut out);
        line.send(&out)?;
        let judged = connecting.welcome(&line.frame()?.message);
        let claim = judged.map_err(|refusal| line.refuse(2, &refusal))?;
        if !is_right(secret, &claim) {
            return Err(line.refuse(2, &wrong_proof(to_node)));
        }
        out.clear();
        let proof = secret.digest(connecting.proof_input().as_ref());
        let peer = connecting.prove(*proof.as_bytes(), &mut out);
        line.send(&out)?;
        admitted(self.seen, &peer)?.map_err(|refusal| line.refuse(3, &refusal))?;
        Ok(line.over(peer)?)
    }

    /// Answers the greeting of a source. Returns the source and the shard of this node that the
    /// source wants, or one beyond them that this node `takes` for a connection of another kind.
    /// Only nodes that the cluster's file names are let in.
    pub(crate) fn welcome(
        &self,
        stream: &TcpStream,
        me: &Introduction,
        is_named: impl Fn(u8) -> bool,
        takes: impl Fn(u16) -> bool,
    ) -> Result<(u16, Greeted), Ungreeted> {
        let secret = self.secret;
        let mut line = Line::new(stream, self.patience)?;
        if let Some(tls) = self.tls
            && (!tls.is_optional || line.begins_with_tls()?)
        {
            line.secure(TlsConnection::new(tls.served.config()))?;
        }
        let nonce = nonce()?;
        let channel = line.channel();
        let frame = line.frame()?;
        let wanted = match &frame.message {
            LinkMessage::Hello(hello) => hello.to_shard,
            _ => 0,
        };
        // One that there is not is refused as another destination.
        let is_there = wanted < me.shards || takes(wanted);
        let shard = if is_there { wanted } else { 0 };
        let mut accepting =
            Accepting::new(Introduction { shard, ..*me }, channel).up_to(highest_offered());
        let judged = accepting.hello(&frame.message, nonce);
        let input = judged.map_err(|refusal| line.refuse(1, &refusal))?;
        let mut out = Vec::new();
        accepting.welcome(*secret.digest(input.as_ref()).as_bytes(), &mut out);
        line.send(&out)?;
        let judged = accepting.proof(&line.frame()?.message);
        let claim = judged.map_err(|refusal| line.refuse(2, &refusal))?;
        let peer = accepting.proven();
        if !is_right(secret, &claim) {
            return Err(line.refuse(2, &wrong_proof(peer.node)));
        }
        if !is_named(peer.node) {
            return Err(line.refuse(2, &not_named(peer.node)));
        }
        admitted(self.seen, &peer)?.map_err(|refusal| line.refuse(2, &refusal))?;
        Ok((shard, line.over(peer)?))
    }
}

fn admitted(seen: &Seen, peer: &Peer) -> Result<Result<(), LinkRefusal>, String> {
    seen.admit(peer)
        .map_err(|error| format!("which start of it was seen cannot be written down: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_net::link::NodeStart;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn me(node: u8, shards: u16) -> Introduction {
        Introduction {
            log_format: 1,
            cluster_id: [9; 16],
            node_id: [node; 16],
            start: NodeStart {
                incarnation: 3,
                start_id: 33,
            },
            node,
            shard: 0,
            shards,
            record_bytes_max: 1 << 20,
            frame_bytes_max: 4 << 20,
        }
    }

    fn secret(of: u8) -> Secret {
        Secret::new(&[of; 32]).expect("long enough")
    }

    fn seen(name: &str) -> (std::path::PathBuf, Seen) {
        let unique = format!("penstock-greeting-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&directory).expect("made");
        let seen = Seen::read(&directory).expect("nothing yet");
        (directory, seen)
    }

    fn greeter<'a>(secret: &'a Secret, seen: &'a Seen) -> Greeter<'a> {
        Greeter {
            secret,
            seen,
            tls: None,
            patience: PATIENCE,
        }
    }

    type Outcome = (Result<Peer, Ungreeted>, Result<(u16, Peer), Ungreeted>);

    fn meet(
        name: &str,
        source: Introduction,
        wanted: (u8, u16),
        destination: Introduction,
        secrets: (Secret, Secret),
        (incarnation, start_id): (u32, u32),
    ) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let (here, (there_at, there)) = (seen(&format!("{name}-1")), seen(&format!("{name}-2")));
        let before = Peer {
            node_id: source.node_id,
            node: source.node,
            start: NodeStart {
                incarnation,
                start_id,
            },
            shard: 0,
            shards: 1,
            frame_bytes_max: 0,
            link_version: 3,
        };
        assert!(there.admit(&before).expect("written").is_ok());
        let other = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accepted");
            let is_named = |node| node < 9;
            greeter(&secrets.1, &there)
                .welcome(&stream, &destination, is_named, |_| false)
                .map(|(shard, greeted)| (shard, greeted.peer))
        });
        let stream = TcpStream::connect(address).expect("connected");
        let made = greeter(&secrets.0, &here.1).greet(&stream, source, wanted, false);
        // Whoever still waits for it hears that nothing comes.
        drop(stream);
        let taken = other.join().expect("it does not panic");
        std::fs::remove_dir_all(here.0).expect("removed");
        std::fs::remove_dir_all(there_at).expect("removed");
        (made.map(|greeted| greeted.peer), taken)
    }

    #[test]
    fn who_knows_the_secret_is_let_in_and_answered_how_many_shards_there_are() {
        let both = (secret(1), secret(1));
        let (made, taken) = meet("good", me(1, 2), (2, 3), me(2, 4), both, (3, 33));
        let peer = made.expect("proven");
        assert_eq!((peer.node, peer.shard, peer.shards), (2, 3, 4));
        let (shard, peer) = taken.expect("proven");
        assert_eq!((shard, peer.node, peer.shards), (3, 1, 2));
    }

    #[test]
    fn who_does_not_is_refused_by_name_on_both_sides() {
        let both = (secret(1), secret(2));
        let (made, taken) = meet("secret", me(1, 1), (2, 0), me(2, 1), both, (0, 0));
        let (made, taken) = (
            made.expect_err("not proven"),
            taken.expect_err("not proven"),
        );
        assert_eq!(made.text, "node 2 does not know the secret of the cluster");
        assert!(taken.text.contains("node 2 does not know"), "{taken:?}");
        let by = |side| Some((side, RefusalCode::Credentials));
        assert_eq!(made.refused, by(RefusedBy::Here));
        assert_eq!(taken.refused, by(RefusedBy::There));
    }

    #[test]
    fn who_knows_the_secret_and_is_not_in_the_file_is_refused_by_name() {
        let both = (secret(1), secret(1));
        let (made, taken) = meet("stranger", me(9, 1), (2, 0), me(2, 1), both, (0, 0));
        assert_eq!(
            taken.expect_err("not named").text,
            "the cluster's file does not name node 9"
        );
        // The source hears it on the link that it holds for made.
        assert!(made.is_ok());
    }

    #[test]
    fn another_cluster_node_or_shard_is_refused_by_name() {
        let other = Introduction {
            cluster_id: [8; 16],
            ..me(1, 1)
        };
        for (name, source, wanted, named) in [
            ("cluster", other, (2, 0), "of another cluster"),
            ("node", me(1, 1), (3, 0), "shard 0 of node 3 is wanted"),
            ("shard", me(1, 1), (2, 7), "shard 7 of node 2 is wanted"),
            (
                "itself",
                me(2, 1),
                (2, 0),
                "both ends of the link are node 2",
            ),
        ] {
            let both = (secret(1), secret(1));
            let (made, taken) = meet(name, source, wanted, me(2, 1), both, (0, 0));
            let (made, taken) = (made.expect_err(name), taken.expect_err(name));
            assert!(made.text.contains(named), "{name}: {made:?}");
            assert!(taken.text.contains(named), "{name}: {taken:?}");
        }
    }

    #[test]
    fn an_older_copy_is_refused_by_name_when_both_have_proven_themselves() {
        for (name, start_seen, named) in [
            (
                "older",
                (4, 33),
                "node 1 is start 3, and its start 4 was seen",
            ),
            (
                "other",
                (3, 34),
                "node 1 is start 3, and another start 3 was seen",
            ),
        ] {
            let both = (secret(1), secret(1));
            let (made, taken) = meet(name, me(1, 1), (2, 0), me(2, 1), both, start_seen);
            // It is told on the link, by who is known to know the secret.
            assert_eq!(made.expect("both are who they say").node, 2);
            let taken = taken.expect_err(name);
            assert!(taken.text.contains(named), "{name}: {taken:?}");
            let older = Some((RefusedBy::Here, RefusalCode::Incarnation));
            assert_eq!(taken.refused, older);
        }
    }
}

//! The handshake of a link on a socket that may block: each side proves that it knows the secret
//! before any partition is named.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use penstock_net::link::frame::{
    LINK_FRAME_BYTES_BEFORE_PROOF_MAX, read_link_frame, write_link_frame,
};
use penstock_net::link::{LinkFrame, LinkHeader, LinkMessage, LinkReceived, RefusalCode, Refused};
use penstock_shard::replication::handshake::{
    Accepting, Claim, Connecting, Introduction, Peer, wrong_proof,
};
use penstock_shard::replication::link_set::not_named;
use penstock_shard::replication::receiver::LinkRefusal;

use super::file::Secret;
use super::seen::Seen;

/// A link that has proven itself.
pub(super) struct Greeted {
    pub(super) peer: Peer,
    /// What has come behind the handshake.
    pub(super) received: Vec<u8>,
}

/// Why there is no link.
#[derive(Debug)]
pub(super) struct Ungreeted {
    /// For people.
    pub(super) text: String,
    /// The side that has refused the link, and why. `None` if neither has.
    pub(super) refused: Option<(RefusedBy, RefusalCode)>,
}

/// The side that refuses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedBy {
    Here,
    There,
}

impl From<String> for Ungreeted {
    fn from(text: String) -> Self {
        Ungreeted {
            text,
            refused: None,
        }
    }
}

/// A socket during the handshake.
struct Line<'a> {
    stream: &'a TcpStream,
    until: Instant,
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
            until: Instant::now() + patience,
            received: Vec::new(),
            taken: 0,
            next: 1,
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
                Err(fault) => return Err(fault.to_string().into()),
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the other end does not answer".to_string().into());
            }
            let mut piece = [0; 1024];
            let got = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| (&mut &*self.stream).read(&mut piece));
            match got {
                Ok(0) => return Err("the other end has closed the connection".to_string().into()),
                Ok(bytes) => self.received.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string().into()),
            }
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
                }),
                _ => Ok(frame),
            },
            _ => unreachable!("it was just read"),
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), String> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.stream
            .set_write_timeout(Some(left.max(Duration::from_millis(1))))
            .and_then(|()| (&mut &*self.stream).write_all(bytes))
            .map_err(|error| error.to_string())
    }

    /// Tells the other end why the link is not made.
    fn refuse(&self, number: u64, refusal: &LinkRefusal) -> Ungreeted {
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
        }
    }

    /// What came behind the handshake; the socket is as it was before.
    fn over(self) -> Result<Vec<u8>, String> {
        self.stream
            .set_read_timeout(None)
            .and_then(|()| self.stream.set_write_timeout(None))
            .map_err(|error| error.to_string())?;
        Ok(self.received[self.taken..].to_vec())
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
    secret.digest(&claim.input) == blake3::Hash::from(claim.proof)
}

/// The source's side: makes a link from one of the shards here to one of another node.
pub(super) fn greet(
    stream: &TcpStream,
    patience: Duration,
    me: Introduction,
    (to_node, to_shard): (u8, u16),
    secret: &Secret,
    seen: &Seen,
) -> Result<Greeted, Ungreeted> {
    let mut line = Line::new(stream, patience)?;
    let mut out = Vec::new();
    let mut connecting = Connecting::new(me, to_node, to_shard, nonce()?, &mut out);
    line.send(&out)?;
    let frame = line.frame()?;
    let judged = connecting.welcome(&frame.message);
    let claim = judged.map_err(|refusal| line.refuse(2, &refusal))?;
    if !is_right(secret, &claim) {
        return Err(line.refuse(2, &wrong_proof(to_node)));
    }
    out.clear();
    let proof = secret.digest(&connecting.proof_input());
    let peer = connecting.prove(*proof.as_bytes(), &mut out);
    line.send(&out)?;
    admitted(seen, &peer)?.map_err(|refusal| line.refuse(3, &refusal))?;
    Ok(Greeted {
        peer,
        received: line.over()?,
    })
}

/// Answers the greeting of a source. Returns the source and the shard of this node that the source
/// wants. Only nodes that the cluster's file names are let in.
pub(super) fn welcome(
    stream: &TcpStream,
    patience: Duration,
    me: &Introduction,
    secret: &Secret,
    is_named: impl Fn(u8) -> bool,
    seen: &Seen,
) -> Result<(u16, Greeted), Ungreeted> {
    let mut line = Line::new(stream, patience)?;
    let nonce = nonce()?;
    let frame = line.frame()?;
    let wanted = match &frame.message {
        LinkMessage::Hello(hello) => hello.to_shard,
        _ => 0,
    };
    // One that there is not is refused as another destination.
    let shard = match wanted < me.shards {
        true => wanted,
        false => 0,
    };
    let mut accepting = Accepting::new(Introduction { shard, ..*me });
    let judged = accepting.hello(&frame.message, nonce);
    let input = judged.map_err(|refusal| line.refuse(1, &refusal))?;
    let mut out = Vec::new();
    accepting.welcome(*secret.digest(&input).as_bytes(), &mut out);
    line.send(&out)?;
    let frame = line.frame()?;
    let judged = accepting.proof(&frame.message);
    let claim = judged.map_err(|refusal| line.refuse(2, &refusal))?;
    let peer = accepting.proven();
    if !is_right(secret, &claim) {
        return Err(line.refuse(2, &wrong_proof(peer.node)));
    }
    if !is_named(peer.node) {
        return Err(line.refuse(2, &not_named(peer.node)));
    }
    admitted(seen, &peer)?.map_err(|refusal| line.refuse(2, &refusal))?;
    Ok((
        shard,
        Greeted {
            peer,
            received: line.over()?,
        },
    ))
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
        };
        assert!(there.admit(&before).expect("written").is_ok());
        let other = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accepted");
            let is_named = |node| node < 9;
            welcome(
                &stream,
                PATIENCE,
                &destination,
                &secrets.1,
                is_named,
                &there,
            )
            .map(|(shard, greeted)| (shard, greeted.peer))
        });
        let stream = TcpStream::connect(address).expect("connected");
        let made = greet(&stream, PATIENCE, source, wanted, &secrets.0, &here.1);
        // Whoever still waits for it hears that nothing comes.
        drop(stream);
        let taken = other.join().expect("it does not panic");
        std::fs::remove_dir_all(here.0).expect("removed");
        std::fs::remove_dir_all(there_at).expect("removed");
        (made.map(|greeted| greeted.peer), taken)
    }

    #[test]
    fn who_knows_the_secret_is_let_in_and_told_how_many_shards_there_are() {
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

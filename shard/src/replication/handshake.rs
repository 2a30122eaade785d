//! The first four frames of a link: who is at the other end, and whether it may speak.
//!
//! Pure: nonces and digests come from the owner, who alone knows the secret. A side is handed what
//! a proof is to be computed over, and told whether the other's was right.

use penstock_net::link::frame::{LINK_VERSION, LINK_VERSION_MAX, write_link_frame};
use penstock_net::link::handshake::{ProofInput, proof_input};
use penstock_net::link::{
    Channel, Hello, LinkHeader, LinkMessage, NodeStart, Nonce, Proof, ProofRole, RefusalCode,
    Welcome,
};

use super::receiver::{LinkRefusal, refusal};
use super::sender::frame_bytes_needed;

/// What a shard of a node tells of itself on each of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Version of the format of its records.
    pub log_format: u32,
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// The node.
    pub node_id: [u8; 16],
    /// Which start of the node.
    pub start: NodeStart,
    /// Number of the node in its cluster, the low byte of its epochs.
    pub node: u8,
    /// Which of its shards.
    pub shard: u16,
    /// How many it has.
    pub shards: u16,
    /// Bytes of its largest record.
    pub record_bytes_max: u32,
    /// Bytes of a frame that it takes.
    pub frame_bytes_max: u32,
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The node.
    pub node_id: [u8; 16],
    /// Its number.
    pub node: u8,
    /// Which start of it.
    pub start: NodeStart,
    /// Which of its shards, and how many it has.
    pub shard: u16,
    /// How many it has.
    pub shards: u16,
    /// Bytes of a frame that it takes.
    pub frame_bytes_max: u32,
    /// The version of the link.
    pub link_version: u16,
}

impl Peer {
    /// Holds its start against the highest one that was `seen` of it. To be asked when both have
    /// proven themselves: a node that is told this ends its process, so it must be told by nobody
    /// else.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the peer is to be told, and the link to be ended.
    pub fn judge_start(&self, seen: NodeStart) -> Result<(), LinkRefusal> {
        let (start, before) = (self.start.incarnation, seen.incarnation);
        let is_another =
            seen.start_id != 0 && start == before && self.start.start_id != seen.start_id;
        let which = match is_another {
            true => "another start",
            false if start < before => "its start",
            false => return Ok(()),
        };
        refusal(
            RefusalCode::Incarnation,
            format!(
                "node {} is start {start}, and {which} {before} was seen: its directory is an \
                 older copy",
                self.node
            ),
        )
    }
}

/// A proof that was told, and what it must be computed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What was told.
    pub proof: Proof,
    /// The keyed digest of this is right.
    pub input: ProofInput,
}

/// The source's side, from HELLO on.
#[derive(Debug)]
pub struct Connecting {
    me: Introduction,
    channel: Channel,
    hello: Hello,
    welcome: Option<Welcome>,
}

/// The destination's side, up to PROOF.
#[derive(Debug)]
pub struct Accepting {
    me: Introduction,
    channel: Channel,
    highest: u16,
    greeted: Option<(Hello, Welcome)>,
}

fn header(number: u64) -> LinkHeader {
    LinkHeader {
        number,
        ..LinkHeader::default()
    }
}

/// Over TLS the certificate of the other side is that of the node that it says it is.
fn judge_certificate(me: &Introduction, node: u8, channel: &Channel) -> Result<(), LinkRefusal> {
    let Channel::Tls { certified, .. } = channel else {
        return Ok(());
    };
    let text = match certified {
        None => format!("the certificate of node {node} does not name one node of a cluster"),
        Some(name) if name.cluster_id != me.cluster_id => {
            format!("the certificate of node {node} is of another cluster: it names {name}")
        }
        Some(name) if name.node != node => {
            format!("node {node} shows the certificate of node {}", name.node)
        }
        Some(_) => return Ok(()),
    };
    refusal(RefusalCode::Credentials, text)
}

/// What both sides look at in what the other tells, before any proof.
fn judge(
    me: &Introduction,
    log_format: u32,
    cluster_id: [u8; 16],
    peer: &Peer,
    channel: &Channel,
) -> Result<(), LinkRefusal> {
    judge_certificate(me, peer.node, channel)?;
    if log_format != me.log_format {
        return refusal(
            RefusalCode::LogFormat,
            format!(
                "node {} writes format {log_format} of the log and node {} format {}",
                peer.node, me.node, me.log_format
            ),
        );
    }
    if cluster_id != me.cluster_id {
        return refusal(
            RefusalCode::Cluster,
            format!(
                "node {} is of another cluster than node {}",
                peer.node, me.node
            ),
        );
    }
    if peer.node_id == me.node_id || peer.node == me.node {
        return refusal(
            RefusalCode::Itself,
            format!("both ends of the link are node {}", me.node),
        );
    }
    Ok(())
}

impl Connecting {
    /// Says HELLO to a shard of another node.
    #[must_use]
    pub fn new(
        me: Introduction,
        wanted: (u8, u16),
        channel: Channel,
        nonce: Nonce,
        out: &mut Vec<u8>,
    ) -> Self {
        Connecting::up_to(LINK_VERSION_MAX.into(), me, wanted, channel, nonce, out)
    }

    /// The same, and offers no higher version of the link than this one, as an earlier build.
    #[must_use]
    pub fn up_to(
        highest: u16,
        me: Introduction,
        (to_node, to_shard): (u8, u16),
        channel: Channel,
        nonce: Nonce,
        out: &mut Vec<u8>,
    ) -> Self {
        let hello = Hello {
            versions: (LINK_VERSION.into(), highest),
            log_format: me.log_format,
            cluster_id: me.cluster_id,
            node_id: me.node_id,
            start: me.start,
            nonce,
            node: me.node,
            to_node,
            shard: me.shard,
            shards: me.shards,
            to_shard,
            record_bytes_max: me.record_bytes_max,
            frame_bytes_max: me.frame_bytes_max,
        };
        write_link_frame(out, header(1), &LinkMessage::Hello(hello));
        Connecting {
            me,
            channel,
            hello,
            welcome: None,
        }
    }

    /// Takes WELCOME.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the link is to be ended.
    pub fn welcome(&mut self, message: &LinkMessage<'_>) -> Result<Claim, LinkRefusal> {
        let (LinkMessage::Welcome(welcome), None) = (message, &self.welcome) else {
            return refusal(
                RefusalCode::Order,
                format!("{} is no answer to HELLO", message.name()),
            );
        };
        let (least, highest) = self.hello.versions;
        if !(least..=highest).contains(&welcome.version) {
            return refusal(
                RefusalCode::LinkVersion,
                format!("version {} of the link was not offered", welcome.version),
            );
        }
        let peer = Peer {
            node_id: welcome.node_id,
            node: welcome.node,
            start: welcome.start,
            shard: welcome.shard,
            shards: welcome.shards,
            frame_bytes_max: welcome.frame_bytes_max,
            link_version: welcome.version,
        };
        if (welcome.node, welcome.shard) != (self.hello.to_node, self.hello.to_shard) {
            return refusal(
                RefusalCode::Destination,
                format!(
                    "shard {} of node {} was wanted, and shard {} of node {} answers",
                    self.hello.to_shard, self.hello.to_node, welcome.shard, welcome.node
                ),
            );
        }
        judge(
            &self.me,
            welcome.log_format,
            welcome.cluster_id,
            &peer,
            &self.channel,
        )?;
        let needed = frame_bytes_needed(self.me.record_bytes_max);
        if welcome.record_bytes_max < self.me.record_bytes_max || welcome.frame_bytes_max < needed {
            return refusal(
                RefusalCode::RecordBytes,
                format!(
                    "node {} takes records of {} bytes in frames of {}, and it needs {} in \
                     {needed}",
                    welcome.node,
                    welcome.record_bytes_max,
                    welcome.frame_bytes_max,
                    self.me.record_bytes_max
                ),
            );
        }
        self.welcome = Some(*welcome);
        Ok(Claim {
            proof: welcome.proof,
            input: proof_input(ProofRole::Destination, &self.hello, welcome, &self.channel),
        })
    }

    /// What the own proof is to be computed over, once the other's was right.
    ///
    /// # Panics
    /// If WELCOME has not come.
    #[must_use]
    pub fn proof_input(&self) -> ProofInput {
        let welcome = self.welcome.as_ref().expect("WELCOME was taken");
        proof_input(ProofRole::Source, &self.hello, welcome, &self.channel)
    }

    /// Tells the own proof. Two frames have gone out then and one has come in.
    ///
    /// # Panics
    /// If WELCOME has not come.
    #[must_use]
    pub fn prove(self, proof: Proof, out: &mut Vec<u8>) -> Peer {
        let welcome = self.welcome.expect("WELCOME was taken");
        write_link_frame(out, header(2), &LinkMessage::Proof(proof));
        Peer {
            node_id: welcome.node_id,
            node: welcome.node,
            start: welcome.start,
            shard: welcome.shard,
            shards: welcome.shards,
            frame_bytes_max: welcome.frame_bytes_max,
            link_version: welcome.version,
        }
    }
}

impl Accepting {
    /// Waits for HELLO.
    #[must_use]
    pub fn new(me: Introduction, channel: Channel) -> Self {
        Accepting {
            me,
            channel,
            highest: LINK_VERSION_MAX.into(),
            greeted: None,
        }
    }

    /// Speaks no higher version of the link than this one, as an earlier build.
    #[must_use]
    pub fn up_to(self, highest: u16) -> Self {
        Accepting { highest, ..self }
    }

    /// Takes HELLO, and tells what the own proof is to be computed over.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the peer is to be told, and the link to be ended.
    pub fn hello(
        &mut self,
        message: &LinkMessage<'_>,
        nonce: Nonce,
    ) -> Result<ProofInput, LinkRefusal> {
        let (LinkMessage::Hello(hello), None) = (message, &self.greeted) else {
            return refusal(
                RefusalCode::Order,
                format!("a link does not begin with {}", message.name()),
            );
        };
        let me = &self.me;
        let (version, highest) = (link_version(hello, self.highest), self.highest);
        if !(hello.versions.0..=hello.versions.1).contains(&version) {
            return refusal(
                RefusalCode::LinkVersion,
                format!(
                    "versions {} to {} of the link are offered, and {LINK_VERSION} to \
                     {highest} are spoken here",
                    hello.versions.0, hello.versions.1
                ),
            );
        }
        if (hello.to_node, hello.to_shard) != (me.node, me.shard) {
            return refusal(
                RefusalCode::Destination,
                format!(
                    "shard {} of node {} is wanted, and this is shard {} of node {}",
                    hello.to_shard, hello.to_node, me.shard, me.node
                ),
            );
        }
        let peer = peer_of(hello, version);
        judge(me, hello.log_format, hello.cluster_id, &peer, &self.channel)?;
        let needed = frame_bytes_needed(hello.record_bytes_max);
        if hello.record_bytes_max > me.record_bytes_max || hello.frame_bytes_max < needed {
            return refusal(
                RefusalCode::RecordBytes,
                format!(
                    "node {} writes records of {} bytes and takes frames of {}; node {} takes \
                     records of {}, and frames have up to {needed}",
                    hello.node,
                    hello.record_bytes_max,
                    hello.frame_bytes_max,
                    me.node,
                    me.record_bytes_max
                ),
            );
        }
        let welcome = Welcome {
            version,
            log_format: me.log_format,
            cluster_id: me.cluster_id,
            node_id: me.node_id,
            start: me.start,
            nonce,
            node: me.node,
            shard: me.shard,
            shards: me.shards,
            record_bytes_max: me.record_bytes_max,
            frame_bytes_max: me.frame_bytes_max,
            proof: Proof::default(),
        };
        let input = proof_input(ProofRole::Destination, hello, &welcome, &self.channel);
        self.greeted = Some((*hello, welcome));
        Ok(input)
    }

    /// Says WELCOME with the own proof.
    ///
    /// # Panics
    /// If HELLO has not come.
    pub fn welcome(&mut self, proof: Proof, out: &mut Vec<u8>) {
        let (_, welcome) = self.greeted.as_mut().expect("HELLO was taken");
        welcome.proof = proof;
        write_link_frame(out, header(1), &LinkMessage::Welcome(*welcome));
    }

    /// Takes PROOF: if it is right, [`Accepting::proven`].
    ///
    /// # Errors
    /// [`LinkRefusal`]: the peer is to be told, and the link to be ended.
    pub fn proof(&self, message: &LinkMessage<'_>) -> Result<Claim, LinkRefusal> {
        match (message, &self.greeted) {
            (&LinkMessage::Proof(proof), Some((hello, welcome))) => Ok(Claim {
                proof,
                input: proof_input(ProofRole::Source, hello, welcome, &self.channel),
            }),
            _ => refusal(
                RefusalCode::Order,
                format!("{} proves nothing", message.name()),
            ),
        }
    }

    /// The proof was right. One frame has gone out and two have come in.
    ///
    /// # Panics
    /// If HELLO has not come.
    #[must_use]
    pub fn proven(self) -> Peer {
        let (hello, welcome) = self.greeted.expect("HELLO was taken");
        peer_of(&hello, welcome.version)
    }
}

/// The version that is spoken with who says this: the highest one that both know, up to `highest`.
fn link_version(hello: &Hello, highest: u16) -> u16 {
    hello.versions.1.clamp(LINK_VERSION.into(), highest)
}

/// Who says this, by a link of this version.
fn peer_of(hello: &Hello, link_version: u16) -> Peer {
    Peer {
        node_id: hello.node_id,
        node: hello.node,
        start: hello.start,
        shard: hello.shard,
        shards: hello.shards,
        frame_bytes_max: hello.frame_bytes_max,
        link_version,
    }
}

/// The refusal of a proof that is not right.
#[must_use]
pub fn wrong_proof(node: u8) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Credentials,
        text: format!("node {node} does not know the secret of the cluster"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: NodeStart = NodeStart {
        incarnation: 5,
        start_id: 1,
    };
    use penstock_net::link::frame::{LINK_FRAME_BYTES_BEFORE_PROOF_MAX, read_link_frame};
    use penstock_net::link::{LinkReceived, NodeName};

    fn introduction(node: u8) -> Introduction {
        Introduction {
            log_format: 1,
            cluster_id: [7; 16],
            node_id: [node; 16],
            start: START,
            node,
            shard: 0,
            shards: 1,
            record_bytes_max: 1 << 20,
            frame_bytes_max: 4 << 20,
        }
    }

    /// Stands for a keyed digest.
    fn digest(secret: u8, input: &ProofInput) -> Proof {
        let input = input.as_ref();
        let mut proof = [secret; 32];
        for (at, byte) in input.iter().enumerate() {
            let into = &mut proof[at % 32];
            *into = into.rotate_left(3) ^ byte;
        }
        proof
    }

    fn message(bytes: &[u8], number: u64) -> LinkMessage<'_> {
        match read_link_frame(bytes, number, LINK_FRAME_BYTES_BEFORE_PROOF_MAX) {
            Ok(LinkReceived::Frame(frame)) => frame.message,
            other => panic!("{other:?}"),
        }
    }

    fn certified(node: u8) -> Channel {
        let cluster_id = [7; 16];
        Channel::Tls {
            binding: [0xB1; 32],
            certified: Some(NodeName { node, cluster_id }),
        }
    }

    fn binding(channel: &mut Channel) -> &mut [u8; 32] {
        match channel {
            Channel::Tls { binding, .. } => binding,
            Channel::Plain => panic!("there is none"),
        }
    }

    fn name(channel: &mut Channel) -> &mut Option<NodeName> {
        match channel {
            Channel::Tls { certified, .. } => certified,
            Channel::Plain => panic!("there is none"),
        }
    }

    struct Ends {
        source: Introduction,
        destination: Introduction,
        wanted: (u8, u16),
        secrets: (u8, u8),
        seen: (NodeStart, NodeStart),
        /// As the source and as the destination see it.
        channels: (Channel, Channel),
    }

    impl Ends {
        fn new() -> Ends {
            Ends {
                source: introduction(1),
                destination: introduction(2),
                wanted: (2, 0),
                secrets: (9, 9),
                seen: (START, START),
                channels: (Channel::Plain, Channel::Plain),
            }
        }

        fn over_tls() -> Ends {
            Ends {
                channels: (certified(2), certified(1)),
                ..Ends::new()
            }
        }

        /// What the two agree on, or why the one or the other refuses.
        fn meet(&self) -> Result<(Peer, Peer), RefusalCode> {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            let mut source = Connecting::new(
                self.source,
                self.wanted,
                self.channels.0,
                [1; 32],
                &mut there,
            );
            let mut destination = Accepting::new(self.destination, self.channels.1);
            let input = destination
                .hello(&message(&there, 1), [2; 32])
                .map_err(|refusal| refusal.code)?;
            destination.welcome(digest(self.secrets.1, &input), &mut back);
            let claim = source
                .welcome(&message(&back, 1))
                .map_err(|refusal| refusal.code)?;
            if digest(self.secrets.0, &claim.input) != claim.proof {
                return Err(wrong_proof(2).code);
            }
            let proof = digest(self.secrets.0, &source.proof_input());
            // The one's proof is of no use as the other's.
            assert_ne!(proof, claim.proof);
            there.clear();
            let destination_is = source.prove(proof, &mut there);
            let claim = destination
                .proof(&message(&there, 2))
                .map_err(|refusal| refusal.code)?;
            if digest(self.secrets.1, &claim.input) != claim.proof {
                return Err(wrong_proof(1).code);
            }
            let source_is = destination.proven();
            for (peer, seen) in [(&destination_is, self.seen.0), (&source_is, self.seen.1)] {
                peer.judge_start(seen).map_err(|refusal| refusal.code)?;
            }
            Ok((source_is, destination_is))
        }
    }

    #[test]
    fn two_nodes_with_one_secret_know_each_other() {
        let (source, destination) = Ends::new().meet().expect("they fit");
        assert_eq!((source.node, source.node_id), (1, [1; 16]));
        assert_eq!((destination.node, destination.node_id), (2, [2; 16]));
        assert_eq!(destination.frame_bytes_max, 4 << 20);
    }

    #[test]
    fn who_does_not_fit_is_refused_by_name() {
        let refused = |code, change: &dyn Fn(&mut Ends)| {
            let mut ends = Ends::new();
            change(&mut ends);
            assert_eq!(ends.meet(), Err(code));
        };
        refused(RefusalCode::Credentials, &|ends| ends.secrets.0 = 8);
        refused(RefusalCode::Credentials, &|ends| ends.secrets.1 = 8);
        refused(RefusalCode::Cluster, &|ends| ends.source.cluster_id[3] = 8);
        refused(RefusalCode::LogFormat, &|ends| ends.source.log_format = 2);
        refused(RefusalCode::Destination, &|ends| ends.wanted.0 = 3);
        refused(RefusalCode::Destination, &|ends| ends.wanted.1 = 1);
        refused(RefusalCode::Itself, &|ends| ends.source.node_id = [2; 16]);
        refused(RefusalCode::Itself, &|ends| ends.source.node = 2);
        refused(RefusalCode::Incarnation, &|ends| {
            ends.seen.0.incarnation += 1;
        });
        refused(RefusalCode::Incarnation, &|ends| {
            ends.seen.1.incarnation += 1;
        });
        // The same start of another copy of the directory.
        refused(RefusalCode::Incarnation, &|ends| ends.seen.0.start_id = 2);
        refused(RefusalCode::Incarnation, &|ends| ends.seen.1.start_id = 2);
        refused(RefusalCode::RecordBytes, &|ends| {
            ends.source.record_bytes_max += 1;
        });
        refused(RefusalCode::RecordBytes, &|ends| {
            ends.source.record_bytes_max = u32::MAX;
        });
        refused(RefusalCode::RecordBytes, &|ends| {
            ends.source.frame_bytes_max = 1 << 20;
        });
        refused(RefusalCode::RecordBytes, &|ends| {
            ends.destination.frame_bytes_max = 1 << 20;
        });
    }

    #[test]
    fn over_tls_each_is_the_node_of_its_certificate_and_a_proof_is_of_one_connection() {
        assert!(Ends::over_tls().meet().is_ok());
        let refused = |change: &dyn Fn(&mut Ends)| {
            let mut ends = Ends::over_tls();
            change(&mut ends);
            assert_eq!(ends.meet(), Err(RefusalCode::Credentials));
        };
        // A third party between two connections.
        refused(&|ends| binding(&mut ends.channels.1)[7] ^= 1);
        refused(&|ends| ends.channels.0 = Channel::Plain);
        refused(&|ends| ends.channels.1 = Channel::Plain);
        // The certificates.
        refused(&|ends| ends.channels.0 = certified(3));
        refused(&|ends| ends.channels.1 = certified(3));
        refused(&|ends| *name(&mut ends.channels.0) = None);
        refused(&|ends| *name(&mut ends.channels.1) = None);
        let of_another = NodeName {
            node: 1,
            cluster_id: [8; 16],
        };
        refused(&|ends| *name(&mut ends.channels.1) = Some(of_another));
        refused(&|ends| ends.secrets.0 = 8);
    }

    #[test]
    fn nothing_else_is_said_before_both_are_known() {
        let mut out = Vec::new();
        let mut source =
            Connecting::new(introduction(1), (2, 0), Channel::Plain, [1; 32], &mut out);
        let mut destination = Accepting::new(introduction(2), Channel::Plain);
        for other in [LinkMessage::Beat, LinkMessage::Proof([0; 32])] {
            let refused = destination.hello(&other, [2; 32]);
            assert_eq!(refused.map_err(|it| it.code), Err(RefusalCode::Order));
            let refused = source.welcome(&other);
            assert_eq!(refused.map_err(|it| it.code), Err(RefusalCode::Order));
            let refused = destination.proof(&other);
            assert_eq!(refused.map_err(|it| it.code), Err(RefusalCode::Order));
        }
        let hello = message(&out, 1);
        destination
            .hello(&hello, [2; 32])
            .expect("the first one is right");
        let twice = destination.hello(&hello, [2; 32]);
        assert_eq!(twice.map_err(|it| it.code), Err(RefusalCode::Order));
    }

    /// A HELLO of a source that knows these versions of the link.
    fn hello_of(versions: (u16, u16)) -> Hello {
        let mut bytes = Vec::new();
        let me = introduction(1);
        let source = Connecting::new(me, (2, 0), Channel::Plain, [1; 32], &mut bytes);
        Hello {
            versions,
            ..source.hello
        }
    }

    #[test]
    fn the_version_of_a_link_is_the_highest_one_that_both_ends_know() {
        // The version of earlier builds is the lowest one, and what is not known is not spoken.
        for (versions, spoken) in [
            ((2, 2), 2),
            ((2, 3), 3),
            ((2, 4), 4),
            ((2, 5), 5),
            ((2, 6), 6),
            ((2, 9), 6),
            ((1, 2), 2),
        ] {
            let hello = hello_of(versions);
            let mut destination = Accepting::new(introduction(2), Channel::Plain);
            let input = destination.hello(&LinkMessage::Hello(hello), [2; 32]);
            assert!(input.is_ok(), "{versions:?}");
            let peer = destination.proven();
            assert_eq!(peer.link_version, spoken, "{versions:?}");
        }
        for versions in [(1, 1), (7, 9)] {
            let hello = hello_of(versions);
            let mut destination = Accepting::new(introduction(2), Channel::Plain);
            let refusal = destination.hello(&LinkMessage::Hello(hello), [2; 32]);
            assert_eq!(refusal.unwrap_err().code, RefusalCode::LinkVersion);
        }
    }

    #[test]
    fn a_source_takes_each_version_that_it_has_offered_and_no_other() {
        for (version, is_taken) in [(1, false), (2, true), (3, true), (6, true), (7, false)] {
            let mut bytes = Vec::new();
            let mut source =
                Connecting::new(introduction(1), (2, 0), Channel::Plain, [1; 32], &mut bytes);
            let mut destination = Accepting::new(introduction(2), Channel::Plain);
            let hello = hello_of((2, 6));
            destination
                .hello(&LinkMessage::Hello(hello), [2; 32])
                .expect("it is offered");
            let (_, welcome) = destination.greeted.expect("HELLO was taken");
            let welcome = LinkMessage::Welcome(Welcome { version, ..welcome });
            assert_eq!(source.welcome(&welcome).is_ok(), is_taken, "{version}");
            if is_taken {
                let peer = source.prove(Proof::default(), &mut Vec::new());
                assert_eq!(peer.link_version, version);
            }
        }
    }
}

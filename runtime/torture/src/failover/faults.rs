//! What is done to the nodes, to the network between them, and to etcd.

use std::time::Duration;

use super::etcd::port_of;
use super::nodes::Nodes;
use crate::network::{NODES, Traffic};
use crate::process;
use crate::random::Random;

/// A kind of fault. *The primary* is the node that writes the hot stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The primary is killed and starts again.
    KillPrimary,
    /// The same, and the leader of etcd is killed in the same moment.
    KillPrimaryAndLeader,
    /// The primary is killed while etcd has no quorum.
    KillPrimaryWithoutHome,
    /// A member is killed and starts again.
    KillMember,
    /// The primary stands still and goes on.
    StopPrimary,
    /// A member stands still.
    StopMember,
    /// Both members stand still: the primary goes on alone.
    StopBothMembers,
    /// One core of the primary stands still; its other cores go on.
    FreezeCore,
    /// The primary and a member do not reach each other.
    CutPair,
    /// One of two nodes hears the other one and is not heard.
    CutOneWay,
    /// The primary reaches no other node, and clients and etcd reach it.
    CutOffPrimary,
    /// The machine of the primary reaches no other machine. Its clients and its member of etcd
    /// are there.
    CutOffMachine,
    /// A node does not reach etcd.
    CutFromHome,
    /// What a node asks etcd arrives, and the answers do not.
    LoseHomeAnswers,
    /// etcd has no quorum for long, with all nodes well.
    LoseHome,
    /// The same, while a member stands still: it cannot be removed.
    LoseHomeAndStopMember,
    /// Nothing fails: a person has a member write everything.
    Switch,
}

/// Each kind, as often as it is drawn.
const DRAWN: [Fault; 26] = [
    Fault::KillPrimary,
    Fault::KillPrimary,
    Fault::KillPrimary,
    Fault::KillPrimary,
    Fault::KillPrimaryAndLeader,
    Fault::KillPrimaryAndLeader,
    Fault::KillPrimaryAndLeader,
    Fault::KillPrimaryWithoutHome,
    Fault::KillMember,
    Fault::StopPrimary,
    Fault::StopPrimary,
    Fault::StopPrimary,
    Fault::StopMember,
    Fault::StopMember,
    Fault::StopBothMembers,
    Fault::FreezeCore,
    Fault::CutPair,
    Fault::CutOneWay,
    Fault::CutOneWay,
    Fault::CutOffPrimary,
    Fault::CutOffMachine,
    Fault::CutFromHome,
    Fault::LoseHomeAnswers,
    Fault::LoseHome,
    Fault::Switch,
    Fault::Switch,
];

/// The longest times that are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Longest {
    /// Of a node that stands still or is cut off.
    pub stop: Duration,
    /// Of an etcd without a quorum.
    pub home: Duration,
}

/// From `least` to `most`, short times as often as long ones. One time in eight it is the longest.
fn drawn(random: &mut Random, least: Duration, most: Duration) -> Duration {
    let share = random.below(1_000) as f64 / 999.0;
    let most = most.max(least);
    if random.once_in(8) {
        return most;
    }
    least.mul_f64((most.as_secs_f64() / least.as_secs_f64()).powf(share))
}

impl Fault {
    pub fn draw(random: &mut Random) -> Fault {
        // One is rare: it takes all writers away for as long as it lasts.
        if random.once_in(25) {
            return Fault::LoseHomeAndStopMember;
        }
        DRAWN[usize::try_from(random.below(DRAWN.len() as u64)).expect("few")]
    }

    /// The kind of this name.
    ///
    /// # Errors
    /// One line with the names that there are.
    pub fn named(name: &str) -> Result<Fault, String> {
        let mut all = DRAWN.to_vec();
        all.push(Fault::LoseHomeAndStopMember);
        all.dedup();
        let names: Vec<&str> = all.iter().map(|it| it.name()).collect();
        let found = all.iter().find(|it| it.name() == name).copied();
        found.ok_or_else(|| {
            format!(
                "{name:?} is not a fault of failover; these are: {}",
                names.join("; ")
            )
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Fault::KillPrimary => "kill primary",
            Fault::KillPrimaryAndLeader => "kill primary, etcd's leader",
            Fault::KillPrimaryWithoutHome => "kill primary without etcd",
            Fault::KillMember => "kill member",
            Fault::StopPrimary => "stop primary",
            Fault::StopMember => "stop member",
            Fault::StopBothMembers => "stop both members",
            Fault::FreezeCore => "freeze one core",
            Fault::CutPair => "cut pair",
            Fault::CutOneWay => "cut one way",
            Fault::CutOffPrimary => "cut off primary",
            Fault::CutOffMachine => "cut off machine",
            Fault::CutFromHome => "cut from etcd",
            Fault::LoseHomeAnswers => "lose etcd's answers",
            Fault::LoseHome => "etcd without quorum",
            Fault::LoseHomeAndStopMember => "no quorum, member stopped",
            Fault::Switch => "switch",
        }
    }

    /// Whether a node is killed.
    pub fn is_kill(self) -> bool {
        matches!(
            self,
            Fault::KillPrimary
                | Fault::KillPrimaryAndLeader
                | Fault::KillPrimaryWithoutHome
                | Fault::KillMember
        )
    }

    /// Whether the nodes are well meanwhile, so that no operation may fail.
    pub fn leaves_nodes_well(self) -> bool {
        matches!(
            self,
            Fault::CutFromHome | Fault::LoseHomeAnswers | Fault::LoseHome
        )
    }

    /// Does it, lets it last, and undoes it.
    ///
    /// # Errors
    /// The system refuses, or a node does not start.
    pub fn strike(
        self,
        nodes: &mut Nodes<'_>,
        primary: usize,
        longest: Longest,
        random: &mut Random,
    ) -> Result<(), String> {
        let more = usize::try_from(1 + random.below(NODES as u64 - 1)).expect("few");
        let member = (primary + more) % NODES;
        let others = (0..NODES).filter(move |&node| node != primary);
        let lasts = drawn(random, Duration::from_millis(300), longest.stop);
        let away = drawn(random, Duration::from_millis(100), Duration::from_secs(8));
        let home = drawn(random, Duration::from_secs(1), longest.home);
        match self {
            Fault::KillPrimary => {
                nodes.kill(primary)?;
                process::pass(away)?;
                nodes.start(primary, false)?;
            }
            Fault::KillPrimaryAndLeader => {
                let leader = nodes.etcd.leader().unwrap_or(primary);
                nodes.kill(primary)?;
                nodes.etcd.kill(leader);
                process::pass(away)?;
                nodes.etcd.heal(&nodes.network)?;
                nodes.start(primary, false)?;
            }
            Fault::KillPrimaryWithoutHome => {
                nodes.without_home(random.once_in(2))?;
                process::pass(Duration::from_millis(random.below(1_000)))?;
                nodes.kill(primary)?;
                process::pass(home)?;
                nodes.etcd.heal(&nodes.network)?;
                nodes.start(primary, false)?;
            }
            Fault::KillMember => {
                nodes.kill(member)?;
                process::pass(away)?;
                nodes.start(member, false)?;
            }
            Fault::StopPrimary => nodes.stop_for(&[primary], lasts)?,
            Fault::StopMember => nodes.stop_for(&[member], lasts)?,
            Fault::StopBothMembers => {
                let both: Vec<usize> = others.collect();
                nodes.stop_for(&both, lasts)?;
            }
            Fault::FreezeCore => {
                let shard = random.below(nodes.shards(primary).into());
                let process = nodes.server(primary).id();
                let thread = process::thread_of(process, &format!("penstock-{shard}"))?;
                process::freeze_thread(thread, lasts)?;
            }
            Fault::CutPair => {
                nodes.network.cut_direct(primary, member, Traffic::Links)?;
                nodes.network.cut_direct(member, primary, Traffic::Links)?;
                process::pass(lasts)?;
            }
            Fault::CutOneWay => {
                let (from, to) = match random.below(3) {
                    0 => (primary, member),
                    1 => (member, primary),
                    // Between the two members.
                    _ => (member, NODES - primary - member),
                };
                nodes.network.cut_direct(from, to, Traffic::Links)?;
                process::pass(lasts)?;
            }
            Fault::CutOffPrimary | Fault::CutOffMachine => {
                let traffic = match self {
                    Fault::CutOffMachine => Traffic::All,
                    _ => Traffic::Links,
                };
                for other in others {
                    nodes.network.cut_direct(primary, other, traffic)?;
                    nodes.network.cut_direct(other, primary, traffic)?;
                }
                process::pass(lasts)?;
            }
            Fault::CutFromHome | Fault::LoseHomeAnswers => {
                let node = [primary, member][usize::from(random.once_in(2))];
                let is_answers = self == Fault::LoseHomeAnswers;
                nodes.network.cut_port(node, port_of(node), is_answers)?;
                process::pass(lasts)?;
            }
            Fault::LoseHome => {
                nodes.without_home(random.once_in(2))?;
                process::pass(home)?;
                nodes.etcd.heal(&nodes.network)?;
            }
            Fault::LoseHomeAndStopMember => {
                nodes.without_home(random.once_in(2))?;
                nodes.stop_for(&[member], lasts)?;
                nodes.etcd.heal(&nodes.network)?;
            }
            Fault::Switch => nodes.switch(member)?,
        }
        nodes.network.heal()
    }
}

impl Nodes<'_> {
    /// Takes two members of etcd, or all three.
    fn without_home(&mut self, is_whole: bool) -> Result<(), String> {
        let least = usize::from(!is_whole);
        (least..NODES).for_each(|member| self.etcd.kill(member));
        match self.etcd.leader() {
            None => Ok(()),
            // The last one has not noticed yet.
            Some(_) => process::pass(Duration::from_millis(100)),
        }
    }

    /// Lets nodes stand still.
    fn stop_for(&mut self, which: &[usize], time: Duration) -> Result<(), String> {
        for &node in which {
            self.server(node).signal("-STOP")?;
        }
        let passed = process::pass(time);
        for &node in which {
            self.server(node).signal("-CONT")?;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_by_its_name_and_another_word_is_refused_with_the_names_there_are() {
        for fault in DRAWN.into_iter().chain([Fault::LoseHomeAndStopMember]) {
            assert_eq!(Fault::named(fault.name()), Ok(fault));
        }
        let message = Fault::named("flood").expect_err("there is none");
        assert!(message.starts_with("\"flood\" is not a fault of failover"));
        assert!(
            message.ends_with("switch; no quorum, member stopped"),
            "{message}"
        );
    }
}

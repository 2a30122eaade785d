//! Messages of channels between three nodes come once, in the order of their publisher. Nobody
//! waits for a node that is gone, stands still or is of an earlier build.

use std::collections::BTreeMap;
use std::fmt::Write;

use penstock_net::link::frame::LINK_VERSION_MANY_PARTS;

use super::nodes::{Server, is_within_patience, until};
use super::resp::{Nodes, start, stop};
use crate::process::beside_clusters;
use crate::resp::Talk;

fn subscribed(nodes: &Nodes, node: usize, channel: &str) -> Talk {
    let mut talk = Talk::with(nodes.resp[node]);
    let reply = talk.ask(&["SUBSCRIBE", channel]);
    assert!(reply.contains("subscribe"), "{reply}");
    talk
}

/// The payload of the next message.
fn next(talk: &mut Talk) -> String {
    let reply = String::from_utf8(talk.reply()).expect("text");
    assert!(reply.starts_with("*3\r\n$7\r\nmessage\r\n"), "{reply:?}");
    let words: Vec<&str> = reply.split("\r\n").collect();
    words[words.len() - 2].to_string()
}

/// Waits until what each of these publishes reaches each of these subscribers.
fn until_all_are_reached(nodes: &Nodes, publishers: &[usize], subscribers: &[usize]) {
    for (&from, &to) in publishers
        .iter()
        .flat_map(|from| subscribers.iter().map(move |to| (from, to)))
    {
        let (mut publisher, mut subscriber) =
            (Talk::with(nodes.resp[from]), subscribed(nodes, to, "probe"));
        subscriber.never_waits();
        until(
            &format!("node {} reaches node {}", from + 1, to + 1),
            || {
                publisher.ask(&["PUBLISH", "probe", "m"]);
                std::thread::sleep(std::time::Duration::from_millis(20));
                subscriber.has_reply()
            },
        );
    }
}

/// Takes so many messages of each of so many publishers, which come in the order of each.
fn takes_in_order(talk: &mut Talk, publishers: usize, each: usize) {
    let mut seen = BTreeMap::new();
    for _ in 0..publishers * each {
        let payload = next(talk);
        let (publisher, number) = payload.split_once(' ').expect("two words");
        let expected: &mut usize = seen.entry(publisher.to_string()).or_default();
        assert_eq!(number, expected.to_string(), "{payload}");
        *expected += 1;
    }
    assert_eq!(seen.len(), publishers);
}

/// Takes messages, each with a number that is higher than that of the one before, until one that is
/// the last, or until the connection is ended because too many come at once; how many there were.
fn takes_until_the_last(talk: &mut Talk) -> usize {
    let (mut before, mut taken) = (None, 0);
    loop {
        let reply = String::from_utf8(talk.reply()).expect("text");
        let payload = reply.split("\r\n").nth(6).unwrap_or("last ");
        let (number, _) = payload.split_once(' ').expect("a number");
        if number == "last" {
            return taken;
        }
        let number: usize = number.parse().expect("a number");
        assert!(before.is_none_or(|before| before < number), "{number}");
        (before, taken) = (Some(number), taken + 1);
    }
}

fn lost(server: &Server) -> f64 {
    server.number("penstock_channel_messages_lost_total", &[])
}

#[test]
fn what_is_published_at_a_node_reaches_subscribers_of_all_nodes_once_and_in_order() {
    let _clusters = beside_clusters();
    let nodes = start("cluster-channels");
    let all = [0, 1, 2];
    until_all_are_reached(&nodes, &all, &all);
    let mut subscribers: Vec<Talk> = (0..6)
        .map(|it| subscribed(&nodes, it % 3, "news"))
        .collect();
    let (publishers, each) = (6, 2_000);
    std::thread::scope(|scope| {
        for publisher in 0..publishers {
            let address = nodes.resp[publisher % 3];
            scope.spawn(move || {
                let mut talk = Talk::with(address);
                for number in 0..each {
                    let payload = format!("{publisher} {number}");
                    // The receivers of this node alone.
                    assert_eq!(talk.ask(&["PUBLISH", "news", &payload]), ":2\r\n");
                }
            });
        }
        for talk in &mut subscribers {
            scope.spawn(move || takes_in_order(talk, publishers, each));
        }
    });
    // Patterns, transactions and scripts; nothing came twice.
    let mut talk = Talk::with(nodes.resp[0]);
    let mut by_pattern = Talk::with(nodes.resp[2]);
    by_pattern.ask(&["PSUBSCRIBE", "n?ws"]);
    talk.ask(&["MULTI"]);
    talk.ask(&["SET", "{b}stock", "1"]);
    talk.ask(&["PUBLISH", "news", "exec"]);
    assert_eq!(talk.ask(&["EXEC"]), "*2\r\n+OK\r\n:2\r\n");
    let script = "return redis.call('PUBLISH', 'news', ARGV[1])";
    assert_eq!(
        talk.ask(&["EVAL", script, "1", "{b}stock", "script"]),
        ":2\r\n"
    );
    for talk in &mut subscribers {
        assert_eq!((next(talk), next(talk)), ("exec".into(), "script".into()));
    }
    let reply = String::from_utf8(by_pattern.reply()).expect("text");
    assert!(
        reply.contains("pmessage") && reply.contains("exec"),
        "{reply}"
    );
    // What is published to a slot stays at its node.
    let mut sharded = Talk::with(nodes.resp[0]);
    sharded.ask(&["SSUBSCRIBE", "{b}"]);
    let moved = subscribes_elsewhere(&nodes);
    assert!(moved.starts_with("-MOVED "), "{moved}");
    assert_eq!(talk.ask(&["SPUBLISH", "{b}", "m"]), ":1\r\n");
    assert_eq!(nodes.servers.iter().map(lost).sum::<f64>(), 0.0);
    stop(nodes);
}

fn subscribes_elsewhere(nodes: &Nodes) -> String {
    Talk::with(nodes.resp[1]).ask(&["SSUBSCRIBE", "{b}"])
}

#[test]
fn a_node_that_is_gone_or_stands_still_keeps_no_publisher_waiting_and_gets_nothing_twice() {
    let _clusters = beside_clusters();
    let mut nodes = start("cluster-channels-gone");
    until_all_are_reached(&nodes, &[0], &[1, 2]);
    let mut publisher = Talk::with(nodes.resp[0]);
    let mut second = subscribed(&nodes, 1, "news");
    let mut third = subscribed(&nodes, 2, "news");
    let reader = std::thread::spawn(move || takes_until_the_last(&mut third));
    // Node 3 reads nothing: more than sockets and its queue hold is lost for it alone.
    nodes.servers[2].freeze();
    let payload = "x".repeat(15_000);
    let mut sent = 0;
    let is_lost = is_within_patience(|| {
        for _ in 0..50 {
            let mut numbered = format!("{sent} ");
            write!(numbered, "{payload}").expect("a string");
            assert_eq!(publisher.ask(&["PUBLISH", "news", &numbered]), ":0\r\n");
            assert!(next(&mut second).starts_with(&format!("{sent} ")));
            sent += 1;
        }
        lost(&nodes.servers[0]) > 0.0
    });
    assert!(is_lost, "{sent} messages were sent");
    nodes.servers[2].signal("-CONT");
    until_all_are_reached(&nodes, &[0], &[2]);
    publisher.ask(&["PUBLISH", "news", "last "]);
    let taken = reader.join().expect("in order");
    assert!(taken < sent, "something was lost");
    assert_eq!(next(&mut second), "last ");

    // Node 3 is killed, and comes back.
    let third = nodes.servers.pop().expect("three");
    drop(third);
    assert_eq!(publisher.ask(&["PUBLISH", "news", "without"]), ":0\r\n");
    assert_eq!(next(&mut second), "without");
    let listen = nodes.resp[2].to_string();
    nodes
        .servers
        .push(nodes.cluster.start(3, &["--resp-listen", &listen]));
    until_all_are_reached(&nodes, &[0, 1], &[2]);
    until_all_are_reached(&nodes, &[2], &[0, 1]);
    let mut third = subscribed(&nodes, 2, "news");
    publisher.ask(&["PUBLISH", "news", "with"]);
    assert_eq!(
        (next(&mut second), next(&mut third)),
        ("with".into(), "with".into())
    );
    stop(nodes);
}

#[test]
fn a_node_of_an_earlier_build_gets_no_messages_until_it_is_upgraded() {
    let _clusters = beside_clusters();
    let mut nodes = start("cluster-channels-upgrade");
    let listen = nodes.resp[2].to_string();
    let words = ["--resp-listen", listen.as_str()];
    drop(nodes.servers.pop());
    let earlier = LINK_VERSION_MANY_PARTS.into();
    let third = nodes.cluster.start_earlier_with(3, earlier, &words);
    until("node 1 says so", || {
        nodes.servers[0].has_said("it takes none, as an earlier build")
    });
    let mut early = subscribed(&nodes, 2, "news");
    until_all_are_reached(&nodes, &[0], &[0, 1]);
    let mut publisher = Talk::with(nodes.resp[0]);
    assert_eq!(publisher.ask(&["PUBLISH", "news", "m"]), ":0\r\n");
    let mut at_third = Talk::with(nodes.resp[2]);
    assert_eq!(at_third.ask(&["PUBLISH", "news", "own"]), ":1\r\n");
    assert_eq!(next(&mut early), "own");
    drop(third);
    nodes.servers.push(nodes.cluster.start(3, &words));
    // Much sooner than it is asked again by itself.
    until_all_are_reached(&nodes, &[0, 1], &[2]);
    until_all_are_reached(&nodes, &[2], &[0, 1]);
    stop(nodes);
}

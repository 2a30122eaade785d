//! What scripts publish at a node with a member: it leaves with the answer, or not at all.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use penstock_net::limits::Limits;
use penstock_net::resp::{Client, Conversation};
use penstock_shard::publisher::{NoRoom, Posted, Publisher};

use crate::interpreter::Lines;
use crate::leases::Pair;
use crate::level_all::linked;
use crate::rights::resp::Still;
use crate::scripts::command;

/// What has left, and how many messages have their room.
#[derive(Debug, Default)]
struct Seen {
    left: Vec<String>,
    kept: usize,
    /// Messages that may have room at a time.
    most: usize,
}

struct Channel(Rc<RefCell<Seen>>);

#[derive(Debug)]
struct Post(Rc<RefCell<Seen>>, String);

impl Publisher for Channel {
    fn receivers(&self, channel: &[u8]) -> usize {
        usize::from(channel != b"nobody")
    }

    fn steps(&self, channel: &[u8]) -> usize {
        channel.len() << 20
    }

    fn post(&self, channel: &[u8], payload: &[u8]) -> Result<Option<Box<dyn Posted>>, NoRoom> {
        if self.receivers(channel) == 0 {
            return Ok(None);
        }
        let mut seen = self.0.borrow_mut();
        if seen.kept == seen.most {
            return Err(NoRoom);
        }
        seen.kept += 1;
        let text = String::from_utf8_lossy(payload).into_owned();
        Ok(Some(Box::new(Post(Rc::clone(&self.0), text))))
    }
}

impl Posted for Post {
    fn send(self: Box<Self>) {
        self.0.borrow_mut().left.push(self.1.clone());
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.0.borrow_mut().kept -= 1;
    }
}

/// A connection of the RESP port at the first of two nodes, which wants level `replica`.
struct Talk {
    pair: Pair,
    conversation: Conversation,
    host: Still,
    seen: Rc<RefCell<Seen>>,
}

impl Talk {
    fn new() -> Talk {
        let mut pair = linked();
        let seen = Rc::new(RefCell::new(Seen {
            most: 4,
            ..Seen::default()
        }));
        let server = &mut pair.nodes[0].server;
        let execution = server.shard.execution_mut();
        execution.serve_scripts(Box::new(Lines));
        execution.serve_publisher(Box::new(Channel(Rc::clone(&seen))));
        server.session = server
            .shard
            .front_mut()
            .open_session_translated(server.now, 0);
        server.raw = Some(Vec::new());
        server.inbox = Conversation::greeting();
        server.hand_over();
        let mut talk = Talk {
            pair,
            conversation: Conversation::new(Client::default(), Limits::default(), true),
            host: Still {
                joined_cores: 0,
                schema: Arc::default(),
                unix_us: 1,
            },
            seen,
        };
        talk.send(&["KV.OPTS level=replica"]);
        talk.pair.settle();
        talk.replies();
        talk
    }

    /// Sends commands; the turn of the node ends on its disk.
    fn send(&mut self, lines: &[&str]) {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        let server = &mut self.pair.nodes[0].server;
        let mut frame = Vec::new();
        let taken = self.conversation.take(&bytes, &mut frame, &self.host);
        assert_eq!(taken, bytes.len());
        server.inbox.extend(frame);
        server.hand_over();
        server.settle();
    }

    /// What has come of replies.
    fn replies(&mut self) -> String {
        let raw = self.pair.nodes[0].server.raw.replace(Vec::new());
        self.conversation.answered(&raw.expect("kept"), &self.host);
        let out = std::mem::take(self.conversation.out());
        String::from_utf8(out).expect("text").replace("\r\n", " ")
    }

    fn left(&self) -> Vec<String> {
        self.seen.borrow().left.clone()
    }
}

const QUEUED: &str = "+OK +QUEUED +QUEUED ";

#[test]
fn what_exec_publishes_leaves_with_its_answer_when_the_member_has_the_change() {
    let mut talk = Talk::new();
    talk.send(&["MULTI", "SET {shop}0 v", "PUBLISH c changed", "EXEC"]);
    assert_eq!(talk.replies(), QUEUED);
    assert!(talk.left().is_empty(), "the disk here has it alone");
    talk.pair.settle();
    assert_eq!(talk.replies(), "*2 +OK :1 ");
    assert_eq!(talk.left(), ["changed"]);
    // A script that changes no key publishes, too.
    talk.send(&["MULTI", "GET {shop}0", "PUBLISH c read", "EXEC"]);
    talk.pair.settle();
    assert_eq!(talk.replies(), format!("{QUEUED}*2 $1 v :1 "));
    talk.send(&["EVAL last 1 {shop}0 GET~K PUBLISH~c~script"]);
    talk.pair.settle();
    assert_eq!(talk.replies(), ":1 ");
    talk.send(&["EVAL last 1 {shop}0 SET~K~v PUBLISH~c~same"]);
    talk.pair.settle();
    assert_eq!(talk.replies(), ":1 ");
    assert_eq!(talk.left(), ["changed", "read", "script", "same"]);
    assert_eq!(talk.seen.borrow().kept, 0);
}

#[test]
fn what_exec_publishes_does_not_leave_when_no_member_has_confirmed_in_time() {
    let mut talk = Talk::new();
    talk.pair.unlink();
    talk.send(&["MULTI", "SET {shop}0 v", "PUBLISH c lost", "EXEC"]);
    talk.pair.settle();
    assert_eq!(talk.replies(), QUEUED);
    assert_eq!(talk.seen.borrow().kept, 1);
    talk.pair.nodes[0].server.now.us += 1_000_000;
    talk.pair.settle();
    let refused = talk.replies();
    assert!(refused.starts_with("-NOREPLICAS"), "{refused}");
    assert!(talk.left().is_empty());
    assert_eq!(talk.seen.borrow().kept, 0, "its room is given back");
}

#[test]
fn exec_is_busy_before_it_runs_if_a_message_has_no_room_and_none_is_needed_for_nobody() {
    let mut talk = Talk::new();
    talk.seen.borrow_mut().most = 0;
    talk.send(&["MULTI", "SET {shop}7 v", "PUBLISH c m", "EXEC"]);
    talk.pair.settle();
    let refused = talk.replies();
    assert!(refused.contains("BUSY nothing was executed"), "{refused}");
    talk.send(&["MULTI", "GET {shop}7", "PUBLISH nobody m", "EXEC"]);
    talk.pair.settle();
    assert_eq!(talk.replies(), format!("{QUEUED}*2 $-1 :0 "));
}

#[test]
fn a_script_publishes_no_more_when_patterns_have_taken_many_steps() {
    let mut talk = Talk::new();
    // The names of channels take 3 and 2 MiB of steps.
    let run = "EVAL all 1 {shop}0 PUBLISH~abc~1 PUBLISH~ab~2 PUBLISH~a~3";
    talk.send(&[run]);
    talk.pair.settle();
    let replies = talk.replies();
    assert!(
        replies.starts_with("*3 :1 :1 -ERR the patterns"),
        "{replies}"
    );
    assert_eq!(talk.left(), ["1", "2"]);
}

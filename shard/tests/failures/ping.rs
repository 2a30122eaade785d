//! PING as an item of a batch: the value comes back, and the store is not asked.

use penstock_net::request::{Verb, Version};
use penstock_net::status::Status;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::{Server, VALUE_BYTES_MAX};

fn open() -> Server {
    Server::open(SyncMethod::DurableWrite, Image::default(), 1, None).expect("it opens")
}

#[test]
fn a_ping_brings_back_each_value_that_a_key_may_have() {
    let mut server = open();
    for (id, len) in [0, 1, 7, 8, 64, 1_500].into_iter().enumerate() {
        let value = vec![0xA5; len];
        server.send(id, |batch, out| batch.ping(out, &value));
        server.settle();
        let reply = &server.replies[&id];
        assert_eq!(
            (reply.status, reply.version),
            (Status::Ok, Version::default())
        );
        assert_eq!(reply.value, value);
    }
    let answers = server.counters().answers;
    assert_eq!(answers.of(Verb::Ping).of(Status::Ok), 6);
    assert_eq!(answers.total(), 6);
}

#[test]
fn a_ping_with_a_value_beyond_the_limit_is_refused() {
    let mut server = open();
    let long = vec![1; VALUE_BYTES_MAX as usize + 1];
    server.send(1, |batch, out| batch.ping(out, &long));
    server.settle();
    assert_eq!(server.replies[&1].status, Status::TooLarge);
}

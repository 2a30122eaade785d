//! Both sides of HELLO.
//!
//! An input is one byte (whose HELLO the rest is) and the body.

use penstock_net::frame::HEADER_BYTES;
use penstock_net::hello::{ClientHello, ServerHello};

use crate::target::Choices;
use crate::{check_refusal, without_memory};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let is_client = choices.byte().is_multiple_of(2);
    let body = choices.rest();
    if is_client {
        client(body);
    } else {
        server(body);
    }
}

fn client(body: &[u8]) {
    match without_memory(|| ClientHello::read(body)) {
        Ok(hello) => {
            let mut again = Vec::new();
            hello.write(&mut again, 7);
            assert_eq!(
                again[HEADER_BYTES..],
                *body,
                "a client's HELLO has one form"
            );
        }
        Err(refusal) => check_refusal(refusal),
    }
}

fn server(body: &[u8]) {
    let mut hello = None;
    let used = allocation_counter::measure(|| hello = Some(ServerHello::read(body)));
    assert!(
        // The address of a node takes 8 bytes and up to 7 more than its length, and is a text of
        // its own.
        used.bytes_max <= 3 * body.len() as u64,
        "{} bytes for a body of {}",
        used.bytes_max,
        body.len()
    );
    match hello.expect("it ran") {
        // Fields that a later version appends are passed over, so only the meaning is compared.
        Ok(hello) => {
            let mut again = Vec::new();
            hello.write(&mut again, 7);
            assert_eq!(ServerHello::read(&again[HEADER_BYTES..]), Ok(hello));
        }
        Err(refusal) => check_refusal(refusal),
    }
}

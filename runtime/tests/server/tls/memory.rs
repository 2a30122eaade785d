//! What a connection with TLS owns while nothing passes through it.

use super::*;

/// What the server counts a connection with TLS as.
const COUNTED_BYTES: u64 = 64 << 10;
const CONNECTIONS: u64 = 200;
const VALUE_BYTES: usize = 60_000;

fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a number") * 1024
}

/// Writes a long value and reads it back.
fn pass_a_value(stream: &mut TlsStream) {
    let value = "v".repeat(VALUE_BYTES);
    let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${VALUE_BYTES}\r\n{value}\r\n");
    let get = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    stream.write_all((set + get).as_bytes()).expect("sent");
    let mut answer = vec![0; format!("+OK\r\n${VALUE_BYTES}\r\n{value}\r\n").len()];
    stream.read_exact(&mut answer).expect("both answers");
    assert!(answer.starts_with(b"+OK\r\n$60000\r\nvvv") && answer.ends_with(b"vvv\r\n"));
}

#[test]
fn an_idle_connection_with_tls_keeps_no_more_than_it_counts_as_whatever_has_passed_through_it() {
    let _one = crate::process::the_machine();
    let folder = Folder::new("memory");
    let authority = Authority::new("ca");
    let flags = ["--resp-listen", "127.0.0.1:0", "--durability", "none"];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let (tls, resp) = (authority.trusted(), server.resp.expect("a port of RESP"));
    let process = server.process.id();
    let mut all = Vec::new();
    let mut before = 0;
    // The first half touches the memory of values and of buffers that are lent, so that the second
    // half shows what connections own.
    for _ in 0..2 {
        before = resident_bytes(process);
        for _ in 0..CONNECTIONS {
            let mut stream = server.stream(&tls, resp);
            pass_a_value(&mut stream);
            all.push(stream);
        }
        // Longer than a connection keeps room after bytes came.
        std::thread::sleep(Duration::from_secs(3));
    }
    let most = before + CONNECTIONS * COUNTED_BYTES;
    let until = Instant::now() + LONG;
    while resident_bytes(process) > most {
        let each = (resident_bytes(process) - before) / CONNECTIONS;
        assert!(Instant::now() < until, "each connection keeps {each} bytes");
        std::thread::sleep(Duration::from_millis(50));
    }
    all.iter_mut().for_each(pass_a_value);
}

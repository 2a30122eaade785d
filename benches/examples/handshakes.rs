//! Handshakes of TLS against a server, as fast as one thread goes or so many a second.
//!
//!     cargo run --release -p penstock-benches --example handshakes -- ADDRESS CA SECONDS [RATE]
//!
//! Prints how many there were a second, and the CPU time of this thread for one.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use penstock_benches::Stream;
use penstock_client::tls::ClientTls;

/// How long one handshake may take.
const PATIENCE: Duration = Duration::from_secs(3);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, ca, seconds, rest @ ..] = &arguments[..] else {
        eprintln!("handshakes ADDRESS CA SECONDS [RATE]");
        std::process::exit(2);
    };
    let target: SocketAddr = address.parse().expect("HOST:PORT");
    let tls = ClientTls::trusting(&std::fs::read(ca).expect("a file")).expect("a CA");
    let time = Duration::from_secs_f64(seconds.parse().expect("seconds"));
    let rate: Option<f64> = rest.first().map(|it| it.parse().expect("a rate"));
    let begun = Instant::now();
    let (mut made, mut failed) = (0_u32, 0_u32);
    while begun.elapsed() < time {
        if let Some(rate) = rate {
            let due = Duration::from_secs_f64(f64::from(made + failed) / rate);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        let stream = TcpStream::connect(target).expect("it listens");
        let _ = stream.set_nodelay(true);
        match Stream::open(Some(&tls), address, stream, PATIENCE) {
            Ok(_) => made += 1,
            Err(_) => failed += 1,
        }
    }
    let per_second = f64::from(made) / begun.elapsed().as_secs_f64();
    let cpu_us = cpu_time().as_secs_f64() * 1e6 / f64::from(made.max(1));
    println!("{per_second:.0} {failed} {cpu_us:.0}");
}

/// The CPU time of this process so far, by the kernel's account.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|it| it.parse().ok());
    Duration::from_nanos(ns.unwrap_or_default())
}

//! A server whose disk becomes full, as its operator meets it before.

use std::sync::{Arc, Mutex};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// What a server says on standard error, as it comes.
struct Said(Arc<Mutex<String>>);

impl Said {
    fn of(server: &mut Server) -> Said {
        let mut errors = BufReader::new(server.process.stderr.take().expect("piped"));
        let said = Said(Arc::default());
        let text = Arc::clone(&said.0);
        std::thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                *text.lock().expect("no panic") += &std::mem::take(&mut line);
            }
        });
        said
    }

    /// The percentages of all notices that there are.
    fn percents(&self) -> Vec<u64> {
        let said = self.0.lock().expect("no panic");
        let notices = said
            .lines()
            .filter_map(|line| line.split_once(" % of what the disk carries counts"));
        notices
            .map(|(before, _)| before.rsplit(' ').next().expect("a word"))
            .map(|percent| percent.parse().expect("a number"))
            .collect()
    }
}

/// What counts, with how much the disk is full, and whether it is.
fn fill(client: &Client) -> (u64, u64, u64) {
    let info = client.info().wait().expect("info");
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let of = |name: &str| info["counters"][name].as_u64().expect("a number");
    (
        of("counting_bytes"),
        of("counting_bytes_max"),
        of("disk_full"),
    )
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn log_and_figures_show_that_a_disk_becomes_full_before_anything_is_refused() {
    let value = vec![7; 60_000];
    let folder = Folder::new("filling");
    let flags = ["--shards", "1", "--disk-bytes-max", "80MiB"];
    let mut server = Server::start(&folder.0, &flags);
    let said = Said::of(&mut server);
    let client = server.client();
    let set = |number: u64| client.set(&number.to_le_bytes(), &value).wait();
    set(0).expect("set");
    wait_until("what the disk carries is not known", || fill(&client).1 > 0);
    // The disk is used up to 84 % of what makes it full, by keys that are overwritten, too.
    let most = fill(&client).1;
    assert!((40 << 20..80 << 20).contains(&most), "{most}");
    let keys = most * 84 / 100 / value.len() as u64;
    for number in (0..keys).flat_map(|number| [number, number / 2]) {
        set(number).expect("nothing is refused yet");
    }
    wait_until("nothing is told at 80 %", || !said.percents().is_empty());
    let percents = said.percents();
    assert!(
        percents.iter().all(|it| (80..90).contains(it)),
        "{percents:?}"
    );
    let (counting, most, is_full) = fill(&client);
    assert!(counting * 100 >= most * 80, "{counting} of {most}");
    assert_eq!(is_full, 0);
    for number in keys.. {
        let Err(refused) = set(number) else {
            assert!(number < 3 * keys, "the disk is never full");
            continue;
        };
        assert!(refused.to_string().contains("FULL"), "{refused}");
        break;
    }
    wait_until("nothing is told at 90 %", || {
        said.percents().iter().any(|&it| it >= 90)
    });
    assert_eq!(said.percents().len(), 2, "each is told once");
    // Deletions bring it back, and the figures follow.
    for number in 0..keys {
        client
            .del(&number.to_le_bytes())
            .wait()
            .expect("a deletion");
    }
    wait_until("the figures do not fall", || {
        let (counting, most, _) = fill(&client);
        counting * 100 < most * 80
    });
}

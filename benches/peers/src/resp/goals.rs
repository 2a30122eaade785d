//! What the RESP port is to reach beside its peers, and what it reaches.

use super::field::{Entrant, Sample};
use crate::contender::{Class, Product};
use crate::goal::{Found, Goal, Wanted};
use crate::pairs::median;

type Figure = fn(&Sample) -> f64;

const RATE: Figure = |it| it.told.per_second;
const CPU: Figure = |it| it.cpu_us;
const BUSY: Figure = |it| it.busy;
const P50: Figure = |it| it.told.p50_us;
const WRITTEN: Figure = |it| it.written_bytes;

/// A server that is busy for less of the time than this waits for something else.
const BUSY_LEAST: f64 = 0.9;

/// A product and its class.
type Side = (Product, Class);

/// Goals that compare one figure of one load: number, load, figure, our class, peer and its class,
/// bound of the ratio.
const TABLE: &str = "\
1|DECR P128|op/s|S|Valkey V|>=1.2
1|DECR P128|op/s|S|Valkey S|>=3
1|DECR P128|op/s|S|kevy S|>=1.5
1|DECR P16|CPU us/op|S|Valkey S|<=0.75
1|DECR P16|CPU us/op|S|Valkey V|<=0.75
2|GET P128|op/s|V|Valkey V|>=1.5
2|GET P128|op/s|E|Valkey E|>=1.5
2|GET P128|op/s|S|Valkey S|>=1.5
2|SET P128|op/s|V|Valkey V|>=1.5
2|SET P128|op/s|E|Valkey E|>=1.5
2|SET P128|op/s|S|Valkey S|>=1.5
3|DECR P1|op/s|S|Valkey S|>=1.5
3|DECR P1|CPU us/op|S|Valkey S|<=0.75
4|GET one client|op/s|S|kevy S|>=1
5|DECR P1|written B/op|S|Redis S|<=0.5
5|DECR P16|written B/op|S|Redis S|<=0.5
5|DECR P128|written B/op|S|Redis S|<=0.5";

/// A line of the table.
struct Line {
    number: &'static str,
    work: &'static str,
    unit: &'static str,
    figure: Figure,
    ours: Side,
    peer: Side,
    wanted: Wanted,
}

impl Line {
    fn all() -> impl Iterator<Item = Line> {
        TABLE
            .lines()
            .map(|line| Line::read(line).expect("the table above is whole"))
    }

    fn read(line: &'static str) -> Option<Line> {
        let mut fields = line.split('|');
        let mut next = || fields.next();
        let (number, work, unit) = (next()?, next()?, next()?);
        let ours = (Product::Penstock, class(next()?)?);
        let (product, letter) = next()?.split_once(' ')?;
        let bound = next()?;
        Some(Line {
            number,
            work,
            unit,
            figure: match unit {
                "op/s" => RATE,
                "CPU us/op" => CPU,
                "written B/op" => WRITTEN,
                _ => return None,
            },
            ours,
            peer: (Product::of(product)?, class(letter)?),
            wanted: match (bound.strip_prefix(">="), bound.strip_prefix("<=")) {
                (Some(least), _) => Wanted::AtLeast(least.parse().ok()?),
                (_, Some(most)) => Wanted::AtMost(most.parse().ok()?),
                _ => return None,
            },
        })
    }

    fn what(&self) -> String {
        let (product, class) = self.peer;
        format!(
            "{}, {}, beside {} {}",
            self.work,
            self.ours.1.letter(),
            product.name(),
            class.letter()
        )
    }
}

fn class(letter: &str) -> Option<Class> {
    Class::ALL
        .into_iter()
        .find(|class| letter.starts_with(class.letter()))
}

fn entrant(entrants: &[Entrant], (product, class): Side, shards: u64) -> Option<&Entrant> {
    entrants
        .iter()
        .find(|it| (it.product, it.class, it.shards) == (product, class, shards))
}

fn figures(
    entrants: &[Entrant],
    who: Side,
    shards: u64,
    work: &str,
    figure: Figure,
) -> Result<Vec<f64>, String> {
    let entrant = entrant(entrants, who, shards).ok_or("it took no part")?;
    let told = entrant.figures(work, figure);
    told.map_err(|why| format!("{}: {why}", entrant.name()))
}

/// Where a rate is compared and a server had CPU left: how busy both were, and how they compare by
/// CPU, for then the load or the disk was the limit.
fn remark(entrants: &[Entrant], line: &Line) -> String {
    let middle = |side, figure| {
        let found = figures(entrants, side, 1, line.work, figure);
        found.map(|mut figures| median(&mut figures))
    };
    let of = |figure| Ok::<_, String>((middle(line.ours, figure)?, middle(line.peer, figure)?));
    match (of(BUSY), of(CPU)) {
        (Ok((ours, theirs)), Ok((our_cpu, their_cpu)))
            if line.unit == "op/s" && ours.min(theirs) < BUSY_LEAST && our_cpu > 0.0 =>
        {
            format!(
                "CPUs busy {ours:.2} and {theirs:.2}: the load or the disk is a limit; operations \
                 by CPU second {:.2} of the peer's",
                their_cpu / our_cpu
            )
        }
        _ => String::new(),
    }
}

/// The table of goals 1 to 5, and 8. `sync_us` is what a sync of the disk took in each round.
pub fn of(entrants: &[Entrant], sync_us: &[f64]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Line::all()
        .map(|line| Goal {
            number: line.number,
            what: line.what(),
            unit: line.unit,
            wanted: line.wanted,
            remark: remark(entrants, &line),
            found: figures(entrants, line.ours, 1, line.work, line.figure).and_then(|us| {
                let them = figures(entrants, line.peer, 1, line.work, line.figure)?;
                Found::of(&us, &them)
            }),
        })
        .collect();
    let synced = (Product::Penstock, Class::Synced);
    goals.push(Goal {
        number: "4",
        what: "DECR of one client, S: p50 beside the disk's 4 KiB sync and an echo".into(),
        unit: "us",
        wanted: Wanted::AtMost(1.15),
        remark: String::new(),
        found: figures(entrants, synced, 1, "DECR one client", P50).and_then(|us| {
            let echo = figures(entrants, synced, 1, "PING one client", P50)?;
            let least: Vec<f64> = echo.iter().zip(sync_us).map(|(a, b)| a + b).collect();
            Found::of(&us, &least)
        }),
    });
    for work in ["SET P128", "GET P128"] {
        let per_second_of_cpu =
            |cpu_us: Vec<f64>| -> Vec<f64> { cpu_us.into_iter().map(|it| 1e6 / it).collect() };
        goals.push(Goal {
            number: "8",
            what: format!("{work}, S: two shards on two cores beside one shard"),
            unit: "op/CPU s",
            wanted: Wanted::AtLeast(0.8),
            remark: "the second core is that of the load".into(),
            found: figures(entrants, synced, 2, work, CPU).and_then(|two| {
                let one = figures(entrants, synced, 1, work, CPU)?;
                Found::of(&per_second_of_cpu(two), &per_second_of_cpu(one))
            }),
        });
    }
    goals.sort_by_key(|goal| goal.number);
    goals
}

/// The rate of Valkey, class S, without pipelines: what the open loop is scaled by.
pub fn saturation(entrants: &[Entrant]) -> Option<f64> {
    [Product::Valkey, Product::Redis, Product::Penstock]
        .into_iter()
        .find_map(|product| figures(entrants, (product, Class::Synced), 1, "DECR P1", RATE).ok())
        .map(|mut figures| median(&mut figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_stands_in_the_table_also_when_nothing_runs() {
        let missing = |product| Entrant::missing(product, Class::Synced, "no such program is here");
        let entrants = [missing(Product::Penstock), missing(Product::Valkey)];
        let goals = of(&entrants, &[]);
        for number in ["1", "2", "3", "4", "5", "8"] {
            assert!(goals.iter().any(|goal| goal.number == number), "{number}");
        }
        for goal in &goals {
            assert_eq!(goal.verdict(), "not measured");
            assert!(goal.found.is_err());
            assert!(!goal.remark.contains("busy"), "{}", goal.remark);
        }
        let why = goals[1].found.as_ref().err().unwrap();
        assert!(
            why.contains("Penstock S") && why.contains("no such program"),
            "{why}"
        );
        assert_eq!(saturation(&entrants), None);
    }

    #[test]
    fn a_rate_of_servers_that_had_cpu_left_says_so_and_compares_their_cpu() {
        let with = |product, cpu_us, busy| {
            let mut entrant = Entrant::missing(product, Class::Synced, "killed at the end");
            entrant
                .samples
                .insert("DECR P1", vec![Sample::of_cpu(cpu_us, busy)]);
            entrant
        };
        let line = Line::read("3|DECR P1|op/s|S|Valkey S|>=1.5").unwrap();
        let pair = |busy| {
            let both = [
                with(Product::Penstock, 2.0, busy),
                with(Product::Valkey, 4.0, 1.0),
            ];
            remark(&both, &line)
        };
        let told = pair(0.5);
        assert!(
            told.contains("busy 0.50 and 1.00") && told.contains("2.00 of the"),
            "{told}"
        );
        assert_eq!(pair(0.95), "");
    }

    #[test]
    fn classes_are_mixed_only_where_the_goal_names_both() {
        let mixed: Vec<String> = Line::all()
            .filter(|line| line.ours.1 != line.peer.1)
            .map(|line| line.what())
            .collect();
        let named = [
            "DECR P128, S, beside Valkey V",
            "DECR P16, S, beside Valkey V",
        ];
        assert_eq!(mixed, named);
    }

    #[test]
    fn lines_name_loads_that_are_run() {
        for line in Line::all() {
            let works = super::super::works(1);
            assert!(
                works.iter().any(|work| work.name == line.work),
                "{}",
                line.work
            );
        }
        assert!(Line::read("1|DECR P128|op/s|S|Nobody V|>=1.2").is_none());
    }
}

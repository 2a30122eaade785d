//! The sale in a terminal, drawn again and again, or as plain lines where there is none.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::sale::live::Snapshot;

const BAR_CHARS: u64 = 50;
/// Between two plain lines.
const LINE_PERIOD: Duration = Duration::from_secs(2);

/// How a sale is shown while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Silent,
    /// A line now and then.
    Lines,
    /// One line, written over.
    Line,
    /// Several lines, drawn anew.
    Panel,
}

pub(crate) struct Screen {
    mode: Mode,
    /// Lines of the panel that are drawn.
    drawn: usize,
    last_line: Option<Instant>,
    shown_stage: &'static str,
}

impl Screen {
    fn new(mode: Mode) -> Screen {
        Screen {
            mode,
            drawn: 0,
            last_line: None,
            shown_stage: "",
        }
    }

    /// For the demo, on standard output.
    pub(crate) fn panel() -> Screen {
        Screen::new(match std::io::stdout().is_terminal() {
            true => Mode::Panel,
            false => Mode::Lines,
        })
    }

    /// For a measurement, on standard error, if that is a terminal.
    pub(crate) fn line() -> Screen {
        Screen::new(match std::io::stderr().is_terminal() {
            true => Mode::Line,
            false => Mode::Silent,
        })
    }

    pub(crate) fn silent() -> Screen {
        Screen::new(Mode::Silent)
    }

    /// Shows the sale. A terminal that is gone does not end it.
    pub(crate) fn draw(&mut self, sale: &Snapshot) {
        match self.mode {
            Mode::Silent => {}
            Mode::Lines => {
                let is_due = self.last_line.is_none_or(|it| it.elapsed() >= LINE_PERIOD);
                if is_due || self.shown_stage != sale.stage.name() {
                    self.last_line = Some(Instant::now());
                    self.shown_stage = sale.stage.name();
                    say(line(sale));
                }
            }
            Mode::Line => {
                let _ = write!(std::io::stderr(), "\r\x1b[K{}", line(sale));
                self.drawn = 1;
            }
            Mode::Panel => {
                let panel = panel(sale);
                let mut text = String::new();
                if self.drawn > 0 {
                    let _ = write!(text, "\x1b[{}A\x1b[J", self.drawn);
                }
                self.drawn = panel.lines().count();
                text.push_str(&panel);
                let mut out = std::io::stdout();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
        }
    }

    /// Leaves the terminal for what is printed next.
    pub(crate) fn end(&mut self) {
        if self.mode == Mode::Line && self.drawn > 0 {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        self.drawn = 0;
    }
}

/// The sale in one line.
fn line(sale: &Snapshot) -> String {
    format!(
        "{:5.1} s  left {:>6}  held {:>5}  sold {:>6}  refused {:>6}  p50 {}  p99 {}  kills {}  {}",
        sale.seconds,
        sale.stock.available,
        sale.stock.held,
        sale.stock.sold,
        sale.counts.refused(),
        time(sale.p50_us),
        time(sale.p99_us),
        sale.kills.len(),
        sale.stage.name()
    )
}

/// The sale in several lines, each with its end.
fn panel(sale: &Snapshot) -> String {
    let bar = |part: u64, of: u64, color: u8| {
        let filled = (part.min(of) * BAR_CHARS).checked_div(of).unwrap_or(0);
        let rest = BAR_CHARS - filled;
        format!(
            "\x1b[{color}m{}\x1b[90m{}\x1b[0m",
            "#".repeat(usize::try_from(filled).unwrap_or(0)),
            ".".repeat(usize::try_from(rest).unwrap_or(0))
        )
    };
    let stock = sale.stock;
    let mut text = String::new();
    let rows = [
        ("units left", stock.available, stock.initial, 34),
        ("held", stock.held, stock.initial, 33),
        ("sold", stock.sold, stock.initial, 32),
        ("refused", sale.counts.refused(), sale.buyers_all.into(), 35),
        ("buyers", sale.counts.buyers, sale.buyers_all.into(), 36),
    ];
    for (name, part, of, color) in rows {
        let _ = writeln!(text, "  {name:<11}{part:>8}  {}", bar(part, of, color));
    }
    let counts = sale.counts;
    let _ = writeln!(
        text,
        "  latency    p50 {}  p99 {}      sent twice {}  cut {}  abandoned {}",
        time(sale.p50_us),
        time(sale.p99_us),
        counts.doubled,
        counts.cut,
        counts.abandoned
    );
    let kills: Vec<String> = sale
        .kills
        .iter()
        .map(|(at, away)| format!("at {at:.1} s, away {away:.2} s"))
        .collect();
    let _ = writeln!(
        text,
        "  kill -9    {}{}{}",
        sale.kills.len(),
        if kills.is_empty() { "" } else { ": " },
        kills.join("; ")
    );
    let _ = writeln!(text, "  {:5.1} s    {}", sale.seconds, sale.stage.name());
    text
}

/// Prints a line. A reader that has seen enough closes the pipe; the sale goes on to its end, and
/// its exit code tells the outcome.
pub(crate) fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

pub(crate) fn time(us: f64) -> String {
    match us {
        _ if us >= 10_000.0 => format!("{:.0} ms", us / 1000.0),
        _ if us >= 1_000.0 => format!("{:.1} ms", us / 1000.0),
        _ => format!("{us:.0} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sale::shop::Stock;

    #[test]
    fn a_panel_has_the_same_lines_at_any_time_and_bars_stay_within_theirs() {
        let mut sale = Snapshot::default();
        let lines = panel(&sale).lines().count();
        sale.stock = Stock::of(10);
        sale.stock.available = 99;
        sale.kills = vec![(1.0, 0.5); 3];
        let text = panel(&sale);
        assert_eq!(text.lines().count(), lines);
        assert!(text.lines().all(|line| line.matches('#').count() <= 50));
    }
}

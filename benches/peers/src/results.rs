//! The files that a run leaves in `benches/results`: its figures as JSON, the same as one page, and
//! an index of all runs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::Outcome;
use crate::chart::escaped;
use crate::report::{Report, Table};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fff; --faint: #d8dde4; --soft: #5b6675 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --paper: #14181e; --faint: #343c47; --soft: #9aa5b4 }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1040px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
p.machine, li.note { color: var(--soft) }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13.5px }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--faint); text-align: right }
th { font-weight: 600; vertical-align: bottom }
td.text, th.text { text-align: left } td.skipped { color: var(--soft) }
td.yes { color: #0a7d5c; font-weight: 600 } td.no { color: #cc3d3d; font-weight: 600 }
svg { width: 100%; max-width: 860px; height: auto }
svg text { font-size: 12px; fill: var(--ink) } svg .grid { stroke: var(--faint) }
figure { margin: 1.2rem 0 } figcaption { font-weight: 600 }
";

/// Where results lie: beside this harness, in the repository.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results")
}

/// The day in UTC, as `2026-11-26`.
pub fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    date(since.map_or(0, |it| it.as_secs() / 86_400))
}

/// The date of a day after the first of January 1970, by the rules of the Gregorian calendar.
fn date(days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut left) = (1970, days);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

/// Writes both files of a run and the index anew. A run of the same name and day is replaced.
/// Gives the path of the page.
pub fn write(folder: &Path, day: &str, name: &str, report: &Report) -> Outcome<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let mut json = report.json(name);
    json["date"] = day.into();
    let text = serde_json::to_string_pretty(&json)?;
    std::fs::write(folder.join(format!("{day}-{name}.json")), text + "\n")?;
    let html = folder.join(format!("{day}-{name}.html"));
    std::fs::write(&html, page(day, name, report))?;
    std::fs::write(folder.join("index.html"), index(&runs(folder)?))?;
    Ok(html)
}

/// One page without any reference to another file.
fn page(day: &str, name: &str, report: &Report) -> String {
    let mut body = format!(
        "<h1>cargo peers {}</h1><p class=\"machine\">{day}, {}</p>",
        escaped(name),
        escaped(&report.machine)
    );
    if !report.goals.is_empty() {
        table(&mut body, &report.table_of_goals());
    }
    for chart in &report.charts {
        let (title, svg) = (escaped(&chart.title), chart.svg());
        let _ = write!(
            body,
            "<figure><figcaption>{title}</figcaption>{svg}</figure>"
        );
    }
    for found in &report.tables {
        table(&mut body, found);
    }
    if !report.notes.is_empty() {
        body.push_str("<h2>Notes</h2><ul>");
        for note in &report.notes {
            let _ = write!(body, "<li class=\"note\">{}</li>", escaped(note));
        }
        body.push_str("</ul>");
    }
    document(&format!("Penstock: {name}, {day}"), &body)
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n<body>\n{body}\n</body>\n</html>\n",
        escaped(title)
    )
}

fn table(body: &mut String, table: &Table) {
    let title = escaped(&table.title);
    let _ = write!(body, "<h2>{title}</h2><div class=\"wide\"><table><tr>");
    for (column, name) in table.columns.iter().enumerate() {
        let is_text = table
            .rows
            .iter()
            .any(|row| row[column].class().starts_with("text"));
        let class = if is_text { " class=\"text\"" } else { "" };
        let _ = write!(body, "<th{class}>{}</th>", escaped(name));
    }
    body.push_str("</tr>");
    for row in &table.rows {
        body.push_str("<tr>");
        for cell in row {
            let (shown, class, why) = (cell.shown(), cell.class(), cell.why());
            let title = why.map_or(String::new(), |it| format!(" title=\"{}\"", escaped(it)));
            let _ = write!(
                body,
                "<td class=\"{class}\"{title}>{}</td>",
                escaped(&shown)
            );
        }
        body.push_str("</tr>");
    }
    body.push_str("</table></div>");
    let mut told: Vec<&str> = table
        .rows
        .iter()
        .flatten()
        .filter_map(|it| it.why())
        .collect();
    told.dedup();
    for why in told {
        let _ = write!(body, "<p class=\"machine\">skipped: {}</p>", escaped(why));
    }
}

/// What the index tells of a run.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    day: String,
    name: String,
    machine: String,
    met: usize,
    goals: usize,
    /// Titles of its tables.
    tables: Vec<String>,
}

/// All runs of a folder, the newest first. A file that is no result is left out.
fn runs(folder: &Path) -> Outcome<Vec<Run>> {
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        if let Some(run) = serde_json::from_str(&text).ok().and_then(|it| run(&it)) {
            runs.push(run);
        }
    }
    runs.sort_by(|a, b| (&b.day, &a.name).cmp(&(&a.day, &b.name)));
    Ok(runs)
}

fn run(json: &Value) -> Option<Run> {
    let text = |name: &str| Some(json[name].as_str()?.to_string());
    let goals = json["goals"].as_array()?;
    let is_met = |goal: &&Value| goal["met"].as_str().is_some_and(|it| it.starts_with("yes"));
    let titles = json["tables"].as_array()?.iter();
    Some(Run {
        day: text("date")?,
        name: text("command")?,
        machine: text("machine")?,
        met: goals.iter().filter(is_met).count(),
        goals: goals.len(),
        tables: titles
            .filter_map(|it| Some(it["title"].as_str()?.into()))
            .collect(),
    })
}

fn index(runs: &[Run]) -> String {
    let mut body = String::from(
        "<h1>Penstock beside others</h1><p>One line for each run of <code>cargo peers</code>, the \
         newest first.</p><div class=\"wide\"><table><tr><th class=\"text\">day</th>\
         <th class=\"text\">run</th><th>goals met</th><th class=\"text\">machine</th></tr>",
    );
    for run in runs {
        let (day, name) = (escaped(&run.day), escaped(&run.name));
        let met = match run.goals {
            0 => String::new(),
            goals => format!("{} of {goals}", run.met),
        };
        let _ = write!(
            body,
            "<tr><td class=\"text\">{day}</td><td class=\"text\"><a href=\"{day}-{name}.html\" \
             title=\"{}\">{name}</a> (<a href=\"{day}-{name}.json\">JSON</a>)</td><td>{met}</td>\
             <td class=\"text\">{}</td></tr>",
            escaped(&run.tables.join("; ")),
            escaped(&run.machine)
        );
    }
    body.push_str("</table></div>");
    document("Penstock beside others", &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Chart, Series};
    use crate::goal::{Found, Goal, Wanted};
    use crate::report::Cell;

    fn report() -> Report {
        let mut report = Report::default();
        let mut table = Table::new("rates <1>", &["server", "op/s"]);
        table.row(vec![Cell::text("Penstock S"), Cell::count(12.0)]);
        table.row(vec![Cell::text("kevy S"), Cell::skipped("no kevy is here")]);
        report.tables.push(table);
        report.goals.push(Goal {
            number: "1",
            what: "more".into(),
            unit: "op/s",
            wanted: Wanted::AtLeast(2.0),
            found: Found::of(&[6.0], &[2.0]),
            remark: "the tool was the limit".into(),
        });
        report.charts.push(Chart {
            title: "by depth".into(),
            below: "depth".into(),
            beside: "op/s".into(),
            axis: Axis::Powers,
            is_by_powers: true,
            series: vec![Series {
                name: "Penstock S".into(),
                points: vec![(1.0, 10.0), (128.0, 1000.0)],
            }],
        });
        report.note("a note");
        report
    }

    #[test]
    fn page_refers_to_nothing_outside_itself_and_has_all_that_was_found() {
        let page = page("2026-11-26", "resp", &report());
        for outside in [
            "http:", "https:", "src=", "href=", "url(", "@import", "<script",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        for inside in [
            "rates &lt;1&gt;",
            "no kevy is here",
            "<svg",
            "a note",
            "3.00",
            "yes",
            "tool was the limit",
        ] {
            assert!(page.contains(inside), "{inside}");
        }
    }

    #[test]
    fn index_lists_all_runs_of_the_folder_the_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        for (day, name) in [
            ("2026-11-25", "sql"),
            ("2026-11-26", "bulk"),
            ("2026-11-26", "resp"),
        ] {
            write(folder.path(), day, name, &report()).unwrap();
        }
        // What is no result does not hinder.
        std::fs::write(folder.path().join("other.json"), "[]").unwrap();
        write(folder.path(), "2026-11-26", "resp", &report()).unwrap();
        let index = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
        let at = |name: &str| index.find(&format!("href=\"{name}.html\"")).unwrap();
        assert!(at("2026-11-26-bulk") < at("2026-11-26-resp"));
        assert!(at("2026-11-26-resp") < at("2026-11-25-sql"));
        assert_eq!(
            index.matches("<tr>").count(),
            4,
            "a run of a day stands once"
        );
        assert!(index.contains("1 of 1"));
        for run in runs(folder.path()).unwrap() {
            assert!(
                folder
                    .path()
                    .join(format!("{}-{}.html", run.day, run.name))
                    .exists()
            );
        }
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(59), "1970-03-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_783), "2026-11-26");
    }
}

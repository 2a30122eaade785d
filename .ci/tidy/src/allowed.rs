//! The list of what is above a limit today.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Finding, Rule};

/// A message shows so many places at most.
const PLACES_MAX: usize = 12;

const HEAD: &str = "\
# What is above a limit of `cargo tidy` today: subject, rule, figure. A figure may only shrink.
# `cargo tidy --write` lowers figures and removes entries. `cargo tidy --write --raise` writes the
# list anew.
";

/// Figures above a limit that are known, by subject and rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed(BTreeMap<(String, Rule), usize>);

impl Allowed {
    /// Reads the text of the list.
    ///
    /// # Errors
    /// A line that is no entry: its number and what is wrong.
    pub fn read(text: &str) -> Result<Allowed, String> {
        let mut entries = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("tidy.allow:{}: {what}: {line}", at + 1);
            let words: Vec<&str> = line.split_whitespace().collect();
            let [subject, rule, figure] = words[..] else {
                return Err(wrong("not `subject rule figure`"));
            };
            let rule = Rule::ALL.into_iter().find(|it| it.name() == rule);
            let rule = rule.ok_or_else(|| wrong("no rule of that name"))?;
            let figure = figure
                .parse()
                .map_err(|_| wrong("the figure is no number"))?;
            if entries
                .insert((subject.to_string(), rule), figure)
                .is_some()
            {
                return Err(wrong("listed twice"));
            }
        }
        Ok(Allowed(entries))
    }

    /// The list that holds exactly these findings.
    pub fn of(findings: &[Finding]) -> Allowed {
        let entry = |it: &Finding| ((it.subject.clone(), it.rule), it.figure);
        Allowed(findings.iter().map(entry).collect())
    }

    /// This list with every figure lowered to what was found. Nothing is added or raised.
    #[must_use]
    pub fn lowered(&self, findings: &[Finding]) -> Allowed {
        let mut found = Allowed::of(findings).0;
        found.retain(|key, figure| match self.0.get(key) {
            Some(&listed) => {
                *figure = listed.min(*figure);
                true
            }
            None => false,
        });
        Allowed(found)
    }

    /// The text of the list.
    pub fn text(&self) -> String {
        let mut text = HEAD.to_string();
        for ((subject, rule), figure) in &self.0 {
            let _ = writeln!(text, "{subject} {} {figure}", rule.name());
        }
        text
    }

    /// How many entries stand for a rule, and the sum of their figures.
    pub fn sum(&self, rule: Rule) -> (usize, usize) {
        let figures = self.0.iter().filter(|((_, of), _)| *of == rule);
        figures.fold((0, 0), |(entries, sum), (_, figure)| {
            (entries + 1, sum + figure)
        })
    }
}

/// The complaints: a figure that is above its limit and not listed, a figure above the listed one,
/// and an entry that nothing needs. Empty if all is well.
pub fn verdict(findings: &[Finding], allowed: &Allowed) -> Vec<String> {
    let mut wrong = Vec::new();
    for finding in findings {
        let key = (finding.subject.clone(), finding.rule);
        let (most, why) = match allowed.0.get(&key) {
            Some(&listed) if finding.figure <= listed => continue,
            Some(&listed) => (listed, "the list has, and a figure may only shrink"),
            None => (finding.rule.limit(), "is the limit"),
        };
        let mut text = format!(
            "{}: {} {}; {most} {why}",
            finding.subject,
            finding.figure,
            finding.rule.unit()
        );
        for place in finding.places.iter().take(PLACES_MAX) {
            let _ = write!(text, "\n    {place}");
        }
        if finding.places.len() > PLACES_MAX {
            let _ = write!(text, "\n    and {} more", finding.places.len() - PLACES_MAX);
        }
        wrong.push(text);
    }
    let found = Allowed::of(findings).0;
    for ((subject, rule), figure) in &allowed.0 {
        if !found.contains_key(&(subject.clone(), *rule)) {
            wrong.push(format!(
                "{subject}: listed with {figure} {}, and within the limit: `cargo tidy --write` \
                 removes the entry",
                rule.unit()
            ));
        }
    }
    wrong
}

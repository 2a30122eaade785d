//! The alerts and the queries of the dashboard, read by a parser of their language and held against
//! scrapes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use yaml_rust2::YamlLoader;

/// Labels that Prometheus adds to what it scrapes.
const ADDED: [&str; 2] = ["instance", "job"];

/// How metrics begin that only a node of a cluster with failover tells in full.
pub const OF_FAILOVER: [&str; 7] = [
    "penstock_failover_",
    "penstock_generation_max",
    "penstock_heartbeat_",
    "penstock_lease_",
    "penstock_plan_",
    "penstock_sync_",
    "penstock_takeovers_",
];

/// Whether a node alone need not tell a metric.
pub fn is_of_cluster(metric: &str) -> bool {
    let mut of_failover = OF_FAILOVER.iter();
    metric.starts_with("penstock_replication_")
        || of_failover.any(|begin| metric.starts_with(begin))
}

/// An expression of a deployed file.
pub struct Query {
    /// The alert or the panel.
    pub name: String,
    pub expression: String,
}

/// All expressions of `deploy/monitoring`. A variable of the dashboard has the value that Grafana
/// gives it.
pub fn deployed_queries() -> Vec<Query> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring");
    let alerts = fs::read_to_string(folder.join("alerts.yml")).unwrap();
    let alerts = YamlLoader::load_from_str(&alerts).unwrap().remove(0);
    let groups = alerts["groups"].as_vec().unwrap();
    let rules = groups.iter().flat_map(|it| it["rules"].as_vec().unwrap());
    let mut queries: Vec<Query> = rules
        .map(|rule| Query {
            name: rule["alert"].as_str().unwrap().to_string(),
            expression: rule["expr"].as_str().unwrap().to_string(),
        })
        .collect();
    let dashboard = fs::read_to_string(folder.join("grafana-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            queries.push(Query {
                name: panel["title"].as_str().unwrap().to_string(),
                expression: expression
                    .replace("$__rate_interval", "1m")
                    .replace("$instance", ".+"),
            });
        }
    }
    assert!(queries.len() > 80, "{} queries", queries.len());
    queries
}

/// What the deployed rules and queries ask of metrics whose names begin like one of these, and no
/// sample has.
pub fn missing_from(
    samples: &[(String, BTreeMap<String, String>, f64)],
    begins: &[&str],
) -> Vec<String> {
    let is_asked = |metric: &str| begins.iter().any(|begin| metric.starts_with(begin));
    let queries = deployed_queries();
    let missing = queries.iter();
    let missing = missing.flat_map(|query| query.missing(is_asked, samples, &[].into()));
    missing.collect()
}

/// What a query takes from a scrape.
struct Selector {
    metric: String,
    /// Labels by which it selects or groups.
    labels: BTreeSet<String>,
    /// A label and values; the query asks for at least one of the values.
    values: Vec<(String, Vec<String>)>,
}

impl Query {
    /// What no sample of these has, in words: a metric, a label, or a value that is not among
    /// `known` either.
    pub fn missing(
        &self,
        is_asked: impl Fn(&str) -> bool,
        samples: &[(String, BTreeMap<String, String>, f64)],
        known: &BTreeSet<&str>,
    ) -> Vec<String> {
        let mut missing = Vec::new();
        for selector in self.selectors() {
            let metric = &selector.metric;
            if !is_asked(metric) {
                continue;
            }
            let of_metric = samples.iter().filter(|(name, ..)| name == metric);
            let of_metric: Vec<_> = of_metric.map(|(_, labels, _)| labels).collect();
            if of_metric.is_empty() {
                missing.push(metric.clone());
                continue;
            }
            let is_there = |label: &str| {
                let is_bucket = label == "le" && metric.ends_with("_bucket");
                is_bucket || of_metric.iter().any(|labels| labels.contains_key(label))
            };
            let labels = selector.labels.iter().filter(|label| !is_there(label));
            missing.extend(labels.map(|label| format!("{metric} has no label {label}")));
            for (label, values) in &selector.values {
                let is_exported = |value: &str| {
                    let mut found = of_metric.iter().filter_map(|labels| labels.get(label));
                    found.any(|it| it == value) || known.contains(value)
                };
                let values = values.iter().filter(|value| !is_exported(value));
                missing.extend(values.map(|value| format!("{metric} has no {label}={value}")));
            }
        }
        missing.iter_mut().for_each(|what| {
            *what = format!("{}: {what}", self.name);
        });
        missing
    }

    /// Whether it asks for what a node alone need not tell.
    pub fn is_of_cluster(&self) -> bool {
        let selectors = self.selectors();
        selectors.iter().any(|it| is_of_cluster(&it.metric))
    }

    fn selectors(&self) -> Vec<Selector> {
        let expression = parser::parse(&self.expression)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.name, self.expression));
        let mut found = Selectors {
            groups: Vec::new(),
            found: Vec::new(),
        };
        walk_expr(&mut found, &expression).expect("a visit does not fail");
        assert!(!found.found.is_empty(), "{} selects nothing", self.name);
        found.found
    }
}

/// Collects selectors, each with the labels of the aggregations around it.
struct Selectors {
    groups: Vec<BTreeSet<String>>,
    found: Vec<Selector>,
}

impl Selectors {
    fn take(&mut self, selector: &VectorSelector) {
        assert!(selector.matchers.or_matchers.is_empty(), "{selector}");
        let own = |matcher: &&Matcher| !ADDED.contains(&matcher.name.as_str());
        let matchers = selector.matchers.matchers.iter().filter(own);
        let mut labels: BTreeSet<String> = self.groups.iter().flatten().cloned().collect();
        labels.retain(|label| !ADDED.contains(&label.as_str()));
        let mut values = Vec::new();
        for matcher in matchers {
            labels.insert(matcher.name.clone());
            let asked = match matcher.op {
                MatchOp::Equal | MatchOp::NotEqual => vec![matcher.value.clone()],
                // Lists of words are all that the files have.
                MatchOp::Re(_) | MatchOp::NotRe(_) => {
                    matcher.value.split('|').map(str::to_string).collect()
                }
            };
            values.push((matcher.name.clone(), asked));
        }
        self.found.push(Selector {
            metric: selector.name.clone().expect("a metric by its name"),
            labels,
            values,
        });
    }
}

impl ExprVisitor for Selectors {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, Self::Error> {
        match expression {
            Expr::Aggregate(aggregate) => {
                let labels = match &aggregate.modifier {
                    Some(LabelModifier::Include(labels)) => labels.labels.clone(),
                    Some(LabelModifier::Exclude(_)) | None => Vec::new(),
                };
                self.groups.push(labels.into_iter().collect());
            }
            Expr::VectorSelector(selector) => self.take(selector),
            Expr::MatrixSelector(selector) => self.take(&selector.vs),
            _ => {}
        }
        Ok(true)
    }

    fn post_visit(&mut self, expression: &Expr) -> Result<bool, Self::Error> {
        if matches!(expression, Expr::Aggregate(_)) {
            self.groups.pop();
        }
        Ok(true)
    }
}

//! The plan, as `penstock cluster show` prints it.

/// What the tests of failover look at.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub revision: u64,
    pub changed_by: String,
    placements: Vec<Placement>,
}

#[derive(Clone, Debug, Default)]
struct Placement {
    first: u64,
    last: u64,
    primary: usize,
    /// Members that may be promoted, without those that join.
    sync: Vec<usize>,
    joining: Vec<usize>,
    learners: Vec<usize>,
}

impl Plan {
    /// Reads the document.
    ///
    /// # Errors
    /// It has no revision or no placement.
    pub fn read(text: &str) -> Result<Plan, String> {
        let mut plan = Plan::default();
        for line in text.lines() {
            if line.trim() == "[[placement]]" {
                plan.placements.push(Placement::default());
            }
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            match (name, plan.placements.last_mut()) {
                ("revision", None) => plan.revision = value.parse().unwrap_or(0),
                ("changed_by", None) => plan.changed_by = value.trim_matches('"').into(),
                ("partitions", Some(placement)) => {
                    let [first, last] = numbers(value)[..] else {
                        return Err(format!("no range: {line}"));
                    };
                    (placement.first, placement.last) = (first as u64, last as u64);
                }
                ("primary", Some(placement)) => placement.primary = value.parse().unwrap_or(0),
                ("sync", Some(placement)) => placement.sync = numbers(value),
                ("joining", Some(placement)) => placement.joining = numbers(value),
                ("learners", Some(placement)) => placement.learners = numbers(value),
                _ => {}
            }
        }
        match plan.revision > 0 && !plan.placements.is_empty() {
            true => Ok(plan),
            false => Err(format!("no plan: {text}")),
        }
    }

    /// Whether each partition has two members that may be promoted, and nobody is on the way.
    pub fn is_whole(&self) -> bool {
        self.placements
            .iter()
            .all(|it| it.sync.len() == 2 && it.joining.is_empty() && it.learners.is_empty())
    }

    /// Who writes a partition.
    pub fn primary_of(&self, partition: u64) -> Option<usize> {
        let mut all = self.placements.iter();
        let it = all.find(|it| (it.first..=it.last).contains(&partition))?;
        Some(it.primary)
    }

    pub fn writes_all(&self, node: usize) -> bool {
        self.placements.iter().all(|it| it.primary == node)
    }

    /// Whether a node has the roles that the plan gives it.
    pub fn is_kept_by(&self, node: usize, roles: &[(u64, u64, String)]) -> bool {
        !roles.is_empty()
            && roles.iter().all(|(first, last, role)| {
                (*first..=*last).all(|partition| match self.primary_of(partition) {
                    Some(primary) if primary == node => role == "primary",
                    _ => role == "following",
                })
            })
    }
}

/// The numbers in brackets.
fn numbers(text: &str) -> Vec<usize> {
    let inner = text.trim_matches(|it| it == '[' || it == ']');
    inner
        .split(',')
        .filter_map(|it| it.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "revision = 7\nchanged_by = \"node 2: takeover of node 1\"\nfailover = true\n
[[node]]\nnumber = 1\n
[[placement]]\npartitions = [0, 127]\ngeneration = 2\nprimary = 2\nsync = [3]\nlearners = [1]\n
[[placement]]\npartitions = [128, 255]\ngeneration = 1\nprimary = 2\nsync = [1, 3]\n";

    #[test]
    fn a_plan_is_whole_when_each_partition_has_two_members() {
        let plan = Plan::read(TEXT).expect("a plan");
        assert_eq!((plan.revision, plan.primary_of(3)), (7, Some(2)));
        assert!(!plan.is_whole() && plan.writes_all(2));
        let whole = TEXT.replace("sync = [3]\nlearners = [1]", "sync = [1, 3]");
        assert!(Plan::read(&whole).expect("a plan").is_whole());
        let joining = whole.replace("sync = [1, 3]\n\n", "sync = [3]\njoining = [1]\n\n");
        assert!(!Plan::read(&joining).expect("a plan").is_whole());
        assert!(Plan::read("revision = 1\n").is_err());
    }

    #[test]
    fn roles_are_those_of_the_plan() {
        let plan = Plan::read(TEXT).expect("a plan");
        let all = |role: &str| vec![(0, 255, role.to_string())];
        assert!(plan.is_kept_by(2, &all("primary")) && plan.is_kept_by(3, &all("following")));
        assert!(!plan.is_kept_by(3, &all("scanning")) && !plan.is_kept_by(2, &[]));
    }
}

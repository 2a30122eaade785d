//! Modules of a crate that import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Modules, Name};
use crate::{Finding, Rule, Tree};

/// Crates with modules in a circle.
///
/// A module and the files below it may use each other: these are the files of one type. The search
/// leaves the module out and looks for a circle among the files below it.
///
/// # Errors
/// A module that cannot be read.
pub fn findings(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    for root in roots(tree) {
        let modules = Modules::read(tree, root)?;
        let edges = modules.edges();
        let mut circles = Vec::new();
        forbidden(&edges, modules.0.keys().collect(), &mut circles);
        if circles.is_empty() {
            continue;
        }
        let within = |from: &Name, to: &Name| {
            let both = |circle: &&BTreeSet<&Name>| circle.contains(from) && circle.contains(to);
            circles.iter().any(|circle| both(&circle))
        };
        let inner = edges.iter().filter(|((from, to), _)| within(from, to));
        let places = inner.map(|((from, to), line)| {
            let (from, to) = (&modules.0[*from].file, to.join("::"));
            format!("{from}:{line}: uses {to}")
        });
        found.push(Finding {
            rule: Rule::Cycle,
            subject: root.to_string(),
            figure: circles.iter().map(BTreeSet::len).sum(),
            places: places.collect(),
        });
    }
    Ok(found)
}

/// The roots of all crates: libraries and programs.
fn roots(tree: &Tree) -> impl Iterator<Item = &str> {
    let files = tree.texts(".rs").map(|(path, _)| path);
    files.filter(|path| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs"))
}

type Edges<'a> = BTreeMap<(&'a Name, &'a Name), usize>;

/// Adds the circles among `modules` that are not the files of one type.
fn forbidden<'a>(
    edges: &Edges<'a>,
    modules: BTreeSet<&'a Name>,
    circles: &mut Vec<BTreeSet<&'a Name>>,
) {
    let mut left = modules.clone();
    while let Some(&first) = left.iter().next() {
        let ahead = reached(edges, &modules, first, false);
        let behind = reached(edges, &modules, first, true);
        let circle: BTreeSet<&Name> = ahead.intersection(&behind).copied().collect();
        left.remove(first);
        left.retain(|it| !circle.contains(it));
        if circle.len() < 2 {
            continue;
        }
        let owner = circle
            .iter()
            .find(|owner| circle.iter().all(|it| it.starts_with(owner)));
        match owner {
            Some(owner) => {
                let mut below = circle.clone();
                below.remove(*owner);
                forbidden(edges, below, circles);
            }
            None => circles.push(circle),
        }
    }
}

/// The modules among `modules` that `first` reaches, or that reach `first`. `first` is one of them.
fn reached<'a>(
    edges: &Edges<'a>,
    modules: &BTreeSet<&'a Name>,
    first: &'a Name,
    is_backward: bool,
) -> BTreeSet<&'a Name> {
    let mut reached = BTreeSet::from([first]);
    let mut next = vec![first];
    while let Some(module) = next.pop() {
        for &(from, to) in edges.keys() {
            let (here, there) = if is_backward { (to, from) } else { (from, to) };
            if here == module && modules.contains(there) && reached.insert(there) {
                next.push(there);
            }
        }
    }
    reached
}

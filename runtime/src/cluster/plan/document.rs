//! The text of a plan, changed in place: comments and the order of what stands in it stay. Pure.

use std::time::SystemTime;

use penstock_net::link::Membership;
use penstock_net::resp::CorePorts;
use penstock_shard::cluster::Assignment;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};

use crate::cluster::plan::failover_keys::FailoverKeys;
use crate::cluster::plan::file::{ClusterFile, ClusterNode};

/// The document of a plan, if it is written so that it can be changed in place.
///
/// # Errors
/// Why it is not, in one line.
pub(crate) fn document_of(text: &str) -> Result<DocumentMut, String> {
    let document = text.parse::<DocumentMut>();
    let document = document.map_err(|error| error.to_string().replace('\n', ", "))?;
    for name in ["node", "placement"] {
        if !document.get(name).is_some_and(Item::is_array_of_tables) {
            return Err(format!(
                "to be changed, each {name} must be written as [[{name}]]"
            ));
        }
    }
    Ok(document)
}

/// Makes the nodes of the document those of `file`, where it has those of `before`.
pub(crate) fn edit_nodes(document: &mut DocumentMut, before: &ClusterFile, file: &ClusterFile) {
    let tables = tables_of(document, "node");
    let after = |node: &ClusterNode| file.node(node.number);
    // The tables stand in the order in which the nodes were read.
    let mut kept = before.nodes.iter().map(|node| after(node).is_some());
    tables.retain(|_| kept.next().unwrap_or(true));
    let kept = before.nodes.iter().filter_map(after);
    for (table, node) in tables.iter_mut().zip(kept) {
        let links = table.get("links").and_then(Item::as_str);
        if links.and_then(|it| it.parse().ok()) != Some(node.links) {
            set(table, "links", node.links.to_string().into());
        }
        if table.get("clients").and_then(Item::as_str) != Some(&node.clients) {
            set(table, "clients", node.clients.clone().into());
        }
        set_switch(table, "learner", node.stays_learner);
    }
    let is_new = |node: &&ClusterNode| before.node(node.number).is_none();
    for node in file.nodes.iter().filter(is_new) {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        table.insert("number", value(i64::from(node.number)));
        table.insert("links", value(node.links.to_string()));
        table.insert("clients", value(node.clients.clone()));
        if let Some(resp) = &node.resp {
            table.insert("resp", value(resp.clone()));
        }
        if let Some(ports) = node.resp_ports {
            set_numbers(&mut table, "resp_ports", &bounds(ports), true);
        }
        set_switch(&mut table, "learner", node.stays_learner);
        tables.push(table);
    }
}

/// Makes the placements of the document those of `file`, where it has those of `before`.
pub(crate) fn edit_placements(
    document: &mut DocumentMut,
    before: &ClusterFile,
    file: &ClusterFile,
) {
    let tables = tables_of(document, "placement");
    let mut edited: Vec<(u16, u16, Table)> = Vec::new();
    for table in std::mem::take(tables) {
        let range = table.get("partitions").map(numbers).unwrap_or_default();
        let (first, last) = (range[0], range[1]);
        let mut left = Some(table);
        let partitions: Vec<u16> = (first..=last).collect();
        let is_alike = |one: &u16, other: &u16| placing(file, *one) == placing(file, *other);
        for group in partitions.chunk_by(is_alike) {
            let (first, last) = (group[0], group[group.len() - 1]);
            // The first part keeps the table and what was written around it.
            let mut table = left.take().unwrap_or_else(|| {
                let mut table = Table::new();
                table.decor_mut().set_prefix("\n");
                table
            });
            fill(&mut table, (first, last), placing(file, first));
            edited.push((first, last, table));
        }
    }
    let mut joined: Vec<(u16, u16, Table)> = Vec::new();
    for (first, last, mut table) in edited {
        // Where two have become alike they are one, unless somebody has written a comment about the
        // second.
        if let Some((from, to, above)) = joined.last_mut()
            && *to + 1 == first
            && placing(file, first) == placing(file, *from)
            && placing(before, first) != placing(before, *to)
            && !is_commented(&table)
        {
            *to = last;
            fill(above, (*from, last), placing(file, first));
            continue;
        }
        table.set_position(None);
        joined.push((first, last, table));
    }
    tables.extend(joined.into_iter().map(|(_, _, table)| table));
}

/// Makes the keys about nodes that decide by themselves those of `file`, where the document has
/// those of `before`.
pub(crate) fn edit_failover(
    document: &mut DocumentMut,
    before: &FailoverKeys,
    after: &FailoverKeys,
) {
    let table = document.as_table_mut();
    if after.switched != before.switched {
        match after.switched {
            Some(is_on) => set(table, "failover", is_on.into()),
            None => drop(table.remove("failover")),
        }
    }
    set_switch(table, "failover_paused", after.is_paused);
    let numbers = |keys: &FailoverKeys| {
        [
            ("lease_ms", keys.rules.lease_us() / 1000),
            ("grace_ms", keys.rules.grace_us() / 1000),
            ("min_sync", keys.min_sync as u64),
        ]
    };
    for ((name, before), (_, after)) in numbers(before).into_iter().zip(numbers(after)) {
        if before != after {
            set(table, name, i64::try_from(after).expect("small").into());
        }
    }
}

/// Gives a document the next revision, with author and time. A document without a revision stays as
/// it is.
pub(crate) fn note_change(
    document: &mut DocumentMut,
    before: u64,
    author: &str,
    changed_at: SystemTime,
) {
    if !document.contains_key("revision") {
        return;
    }
    let revision = i64::try_from(before + 1).expect("below 2^53");
    let now = humantime::format_rfc3339_seconds(changed_at);
    set(document.as_table_mut(), "revision", revision.into());
    set(
        document.as_table_mut(),
        "changed_at",
        now.to_string().into(),
    );
    set(document.as_table_mut(), "changed_by", author.into());
}

type Placing<'a> = (&'a Assignment, &'a [u8]);

fn placing(file: &ClusterFile, partition: u16) -> Placing<'_> {
    let at = usize::from(partition);
    (&file.assignments[at], &file.joining[at])
}

fn tables_of<'a>(document: &'a mut DocumentMut, name: &str) -> &'a mut ArrayOfTables {
    let tables = document
        .get_mut(name)
        .and_then(Item::as_array_of_tables_mut);
    tables.expect("it was seen when the file was read")
}

fn numbers(item: &Item) -> Vec<u16> {
    let values = item.as_array().into_iter().flatten();
    let numbers = values.filter_map(Value::as_integer);
    numbers.filter_map(|it| u16::try_from(it).ok()).collect()
}

fn is_commented(table: &Table) -> bool {
    let mut text = table.to_string();
    text.extend(table.decor().prefix().and_then(|it| it.as_str()));
    text.contains('#')
}

/// Writes the placement of partitions `first` to `last` into its table of the cluster's file.
fn fill(table: &mut Table, (first, last): (u16, u16), (assignment, joining): Placing<'_>) {
    let of = |membership: Membership, is_joining: bool| -> Vec<u16> {
        let members = assignment.members.iter();
        let nodes = members.filter(|(node, it)| {
            *it == membership
                && (membership == Membership::Learner || joining.contains(node) == is_joining)
        });
        nodes.map(|&(node, _)| u16::from(node)).collect()
    };
    set_numbers(table, "partitions", &[first, last], true);
    set(table, "generation", i64::from(assignment.generation).into());
    set(table, "primary", i64::from(assignment.primary).into());
    set_numbers(table, "sync", &of(Membership::Sync, false), true);
    set_numbers(table, "joining", &of(Membership::Sync, true), false);
    set_numbers(table, "learners", &of(Membership::Learner, false), false);
    for (name, is_on) in [
        ("handover", assignment.is_handed_over),
        ("accept_loss", assignment.is_loss_accepted),
        ("accept_incomplete", assignment.is_incomplete_accepted),
    ] {
        set_switch(table, name, is_on);
    }
}

/// The first port and the last one.
pub(crate) fn bounds(ports: CorePorts) -> [u16; 2] {
    let all = ports.all();
    [*all.start(), *all.end()]
}

/// One that is off need not be written, and one that says the same stays as it is written.
fn set_switch(table: &mut Table, name: &str, is_on: bool) {
    let before = table.get(name).and_then(Item::as_bool);
    match is_on {
        _ if before.unwrap_or(false) == is_on => {}
        true => set(table, name, true.into()),
        false => drop(table.remove(name)),
    }
}

/// Keeps what is written around a value.
fn set(table: &mut Table, name: &str, new: Value) {
    match table.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(name, Item::Value(new))),
    }
}

/// An empty list need not be written; one that says the same stays as it is written.
fn set_numbers(table: &mut Table, name: &str, new: &[u16], is_always: bool) {
    let old = table.get(name).map(numbers);
    if old.as_deref() == Some(new) {
        return;
    }
    if new.is_empty() && !is_always {
        table.remove(name);
        return;
    }
    let array: Array = new.iter().map(|&number| i64::from(number)).collect();
    set(table, name, array.into());
}

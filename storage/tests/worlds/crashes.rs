//! Short runs over several segments, with every order in which requests end, and a power cut at
//! every step: each sector that is not flushed is kept or lost, in every combination while they are
//! few, by seed where they are many, and by seed noise instead.
//!
//! After each of them all that was acknowledged is there, the rest is there whole or not at all, in
//! order. Whatever part of its own actions the start has done when the next power cut comes, the
//! start after it finds the same; so does one after a second, shorter life that is cut off at every
//! step as well.

use std::collections::HashSet;
use std::time::Instant;

use penstock_storage::io::Io;
use penstock_storage::log::SyncMethod;

use crate::device::Sector;
use crate::image::{Image, SECTOR_BYTES, sector_fingerprint};
use crate::life::{Life, Parts, Record, Shape, filled};
use crate::random::Random;
use crate::start::{NoStart, Start, start};
use crate::tally::{Effort, Met, Tally};

enum Step {
    Append(Parts),
    /// Wait until all is durable and the log has written its mark.
    Rest,
    Close,
}

struct Plan {
    shape: Shape,
    steps: Vec<Step>,
    /// Up to so many unflushed sectors, all their subsets; of more, so many subsets by seed.
    sectors_max: usize,
    sampled: usize,
    /// Subsets with noise at each step.
    noisy: usize,
    /// One state in so many lives on.
    lives_on: u64,
}

/// One state in so many meets every subset of the actions of its start.
const ACTIONS: u64 = 16;
/// Requests of a second life, at most.
const ENDS_MAX: usize = 100;

/// Walks all plans; a share has smaller frames.
pub fn walk(effort: Effort) -> Tally {
    let began = Instant::now();
    let walks = [SyncMethod::DurableWrite, SyncMethod::WriteThenSync]
        .map(|sync| move || walk_plans(&plans(sync, effort)));
    let mut tally = Tally::default();
    let mut images = HashSet::new();
    std::thread::scope(|scope| {
        for walk in walks.map(|walk| scope.spawn(walk)) {
            let (one, its_images) = walk.join().expect("recovery does not panic");
            tally.merge(one);
            images.extend(its_images);
        }
    });
    tally.distinct = Some(images.len() as u64);
    tally.elapsed = began.elapsed();
    tally
}

fn plans(sync: SyncMethod, effort: Effort) -> Vec<Plan> {
    let is_all = effort == Effort::All;
    let bytes = if is_all { 3_900 } else { 2_300 };
    let steps = |records: usize| {
        let mut steps: Vec<Step> = (0..records)
            .map(|number| Step::Append(filled(number, bytes)))
            .collect();
        steps.push(Step::Rest);
        // Several records in one frame, one of several parts, one without a value.
        steps.push(Step::Append(filled(100, 700)));
        let mut parts = filled(101, 300);
        parts.extend([filled(102, 200).remove(0), (b"gone".to_vec(), None)]);
        steps.push(Step::Append(parts));
        steps.push(Step::Append(vec![(b"key 1".to_vec(), None)]));
        steps.push(Step::Close);
        steps
    };
    let plan = Plan {
        shape: Shape::tiny(2, sync),
        steps: steps(if is_all { 9 } else { 6 }),
        sectors_max: 16,
        sampled: if is_all { 4_000 } else { 200 },
        noisy: if is_all { 500 } else { 60 },
        lives_on: if is_all { 256 } else { 64 },
    };
    let three = Plan {
        shape: Shape::tiny(3, sync),
        steps: steps(5),
        sectors_max: 12,
        ..plan
    };
    let two_blocks = Plan {
        shape: Shape {
            segment_bytes: 60 << 10,
            frame_bytes: 8 << 10,
            ..Shape::tiny(2, sync)
        },
        steps: steps(8),
        sectors_max: 12,
        ..three
    };
    vec![plan, three, two_blocks]
}

fn walk_plans(plans: &[Plan]) -> (Tally, HashSet<u64>) {
    let mut walk = Walk::default();
    for plan in plans {
        walk.steps.clear();
        walk.visit(plan, &mut Vec::new());
    }
    (walk.tally, walk.images)
}

#[derive(Default)]
struct Walk {
    tally: Tally,
    /// Fingerprints of the images met, and of images together with what was acknowledged.
    images: HashSet<u64>,
    judged: HashSet<u64>,
    /// Numbers of the steps from which a run was followed.
    steps: HashSet<u64>,
}

impl Walk {
    /// Cuts the power after the requests have ended in the order `ends`, then goes on with each
    /// request that may end next.
    fn visit(&mut self, plan: &Plan, ends: &mut Vec<usize>) {
        let life = plan.live(ends);
        let sectors = life.device.unflushed();
        // Another order may have led here, and has the same before it.
        if !self.steps.insert(step_of(&life, &sectors)) {
            return;
        }
        let mut image = life.device.image.clone();
        self.cut_power(
            plan,
            &mut image,
            sectors,
            life.acked(),
            &life.appended,
            ends,
        );
        for next in 0..life.device.under_way().len() {
            ends.push(next);
            self.visit(plan, ends);
            ends.pop();
        }
    }

    fn cut_power(
        &mut self,
        plan: &Plan,
        image: &mut Image,
        mut sectors: Vec<Sector>,
        acked: usize,
        appended: &[Record],
        ends: &[usize],
    ) {
        let mut random = Random::new(ends.len() as u64);
        let mut fingerprint = image.fingerprint();
        let judge = |walk: &mut Walk, image: &mut Image, fingerprint| {
            walk.images.insert(fingerprint);
            if walk.judged.insert(mix(fingerprint, acked)) {
                let met = survives(plan, image, fingerprint, acked, appended);
                walk.tally
                    .add(met.map_err(|wrong| format!("{:?}, ends {ends:?}: {wrong}", plan.shape)));
            }
        };
        judge(self, image, fingerprint);
        if sectors.len() <= plan.sectors_max {
            // In the order of a Gray code one sector changes from each subset to the next.
            for subset in 1..1u32 << sectors.len() {
                let sector = &mut sectors[subset.trailing_zeros() as usize];
                fingerprint ^= sector.toggle(image);
                judge(self, image, fingerprint);
            }
        } else {
            for _ in 0..plan.sampled {
                for sector in &mut sectors {
                    if random.once_in(2) {
                        fingerprint ^= sector.toggle(image);
                    }
                }
                judge(self, image, fingerprint);
            }
        }
        for _ in 0..if sectors.is_empty() { 0 } else { plan.noisy } {
            let number = random.below(sectors.len());
            let mut noise = Sector {
                bytes: (0..SECTOR_BYTES)
                    .map(|_| random.next().to_le_bytes()[0])
                    .collect(),
                ..sectors[number].clone()
            };
            let other = random.below(sectors.len());
            if other != number {
                fingerprint ^= sectors[other].toggle(image);
            }
            let change = noise.toggle(image);
            judge(self, image, fingerprint ^ change);
            noise.toggle(image);
        }
    }
}

impl Plan {
    /// Runs the steps until all requests of `ends` have ended and the next ones are under way.
    fn live(&self, ends: &[usize]) -> Life {
        let mut life = Life::first(self.shape);
        self.live_on(&mut life, ends);
        life
    }

    fn live_on(&self, life: &mut Life, ends: &[usize]) {
        let mut steps = self.steps.iter().peekable();
        let mut ends = ends.iter();
        loop {
            life.add_spares();
            // Two at a time, so that frames of one and of several records come about.
            for _ in 0..2 {
                if let Some(Step::Append(parts)) = steps.peek()
                    && life.append(parts).is_some()
                {
                    steps.next();
                }
            }
            life.pump();
            if life.device.under_way().is_empty() && life.acked() == life.appended.len() {
                match steps.next() {
                    Some(Step::Append(parts)) => {
                        life.append(parts).expect("nothing is under way");
                    }
                    Some(Step::Rest) => life.now_us += 10_000,
                    Some(Step::Close) => life.log.close(),
                    None => return,
                }
                life.pump();
            }
            if !life.device.under_way().is_empty() {
                match ends.next() {
                    Some(&end) => life.complete(end),
                    None => return,
                }
            }
        }
    }
}

/// Whether a start over `image` finds what it must, now and after more power cuts.
fn survives(
    plan: &Plan,
    image: &mut Image,
    fingerprint: u64,
    acked: usize,
    appended: &[Record],
) -> Result<Met, String> {
    let found = finds(image, acked, appended)?;
    let mut after = image.clone();
    found
        .actions
        .iter()
        .for_each(|action| action.apply(&mut after));
    if !found.actions.is_empty() {
        let again = finds(&mut after, found.records, appended)?;
        if (again.records, again.end) != (found.records, found.end) || !again.actions.is_empty() {
            return Err(format!("found {found:?}, and then {again:?}"));
        }
        if fingerprint.is_multiple_of(ACTIONS) {
            for subset in 1..(1u32 << found.actions.len()) - 1 {
                let mut image = image.clone();
                for (number, action) in found.actions.iter().enumerate() {
                    if subset >> number & 1 == 1 {
                        action.apply(&mut image);
                    }
                }
                let again = finds(&mut image, found.records, appended)?;
                if (again.records, again.end) != (found.records, found.end) {
                    return Err(format!(
                        "found {found:?}, and then, with subset {subset:b} of its actions done, \
                         {again:?}"
                    ));
                }
            }
        }
    }
    if fingerprint.is_multiple_of(plan.lives_on) {
        lives_on(plan, &after, &found, appended)?;
    }
    Ok(match found.torn {
        Some(_) => Met::Reported,
        None => Met::Unharmed,
    })
}

/// A start that serves at least `acked` records.
fn finds(image: &mut Image, acked: usize, appended: &[Record]) -> Result<Start, String> {
    match start(image, appended) {
        Err(NoStart::Wrong(wrong)) => Err(wrong),
        Err(NoStart::Refused(error)) => Err(format!("a power cut is taken for damage: {error}")),
        Ok(found) if found.records < acked => Err(format!(
            "{acked} records were acknowledged, {} are there",
            found.records
        )),
        Ok(found) => Ok(found),
    }
}

/// Goes on after a start, and cuts the power again at every step.
fn lives_on(plan: &Plan, image: &Image, found: &Start, appended: &[Record]) -> Result<(), String> {
    let second = Plan {
        shape: plan.shape,
        steps: vec![
            Step::Append(filled(200, 30)),
            Step::Append(filled(201, 900)),
            Step::Append(filled(202, 30)),
            Step::Rest,
        ],
        sectors_max: 8,
        sampled: 0,
        noisy: 0,
        lives_on: u64::MAX,
    };
    for ends in 0..ENDS_MAX {
        let mut life = Life::after(plan.shape, image.clone(), found, appended.to_vec());
        second.live_on(&mut life, &vec![0; ends]);
        let mut sectors = life.device.unflushed();
        let mut image = life.device.image.clone();
        for subset in 0..1u32 << sectors.len() {
            if subset > 0 {
                sectors[subset.trailing_zeros() as usize].toggle(&mut image);
            }
            finds(&mut image, life.acked(), &life.appended)
                .map_err(|wrong| format!("in the second life, after {ends} ends: {wrong}"))?;
        }
        if life.device.under_way().is_empty() {
            return Ok(());
        }
    }
    Err(format!("a life goes on after {ENDS_MAX} requests"))
}

/// A number of all that the rest of a run depends on.
fn step_of(life: &Life, sectors: &[Sector]) -> u64 {
    let mut step = mix(life.device.image.fingerprint(), life.acked());
    step = mix(step, life.appended.len());
    for sector in sectors {
        step = mix(step, sector.offset)
            ^ sector_fingerprint(sector.file, sector.offset, &sector.bytes);
    }
    for request in life.device.under_way() {
        let (Io::Write { token, .. } | Io::Sync { token, .. } | Io::Read { token, .. }) = request;
        step = mix(step ^ token.number, 1 + token.asker as usize);
    }
    step
}

fn mix(a: u64, b: usize) -> u64 {
    Random::new(a ^ (b as u64).rotate_left(40)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_every_power_cut_of_a_short_run_the_acknowledged_is_there_and_nothing_by_half() {
        let tally = walk(crate::effort());
        assert_eq!(tally.first_wrong, None);
        assert_eq!(tally.refused, 0);
        assert!(tally.reported > 0 && tally.unharmed > 0);
        assert!(tally.distinct >= Some(100_000), "{:?}", tally.distinct);
    }
}

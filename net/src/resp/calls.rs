//! How often each command came, for INFO: counted here and told to the server once for all bytes
//! that were read together.

use super::host::Host;
use super::table::Name;

/// Counts that were not told yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    counts: Vec<(Name, u64)>,
    /// The place of the command that came last.
    last: usize,
}

impl Calls {
    /// A command has come so many times.
    #[inline]
    pub(super) fn add(&mut self, name: Name, times: usize) {
        match self.counts.get_mut(self.last) {
            Some((known, count)) if *known == name => *count += times as u64,
            _ => self.add_other(name, times as u64),
        }
    }

    fn add_other(&mut self, name: Name, times: u64) {
        let place = self.counts.iter().position(|(known, _)| *known == name);
        self.last = place.unwrap_or(self.counts.len());
        match place {
            Some(place) => self.counts[place].1 += times,
            None => self.counts.push((name, times)),
        }
    }

    /// Tells all counts.
    #[inline]
    pub(super) fn report(&mut self, host: &dyn Host) {
        for (name, times) in &mut self.counts {
            if *times > 0 {
                host.was_called(*name, *times);
                *times = 0;
            }
        }
    }
}

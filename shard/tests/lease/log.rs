//! The records of a partition at one node, as far as it matters who wrote how many.

/// An epoch: generation, start, node.
pub type Epoch = u64;

pub fn epoch(generation: u32, start: u32, node: u8) -> Epoch {
    u64::from(generation) << 32 | u64::from(start) << 8 | u64::from(node)
}

pub fn generation(epoch: Epoch) -> u32 {
    u32::try_from(epoch >> 32).expect("32 bits")
}

fn node(epoch: Epoch) -> u8 {
    epoch.to_le_bytes()[0]
}

/// Which epoch wrote each sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Epochs and their first sequences, ascending.
    epochs: Vec<(Epoch, u64)>,
    pub len: u64,
}

impl Log {
    pub fn begin(&mut self, epoch: Epoch) {
        self.len += 1;
        self.epochs.push((epoch, self.len));
    }

    /// What is behind a sequence is gone.
    pub fn cut(&mut self, len: u64) {
        self.len = self.len.min(len);
        self.epochs.retain(|&(_, first)| first <= len);
    }

    pub fn last_writer(&self) -> Option<u8> {
        self.epochs.last().map(|&(epoch, _)| node(epoch))
    }

    /// Whether the record that an epoch wrote under a sequence is there.
    pub fn holds(&self, epoch: Epoch, sequence: u64) -> bool {
        let at = self.epochs.iter().position(|&(it, _)| it == epoch);
        let Some(at) = at else { return false };
        let end = self.epochs.get(at + 1).map_or(self.len, |next| next.1 - 1);
        (self.epochs[at].1..=end).contains(&sequence)
    }
}

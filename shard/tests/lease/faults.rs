//! What happens to the nodes, their clocks, what is between them, and the store.

use super::world::{Event, NODES, World};

impl World {
    /// The next fault, or the end of all of them.
    pub fn fault(&mut self) {
        if self.now_us >= self.faults_end_us {
            return self.calm();
        }
        let next_us = self.within(50_000, 3_000_000);
        self.at(next_us, Event::Fault);
        let node = self.random.below(NODES);
        match self.random.below(12) {
            0..=2 => self.stop(node, false),
            3 => self.stop(node, true),
            4 => {
                self.meet("crash");
                self.crash(node);
                let down_us = self.within(50_000, 5_000_000);
                self.at(down_us, Event::Start { node });
            }
            5 | 6 => {
                self.meet("cut one way");
                let other = (node + 1 + self.random.below(2)) % NODES;
                self.cut(node, other);
            }
            7 => {
                self.meet("cut both ways");
                let other = (node + 1) % NODES;
                self.cut(node, other);
                self.cut(other, node);
            }
            8 => {
                self.meet("isolated");
                for other in (0..NODES).filter(|&other| other != node) {
                    self.cut(node, other);
                    self.cut(other, node);
                }
            }
            9 => {
                self.meet("cut off from the store");
                self.nodes[node].is_cut_off = true;
                let for_us = self.within(200_000, 10_000_000);
                self.at(for_us, Event::Reach { node });
            }
            10 => {
                self.meet("store down");
                self.is_store_down = true;
                let for_us = self.within(200_000, 5_000_000);
                self.at(for_us, Event::StoreUp);
            }
            _ => {
                self.meet("wall clock steps");
                let step_us = i64::try_from(self.within(0, 20_000_000)).expect("short");
                self.nodes[node].clock.wall_us += step_us - 10_000_000;
                self.is_slow = true;
                let for_us = self.within(100_000, 2_000_000);
                self.at(for_us, Event::Fast);
            }
        }
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
        let for_us = self.within(200_000, 10_000_000);
        self.at(for_us, Event::Heal { from, to });
    }

    /// A process that stands still, or a machine that is suspended.
    fn stop(&mut self, node: usize, is_suspended: bool) {
        if !self.nodes[node].is_running() {
            return;
        }
        let for_us = match self.random.below(10) {
            0 if self.has_long_stops => {
                self.meet("stopped for minutes");
                self.within(10_000_000, 600_000_000)
            }
            0..=4 => self.within(20_000, 600_000),
            _ => self.within(300_000, 6_000_000),
        };
        self.faults_end_us = self.faults_end_us.max(self.now_us + for_us.min(60_000_000));
        self.meet(if is_suspended { "suspended" } else { "paused" });
        self.nodes[node].stopped_until_us = Some(self.now_us + for_us);
        if is_suspended {
            // Nobody looks at the clock before it wakes up.
            self.nodes[node].clock.suspended_us += for_us;
        }
        self.at(for_us, Event::Resume { node });
    }

    /// All faults end, but that who stands still goes on in its time.
    fn calm(&mut self) {
        self.cuts.clear();
        self.is_slow = false;
        self.is_store_down = false;
        for node in 0..NODES {
            self.nodes[node].is_cut_off = false;
            if self.nodes[node].run.is_none() {
                self.at(0, Event::Start { node });
            }
        }
    }
}

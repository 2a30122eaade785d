//! A server that stands still and goes on.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::account::Style;
use crate::options::Setting;
use crate::server::Server;
use crate::wire::{ANSWER_MAX, Wire};
use crate::world::{WRITERS, World};
use crate::{Done, Kind, Turn, process};

pub struct Stop {
    folder: PathBuf,
    pause_max: Duration,
    worlds: Vec<World>,
    paused: Duration,
    cut_off: u64,
    gave_up: u64,
}

impl Stop {
    pub fn new(folder: PathBuf, pause_max: Duration, settings: &[Setting]) -> Stop {
        Stop {
            folder,
            pause_max,
            worlds: settings
                .iter()
                .map(|&setting| World::new(setting))
                .collect(),
            paused: Duration::ZERO,
            cut_off: 0,
            gave_up: 0,
        }
    }
}

impl Kind for Stop {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn { binary, random, .. } = turn;
        let world = &mut self.worlds[turn.which];
        let setting = world.setting;
        let data = self
            .folder
            .join(format!("{}-{}", setting.shards, setting.io));
        if data.exists() && random.once_in(3) {
            fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
            world.forget();
        }
        let pause_ms_max = u64::try_from(self.pause_max.as_millis()).unwrap_or(u64::MAX);
        let pause = Duration::from_millis(pause_ms_max / 2 + random.below(pause_ms_max / 2 + 1));
        // A third does not wait for the end of the stop, and leaves requests behind whose outcome
        // it never learns.
        let answer_max = ANSWER_MAX + pause;
        let style = |writer: usize| match writer % 3 {
            0 => Style {
                answer_max: Duration::from_millis(400),
                gives_up: true,
                deadline_ms_max: 300,
            },
            1 => Style {
                answer_max,
                gives_up: false,
                deadline_ms_max: 2_000,
            },
            _ => Style {
                answer_max,
                gives_up: false,
                deadline_ms_max: 0,
            },
        };
        let before = world.acked();
        let mut server = Server::start(binary, &data, setting)?;
        let work = Duration::from_millis(50 + random.below(600));
        let writes = random.below(4) * 500;
        let (cut_off, gave_up) = world.load(&mut server, random, style, |server, load| {
            load.work(work, writes)?;
            load.strike();
            server.signal("-STOP")?;
            process::pass(pause)?;
            server.signal("-CONT")?;
            // Who comes now is served, and so are those who waited and were not cut off.
            Wire::connect(server.address, ANSWER_MAX)?.get(&[crate::account::STOCK.to_vec()])?;
            let writes = load.writes.get();
            let is_served = || {
                let left = load.cut_off.get() + load.gave_up.get();
                load.writes.get() > writes + 500 || left == WRITERS as u64
            };
            process::wait(ANSWER_MAX, is_served)?
                .then_some((load.cut_off.get(), load.gave_up.get()))
                .ok_or("nobody was served after the stop".into())
        })?;
        self.paused += pause;
        self.cut_off += cut_off;
        self.gave_up += gave_up;
        let unknown = world.unknown();
        world.check(server.address)?;
        let is_clean = random.once_in(2);
        if is_clean {
            server.stop()?;
        } else {
            server.kill()?;
        }
        world.inspect(binary, &data)?;
        let mut server = Server::start(binary, &data, setting)?;
        world.settle(server.address)?;
        server.stop()?;
        Ok(Done {
            text: format!(
                "stopped for {:5.1} s, {gave_up:2} gave up, {cut_off:2} cut off",
                pause.as_secs_f64()
            ),
            kills: u64::from(!is_clean),
            acked: world.acked() - before,
            unknown,
        })
    }

    fn totals(&self) -> String {
        format!(
            "{:.0} s stopped, {} clients gave up, {} connections cut off",
            self.paused.as_secs_f64(),
            self.gave_up,
            self.cut_off
        )
    }
}

//! `kill -9`, sometimes SIGTERM, sometimes while the server starts.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::account::Style;
use crate::options::Setting;
use crate::server::Server;
use crate::wire::ANSWER_MAX;
use crate::world::World;
use crate::{Done, Kind, Turn, process};

/// Writers that wait for every answer.
pub const PATIENT: Style = Style {
    answer_max: ANSWER_MAX,
    gives_up: false,
    deadline_ms_max: 0,
};

pub struct Kill {
    folder: PathBuf,
    worlds: Vec<World>,
    torn: u64,
}

impl Kill {
    pub fn new(folder: PathBuf, settings: &[Setting]) -> Kill {
        Kill {
            folder,
            worlds: settings
                .iter()
                .map(|&setting| World::new(setting))
                .collect(),
            torn: 0,
        }
    }
}

impl Kind for Kill {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn { binary, random, .. } = turn;
        let world = &mut self.worlds[turn.which];
        let setting = world.setting;
        let data = self
            .folder
            .join(format!("{}-{}", setting.shards, setting.io));
        let mut kills = 0;
        // A fresh directory now and then, so that first segments are met as often as old ones.
        if random.once_in(12) && data.exists() {
            fs::remove_dir_all(&data).map_err(|error| error.to_string())?;
            world.forget();
        }
        // Now and then the start itself is killed: recovery must survive a crash of its own.
        if world.is_prepared() && random.once_in(4) {
            let mut server = Server::spawn(binary, &data, setting)?;
            process::pass(Duration::from_millis(random.below(400)))?;
            server.kill()?;
            kills += 1;
        }
        let mut server = Server::start(binary, &data, setting)?;
        let is_clean = random.once_in(6);
        let work = Duration::from_millis(50 + random.below(900));
        let writes = random.below(4) * 500;
        let before = world.acked();
        world.load(
            &mut server,
            random,
            |_| PATIENT,
            |server, load| {
                load.work(work, writes)?;
                load.strike();
                if is_clean {
                    server.stop()
                } else {
                    server.kill()
                }
            },
        )?;
        kills += u64::from(!is_clean);
        let unknown = world.unknown();
        world.inspect(binary, &data)?;
        let mut server = Server::start(binary, &data, setting)?;
        self.torn += u64::from(server.found_torn());
        world.settle(server.address)?;
        if random.once_in(2) {
            server.kill()?;
            kills += 1;
        } else {
            server.stop()?;
        }
        Ok(Done {
            text: if is_clean { "SIGTERM" } else { "kill -9" }.into(),
            kills,
            acked: world.acked() - before,
            unknown,
        })
    }

    fn totals(&self) -> String {
        format!("{} torn tails met", self.torn)
    }
}

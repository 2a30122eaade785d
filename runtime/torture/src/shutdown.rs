//! Power cuts: everything that was not flushed is gone at once.

use std::path::PathBuf;
use std::time::Duration;

use crate::kill::PATIENT;
use crate::options::Setting;
use crate::server::Server;
use crate::volume::{Cut, FileSystem, ForgetfulDisk};
use crate::world::World;
use crate::{Done, Kind, Turn, process};

pub struct Shutdown {
    folder: PathBuf,
    file_system: FileSystem,
    sites: Vec<Site>,
    /// Cuts of the file system and of the device, and rounds by each way of syncing.
    cuts: [u64; 2],
    methods: [u64; 2],
    torn: u64,
}

/// A world and its disk, which is made anew now and then.
struct Site {
    world: World,
    disk: Option<ForgetfulDisk>,
}

impl Shutdown {
    pub fn new(folder: PathBuf, file_system: FileSystem, settings: &[Setting]) -> Shutdown {
        let site = |&setting| Site {
            world: World::new(setting),
            disk: None,
        };
        Shutdown {
            folder,
            file_system,
            sites: settings.iter().map(site).collect(),
            cuts: [0; 2],
            methods: [0; 2],
            torn: 0,
        }
    }
}

impl Kind for Shutdown {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn { binary, random, .. } = turn;
        let Site { world, disk } = &mut self.sites[turn.which];
        let setting = world.setting;
        let mut disk = match disk.take() {
            Some(mut disk) if !random.once_in(6) => {
                disk.mount()?;
                disk
            }
            older => {
                drop(older);
                world.forget();
                let folder = format!("{}-{}", setting.shards, setting.io);
                ForgetfulDisk::make(self.file_system, &self.folder.join(folder))?
            }
        };
        let data = disk.place().join("data");
        let mut choose = |random: &mut crate::Random| {
            // The device more often: its cut takes whatever the other takes, and more.
            let cut = [Cut::Device, Cut::FileSystem][usize::from(random.once_in(3))];
            self.cuts[usize::from(cut == Cut::Device)] += 1;
            cut
        };
        let mut kills = 0;
        // Now and then the power goes while the server starts.
        if world.is_prepared() && random.once_in(4) {
            let mut server = Server::spawn(binary, &data, setting)?;
            process::pass(Duration::from_millis(random.below(400)))?;
            disk.cut(choose(random))?;
            server.kill()?;
            kills += 1;
            disk.restore()?;
        }
        let mut server = Server::start(binary, &data, setting)?;
        self.methods[usize::from(server.syncs_after_writes())] += 1;
        let cut = choose(random);
        let work = Duration::from_millis(50 + random.below(900));
        let writes = random.below(4) * 500;
        // Sometimes the server is given time to acknowledge what can no longer become durable.
        let agony = Duration::from_millis(random.below(2) * random.below(300));
        let before = world.acked();
        world.load(
            &mut server,
            random,
            |_| PATIENT,
            |server, load| {
                load.work(work, writes)?;
                load.strike();
                disk.cut(cut)?;
                process::pass(agony)?;
                server.kill()
            },
        )?;
        kills += 1;
        let unknown = world.unknown();
        disk.restore()?;
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
        disk.unmount()?;
        self.sites[turn.which].disk = Some(disk);
        Ok(Done {
            text: format!("cut of the {:11}", cut.name()),
            kills,
            acked: self.sites[turn.which].world.acked() - before,
            unknown,
        })
    }

    fn totals(&self) -> String {
        format!(
            "{} cuts of the {} file system, {} of the device below it, {} torn tails met, {} \
             rounds with durable writes, {} with fdatasync",
            self.cuts[0],
            self.file_system.name(),
            self.cuts[1],
            self.torn,
            self.methods[0],
            self.methods[1]
        )
    }
}

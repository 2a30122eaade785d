//! Every store behind the same two calls, in the same durability class.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use penstock::{Local, Options, Penstock, Verbs};
use penstock_net::level::AckLevel;

use crate::Outcome;

/// What a write has when its call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Lost with the power, for some of them with the process as well.
    None,
    /// The device has it.
    Immediate,
}

impl Class {
    pub fn name(self) -> &'static str {
        match self {
            Class::None => "none",
            Class::Immediate => "immediate",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// On the caller's thread.
    PenstockLocal,
    /// One shard on a thread of its own.
    Penstock,
    GrausDb,
    Surreal06,
    Surreal12,
    Fjall,
    Redb,
    RocksDb,
}

pub const ALL: [Kind; 8] = [
    Kind::PenstockLocal,
    Kind::Penstock,
    Kind::GrausDb,
    Kind::Surreal06,
    Kind::Surreal12,
    Kind::Fjall,
    Kind::Redb,
    Kind::RocksDb,
];

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::PenstockLocal => "Penstock, caller's thread",
            Kind::Penstock => "Penstock, shard thread",
            Kind::GrausDb => "GrausDB 0.2.2",
            Kind::Surreal06 => "SurrealKV 0.6.0",
            Kind::Surreal12 => "SurrealKV 1.2.0",
            Kind::Fjall => "fjall 3.1.13",
            Kind::Redb => "redb 4.5.0",
            Kind::RocksDb => "RocksDB (crate 0.25.0)",
        }
    }

    pub fn is_ours(self) -> bool {
        matches!(self, Kind::PenstockLocal | Kind::Penstock)
    }

    /// Why it has no figure in this class, if so.
    pub fn lacks(self, class: Class) -> Option<&'static str> {
        match (self, class) {
            (Kind::GrausDb, Class::Immediate) => Some("GrausDB never syncs, it has no such class"),
            (Kind::RocksDb, _) if !cfg!(feature = "rocksdb") => {
                Some("built without the feature `rocksdb`")
            }
            _ => None,
        }
    }
}

/// How a store is opened.
#[derive(Clone)]
pub struct Setting {
    pub path: PathBuf,
    pub class: Class,
    /// For values or blocks, in bytes.
    pub cache_bytes: u64,
    /// Reads pass the page cache by, where the store can.
    #[cfg_attr(
        not(feature = "rocksdb"),
        expect(dead_code, reason = "RocksDB alone can")
    )]
    pub reads_directly: bool,
}

/// A store that is open. Dropping it closes it.
pub trait Engine: Send + Sync {
    /// What one thread works with.
    fn handle(&self) -> Outcome<Box<dyn Handle>>;

    /// Reads done on the device so far, where the store counts them itself.
    fn device_reads(&self) -> Option<u64> {
        None
    }
}

/// What one thread works with.
pub trait Handle {
    /// The length of the value, which was made readable to the caller.
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>>;
    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()>;
    /// Adds one to the u64 at the head of the value, in one atomic step where the store has one.
    fn increase(&mut self, key: &[u8]) -> Outcome<()>;
}

pub fn open(kind: Kind, setting: &Setting) -> Outcome<Box<dyn Engine>> {
    std::fs::create_dir_all(&setting.path)?;
    Ok(match kind {
        Kind::PenstockLocal => Box::new(LocalEngine(setting.clone())),
        Kind::Penstock => Box::new(PenstockEngine(Penstock::open(
            &setting.path,
            penstock_options(setting).shards(1),
        )?)),
        Kind::GrausDb => Box::new(GrausEngine(Mutex::new(graus_db::GrausDb::open(
            &setting.path,
        )?))),
        Kind::Surreal06 => Box::new(Surreal06Engine::open(setting)?),
        Kind::Surreal12 => Box::new(Surreal12Engine::open(setting)?),
        Kind::Fjall => Box::new(FjallEngine::open(setting)?),
        Kind::Redb => Box::new(RedbEngine::open(setting)?),
        #[cfg(feature = "rocksdb")]
        Kind::RocksDb => Box::new(RocksEngine::open(setting)?),
        #[cfg(not(feature = "rocksdb"))]
        Kind::RocksDb => return Err("built without the feature `rocksdb`".into()),
    })
}

fn increased(value: &[u8]) -> Outcome<Vec<u8>> {
    let mut value = value.to_vec();
    let head = value
        .first_chunk_mut::<8>()
        .ok_or("a counter has eight bytes")?;
    *head = u64::from_le_bytes(*head).wrapping_add(1).to_le_bytes();
    Ok(value)
}

// ---- Penstock

pub fn penstock_options(setting: &Setting) -> Options {
    Options::default()
        .cache_bytes(setting.cache_bytes)
        .level(match setting.class {
            Class::None => AckLevel::None,
            Class::Immediate => AckLevel::Disk,
        })
}

/// Opened by the one thread that takes a handle, for it runs there.
struct LocalEngine(Setting);

impl Engine for LocalEngine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(Penstock::open_local(
            &self.0.path,
            penstock_options(&self.0),
        )?))
    }
}

impl Handle for Local {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(self.get_with(key, |value, _| std::hint::black_box(value).len())?)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Verbs::set(self, key, value)?;
        Ok(())
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        self.update_if(key, &[penstock_client::Field::u64(0).increase(1)])?;
        Ok(())
    }
}

struct PenstockEngine(Penstock);

impl Engine for PenstockEngine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(self.0.clone()))
    }

    fn device_reads(&self) -> Option<u64> {
        device_reads(&self.0)
    }
}

/// Reads of the device, by INFO.
pub fn device_reads(store: &Penstock) -> Option<u64> {
    let info: serde_json::Value = serde_json::from_str(&store.info().wait().ok()?).ok()?;
    info["counters"]["reads"].as_u64()
}

impl Handle for Penstock {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(self.get_with(key, |value, _| std::hint::black_box(value).len())?)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Verbs::set(&*self, key, value).wait()?;
        Ok(())
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        self.update_if(key, &[penstock_client::Field::u64(0).increase(1)])
            .wait()?;
        Ok(())
    }
}

// ---- GrausDB

/// A clone for each thread; the handle itself cannot be shared.
struct GrausEngine(Mutex<graus_db::GrausDb>);

impl Engine for GrausEngine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(
            self.0.lock().map_err(|_| "a thread panicked")?.clone(),
        ))
    }
}

impl Handle for graus_db::GrausDb {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(graus_db::GrausDb::get(self, key)?.map(|value| std::hint::black_box(value).len()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(graus_db::GrausDb::set(self, key.to_vec(), value)?)
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        let edit = |value: &mut Vec<u8>| {
            if let Some(head) = value.first_chunk_mut::<8>() {
                *head = u64::from_le_bytes(*head).wrapping_add(1).to_le_bytes();
            }
        };
        Ok(self.update_if(key.to_vec(), edit, None, None::<fn(&[u8]) -> bool>)?)
    }
}

// ---- SurrealKV 0.6

fn tasks() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?)
}

struct Surreal06Engine {
    /// Some until it is dropped, which needs the runtime.
    store: Option<Arc<surrealkv06::Store>>,
    class: Class,
    tasks: tokio::runtime::Runtime,
}

impl Surreal06Engine {
    fn open(setting: &Setting) -> Outcome<Surreal06Engine> {
        let tasks = tasks()?;
        let options = surrealkv06::Options {
            dir: setting.path.clone(),
            // As the others: the newest value only. A number of values, by its own documents.
            enable_versions: false,
            max_value_cache_size: setting.cache_bytes / 1024,
            ..surrealkv06::Options::default()
        };
        let store = {
            let _inside = tasks.enter();
            Arc::new(surrealkv06::Store::new(options)?)
        };
        Ok(Surreal06Engine {
            store: Some(store),
            class: setting.class,
            tasks,
        })
    }
}

impl Drop for Surreal06Engine {
    fn drop(&mut self) {
        let _inside = self.tasks.enter();
        if let Some(store) = self.store.take() {
            let _ = self.tasks.handle().block_on(store.close());
        }
    }
}

impl Engine for Surreal06Engine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(Surreal06Handle {
            store: Arc::clone(self.store.as_ref().ok_or("closed")?),
            class: self.class,
            tasks: self.tasks.handle().clone(),
        }))
    }
}

struct Surreal06Handle {
    store: Arc<surrealkv06::Store>,
    class: Class,
    tasks: tokio::runtime::Handle,
}

impl Surreal06Handle {
    fn begin(&self) -> Outcome<surrealkv06::Transaction> {
        let mut transaction = self.store.begin()?;
        transaction.set_durability(match self.class {
            Class::None => surrealkv06::Durability::Eventual,
            Class::Immediate => surrealkv06::Durability::Immediate,
        });
        Ok(transaction)
    }
}

impl Handle for Surreal06Handle {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        let mut transaction = self.store.begin_with_mode(surrealkv06::Mode::ReadOnly)?;
        Ok(transaction
            .get(key)?
            .map(|value| std::hint::black_box(value).len()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut transaction = self.begin()?;
        transaction.insert_or_replace(key, value)?;
        Ok(self.tasks.block_on(transaction.commit())?)
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        let mut transaction = self.begin()?;
        let value = transaction.get(key)?.ok_or("missing")?;
        transaction.insert_or_replace(key, &increased(&value)?)?;
        Ok(self.tasks.block_on(transaction.commit())?)
    }
}

// ---- SurrealKV 1.2

struct Surreal12Engine {
    tree: Arc<surrealkv::Tree>,
    class: Class,
    tasks: tokio::runtime::Runtime,
}

impl Surreal12Engine {
    fn open(setting: &Setting) -> Outcome<Surreal12Engine> {
        let tasks = tasks()?;
        let tree = {
            let _inside = tasks.enter();
            surrealkv::TreeBuilder::new()
                .with_path(setting.path.clone())
                .with_block_cache_capacity(setting.cache_bytes)
                .build()?
        };
        Ok(Surreal12Engine {
            tree: Arc::new(tree),
            class: setting.class,
            tasks,
        })
    }
}

impl Drop for Surreal12Engine {
    fn drop(&mut self) {
        let _ = self.tasks.block_on(self.tree.close());
    }
}

impl Engine for Surreal12Engine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(Surreal12Handle {
            tree: Arc::clone(&self.tree),
            class: self.class,
            tasks: self.tasks.handle().clone(),
        }))
    }
}

struct Surreal12Handle {
    tree: Arc<surrealkv::Tree>,
    class: Class,
    tasks: tokio::runtime::Handle,
}

impl Surreal12Handle {
    fn begin(&self) -> Outcome<surrealkv::Transaction> {
        let durability = match self.class {
            Class::None => surrealkv::Durability::Eventual,
            Class::Immediate => surrealkv::Durability::Immediate,
        };
        Ok(self.tree.begin()?.with_durability(durability))
    }
}

impl Handle for Surreal12Handle {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        let transaction = self.tree.begin_with_mode(surrealkv::Mode::ReadOnly)?;
        Ok(transaction
            .get(key)?
            .map(|value| std::hint::black_box(value).len()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut transaction = self.begin()?;
        transaction.set(key, value)?;
        Ok(self.tasks.block_on(transaction.commit())?)
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        let mut transaction = self.begin()?;
        let value = transaction.get(key)?.ok_or("missing")?;
        transaction.set(key, increased(&value)?)?;
        Ok(self.tasks.block_on(transaction.commit())?)
    }
}

// ---- fjall

struct FjallEngine {
    database: fjall::Database,
    items: fjall::Keyspace,
    class: Class,
}

impl FjallEngine {
    fn open(setting: &Setting) -> Outcome<FjallEngine> {
        let database = fjall::Database::builder(&setting.path)
            .cache_size(setting.cache_bytes)
            .open()?;
        let items = database.keyspace("items", fjall::KeyspaceCreateOptions::default)?;
        Ok(FjallEngine {
            database,
            items,
            class: setting.class,
        })
    }
}

impl Engine for FjallEngine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(FjallEngine {
            database: self.database.clone(),
            items: self.items.clone(),
            class: self.class,
        }))
    }
}

impl Handle for FjallEngine {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(self
            .items
            .get(key)?
            .map(|value| std::hint::black_box(value).len()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.items.insert(key, value)?;
        if self.class == Class::Immediate {
            self.database.persist(fjall::PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        let value = self.items.get(key)?.ok_or("missing")?;
        let value = increased(&value)?;
        self.set(key, &value)
    }
}

// ---- redb

const ITEMS: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("items");

struct RedbEngine {
    database: Arc<redb::Database>,
    class: Class,
}

impl RedbEngine {
    fn open(setting: &Setting) -> Outcome<RedbEngine> {
        let database = redb::Builder::new()
            .set_cache_size(usize::try_from(setting.cache_bytes)?)
            .create(setting.path.join("data.redb"))?;
        let transaction = database.begin_write()?;
        transaction.open_table(ITEMS)?;
        transaction.commit()?;
        Ok(RedbEngine {
            database: Arc::new(database),
            class: setting.class,
        })
    }

    fn begin(&self) -> Outcome<redb::WriteTransaction> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(match self.class {
            Class::None => redb::Durability::None,
            Class::Immediate => redb::Durability::Immediate,
        })?;
        Ok(transaction)
    }
}

impl Engine for RedbEngine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        Ok(Box::new(RedbEngine {
            database: Arc::clone(&self.database),
            class: self.class,
        }))
    }
}

impl Handle for RedbEngine {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        use redb::ReadableDatabase;
        let table = self.database.begin_read()?.open_table(ITEMS)?;
        let value = table.get(key)?;
        Ok(value.map(|value| std::hint::black_box(value.value()).len()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let transaction = self.begin()?;
        transaction.open_table(ITEMS)?.insert(key, value)?;
        Ok(transaction.commit()?)
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        use redb::ReadableTable;
        let transaction = self.begin()?;
        {
            let mut table = transaction.open_table(ITEMS)?;
            let value = increased(table.get(key)?.ok_or("missing")?.value())?;
            table.insert(key, value.as_slice())?;
        }
        Ok(transaction.commit()?)
    }
}

// ---- RocksDB

#[cfg(feature = "rocksdb")]
struct RocksEngine {
    database: Arc<rocksdb::DB>,
    class: Class,
}

#[cfg(feature = "rocksdb")]
impl RocksEngine {
    fn open(setting: &Setting) -> Outcome<RocksEngine> {
        let mut blocks = rocksdb::BlockBasedOptions::default();
        blocks.set_block_cache(&rocksdb::Cache::new_lru_cache(usize::try_from(
            setting.cache_bytes,
        )?));
        blocks.set_bloom_filter(10.0, false);
        // Its index and filters count as memory too.
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_max_background_jobs(2);
        if setting.reads_directly {
            options.set_use_direct_reads(true);
            options.set_use_direct_io_for_flush_and_compaction(true);
        }
        Ok(RocksEngine {
            database: Arc::new(rocksdb::DB::open(&options, &setting.path)?),
            class: setting.class,
        })
    }
}

#[cfg(feature = "rocksdb")]
impl Engine for RocksEngine {
    fn handle(&self) -> Outcome<Box<dyn Handle>> {
        let mut write = rocksdb::WriteOptions::default();
        write.set_sync(self.class == Class::Immediate);
        Ok(Box::new(RocksHandle {
            database: Arc::clone(&self.database),
            write,
        }))
    }
}

#[cfg(feature = "rocksdb")]
struct RocksHandle {
    database: Arc<rocksdb::DB>,
    write: rocksdb::WriteOptions,
}

#[cfg(feature = "rocksdb")]
impl Handle for RocksHandle {
    fn get(&mut self, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(self
            .database
            .get_pinned(key)?
            .map(|value| std::hint::black_box(&*value).len()))
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.database.put_opt(key, value, &self.write)?)
    }

    fn increase(&mut self, key: &[u8]) -> Outcome<()> {
        // In one expression: the pinned block must be given back before the write.
        let value = increased(&self.database.get_pinned(key)?.ok_or("missing")?)?;
        self.set(key, &value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_keeps_counts_and_answers_what_was_written_also_after_a_restart() {
        for kind in ALL {
            for class in [Class::None, Class::Immediate] {
                if kind.lacks(class).is_some() {
                    continue;
                }
                let scratch = crate::scratch::Scratch::new(None).unwrap();
                let setting = Setting {
                    path: scratch.fresh("data").unwrap(),
                    class,
                    cache_bytes: 8 << 20,
                    reads_directly: false,
                };
                {
                    let engine = open(kind, &setting).unwrap();
                    let mut handle = engine.handle().unwrap();
                    handle.set(b"key-0001", &[0; 100]).unwrap();
                    handle.increase(b"key-0001").unwrap();
                    assert_eq!(handle.get(b"key-0001").unwrap(), Some(100), "{kind:?}");
                    assert_eq!(handle.get(b"key-0002").unwrap(), None, "{kind:?}");
                }
                // redb without durability forgets what no later commit made durable, as it says.
                if (kind, class) == (Kind::Redb, Class::None) {
                    continue;
                }
                let engine = open(kind, &setting).unwrap();
                let mut handle = engine.handle().unwrap();
                assert_eq!(
                    handle.get(b"key-0001").unwrap(),
                    Some(100),
                    "{kind:?} {class:?}"
                );
            }
        }
    }
}

//! How a fuzz target runs: every kept input first, then inputs made from them by chance for a
//! while.
//!
//! `cargo test` needs nothing but the toolchain. `PENSTOCK_FUZZ_SECONDS` (1 if it is not set) is
//! the time of chance of each target. `PENSTOCK_FUZZ_SEED` (1) draws the same inputs each time, so
//! that a rare old fault does not fail a run that has nothing to do with it; the word `chance`
//! draws others each time. libFuzzer, which sees what code an input reaches, does the
//! same for as long as one likes, with a stable toolchain too:
//!
//! ```text
//! cargo install cargo-bolero
//! cargo bolero test frames -p penstock-net --rustc-bootstrap -T 1h
//! ```
//!
//! Kept inputs stand in `__fuzz__/NAME/corpus` beside the target. Those that have a name were
//! written by a test of the targets under `PENSTOCK_WRITE_CORPUS=1`; those that are named by a hash
//! were found. What failed once stands in `crashes` until it is mended, and is kept then.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Declares a target: its name, which is that of its folder, and what judges one input by
/// panicking.
#[macro_export]
macro_rules! target {
    ($name:ident, $folder:literal, $judge:path) => {
        #[test]
        fn $name() {
            // Returns at once where the engine only asks which targets there are.
            let check = ::bolero::check!(name = stringify!($name));
            let kept = $crate::target::kept(
                concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder),
                stringify!($name),
            );
            for (path, input) in &kept {
                $crate::target::attempt(path, input, $judge);
            }
            let judged = |input: &[u8]| $crate::target::judge(&kept, input, $judge);
            match $crate::target::seed() {
                Some(seed) => $crate::target::draw(seed, judged),
                None => check
                    .with_shrink_time(::std::time::Duration::ZERO)
                    .with_test_time($crate::target::time())
                    .for_each(judged),
            }
        }
    };
}

/// The time of chance of one target.
pub fn time() -> Duration {
    let seconds = std::env::var("PENSTOCK_FUZZ_SECONDS").map_or(1, |text| {
        text.parse()
            .expect("PENSTOCK_FUZZ_SECONDS is a number of seconds")
    });
    Duration::from_secs(seconds)
}

/// The seed of the inputs, unless an engine or chance draws them.
pub fn seed() -> Option<u64> {
    if std::env::var_os("BOLERO_LIBFUZZER_ARGS").is_some() {
        return None;
    }
    match std::env::var("PENSTOCK_FUZZ_SEED").as_deref() {
        Err(_) => Some(1),
        Ok("chance") => None,
        Ok(seed) => {
            let seed = seed.parse();
            Some(seed.expect("PENSTOCK_FUZZ_SEED is a number or the word chance"))
        }
    }
}

/// Bytes that are drawn for the edits of one input.
const DRAWN_BYTES: usize = 512;

/// Judges what a seed draws, for the time of chance.
pub fn draw(seed: u64, judged: impl Fn(&[u8])) {
    let began = Instant::now();
    let mut state = seed;
    while began.elapsed() < time() {
        let mut bytes = [0; DRAWN_BYTES];
        for word in bytes.as_chunks_mut().0 {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            *word = (mixed ^ (mixed >> 31)).to_le_bytes();
        }
        judged(&bytes);
    }
}

fn corpus(folder: &str, target: &str) -> PathBuf {
    Path::new(folder)
        .join("__fuzz__")
        .join(target)
        .join("corpus")
}

/// The kept inputs of a target in the order of their names, and those that an engine found to
/// fail; a target without any proves nothing.
pub fn kept(folder: &str, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let corpus = corpus(folder, target);
    let files = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = files(&corpus)
        .chain(files(&corpus.with_file_name("crashes")))
        .map(|file| file.expect("a file of the corpus").path())
        .collect();
    paths.sort_unstable();
    assert!(!paths.is_empty(), "nothing is kept in {}", corpus.display());
    let read = |path: PathBuf| {
        let input = std::fs::read(&path).expect("a kept input can be read");
        (path, input)
    };
    paths.into_iter().map(read).collect()
}

/// Judges a kept input and names its file if it fails.
pub fn attempt(path: &Path, input: &[u8], judge: fn(&[u8])) {
    let named = OnPanic(|| eprintln!("failed on {}", path.display()));
    judge(input);
    drop(named);
}

/// Judges what an engine proposes: by libFuzzer as it is, by chance as edits of a kept input.
pub fn judge(kept: &[(PathBuf, Vec<u8>)], proposed: &[u8], judge: fn(&[u8])) {
    if std::env::var_os("BOLERO_LIBFUZZER_ARGS").is_some() {
        return judge(proposed);
    }
    let input = edited(kept, &mut Choices::new(proposed));
    let shown = OnPanic(|| {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("failed on the input below; keep it in the corpus (xxd -r -p)\n{hex}");
    });
    judge(&input);
    drop(shown);
}

/// Says what it was that failed.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Bytes of an input made by chance, at most.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// A kept input with a few edits.
fn edited(kept: &[(PathBuf, Vec<u8>)], choices: &mut Choices<'_>) -> Vec<u8> {
    let mut bytes = kept[choices.below(kept.len())].1.clone();
    for _ in 0..=choices.below(8) {
        let at = choices.below(bytes.len() + 1);
        match choices.below(10) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << choices.below(8),
            2 if at < bytes.len() => bytes[at] = choices.byte(),
            3 => {
                let number = choices.number().to_le_bytes();
                let width = 1 << choices.below(4);
                for (byte, new) in bytes[at..].iter_mut().zip(&number[..width]) {
                    *byte = *new;
                }
            }
            4 => bytes.truncate(at),
            5 => {
                let end = (at + choices.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let new = choices.bytes(16).to_vec();
                bytes.splice(at..at, new);
            }
            7 => {
                let from = choices.below(bytes.len() + 1);
                let end = (from + choices.below(64)).min(bytes.len());
                let copy = bytes[from..end].to_vec();
                bytes.splice(at..at, copy);
            }
            8 => {
                let other = &kept[choices.below(kept.len())].1;
                let from = choices.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.extend_from_slice(choices.bytes(16)),
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

/// Bytes read as decisions; behind their end every decision is zero.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices { bytes }
    }

    /// Whether nothing is left to decide with.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is left, as it is.
    pub fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// The next bytes, at most `len`.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// A number below `end`, by one byte if that can tell, otherwise by four.
    pub fn below(&mut self, end: usize) -> usize {
        let len = if end <= 256 { 1 } else { 4 };
        let mut number = [0; 4];
        let taken = self.bytes(len);
        number[..taken.len()].copy_from_slice(taken);
        u32::from_le_bytes(number) as usize % end.max(1)
    }

    /// A number of 64 bits, mostly one that lies at a border.
    pub fn number(&mut self) -> u64 {
        let shift = self.byte();
        let near = 1u64
            .rotate_left(u32::from(shift % 64))
            .wrapping_add_signed(i64::from(self.byte().cast_signed() % 4));
        match shift >> 6 {
            0 => u64::from(shift),
            1 => near,
            2 => near.wrapping_neg(),
            _ => {
                let mut number = [0; 8];
                let taken = self.bytes(8);
                number[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(number)
            }
        }
    }
}

/// Writes the named inputs of a target, or compares them with those that are kept.
pub fn keep(folder: &str, target: &str, inputs: &[(String, Vec<u8>)]) {
    let folder = corpus(folder, target);
    let writes = std::env::var_os("PENSTOCK_WRITE_CORPUS").is_some();
    if writes {
        std::fs::create_dir_all(&folder).expect("the folder of the corpus");
    }
    for (name, input) in inputs {
        let path = folder.join(name);
        if writes {
            std::fs::write(&path, input).expect("a kept input can be written");
        }
        let kept = std::fs::read(&path).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; PENSTOCK_WRITE_CORPUS=1 writes it",
                path.display()
            )
        });
        assert_eq!(
            &kept,
            input,
            "{} is not what the code makes now",
            path.display()
        );
    }
}

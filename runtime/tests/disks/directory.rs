use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use penstock::directory::{Directory, DirectoryError, DirectoryOptions};
use penstock_storage::io::SegmentSource;
use penstock_storage::place::FileId;

use crate::{Folder, options};

/// The error of an open that must fail, on one line, and the proof that IDENTITY did not change.
fn refused(path: &Path, options: DirectoryOptions) -> (DirectoryError, String) {
    let before = fs::read(path.join("IDENTITY")).ok();
    let error = Directory::open(path, options).expect_err("this must be refused");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    assert!(
        text.contains(&*path.to_string_lossy()),
        "names the path: {text}"
    );
    assert_eq!(
        fs::read(path.join("IDENTITY")).ok(),
        before,
        "a refusal changes nothing"
    );
    (error, text)
}

#[test]
fn a_new_directory_is_private_complete_and_in_its_first_incarnation() {
    let folder = Folder::new("new_directory");
    let path = folder.path().join("above/data");
    let directory = Directory::open(&path, options()).expect("open");
    assert!(directory.is_new());
    let identity = directory.identity().clone();
    assert_eq!((identity.incarnation, identity.log_count), (1, 2));
    assert_eq!(identity.segment_bytes, 1 << 20);
    assert_ne!(identity.cluster_id, identity.node_id);
    assert_eq!(
        fs::metadata(&path).expect("it is there").mode() & 0o777,
        0o700
    );
    assert_eq!(
        fs::metadata(path.join("IDENTITY"))
            .expect("it is there")
            .len(),
        4096
    );
    assert!(directory.segments().list().expect("list").is_empty());
    let leftovers = fs::read_dir(path.join("segments")).expect("list").count();
    assert_eq!(leftovers, 0);
}

#[test]
fn the_identity_survives_and_the_incarnation_rises_with_each_start() {
    let folder = Folder::new("incarnations");
    let path = folder.path().join("data");
    let first = Directory::open(&path, options())
        .expect("open")
        .identity()
        .clone();
    for incarnation in 2..5 {
        let larger = DirectoryOptions {
            segment_bytes: 2 << 20,
            ..options()
        };
        let directory = Directory::open(&path, larger).expect("open");
        assert!(!directory.is_new());
        let identity = directory.identity().clone();
        assert_eq!(identity.incarnation, incarnation);
        assert_eq!(
            identity.segment_bytes,
            2 << 20,
            "new segments have the size now asked for"
        );
        assert_eq!(
            (
                identity.cluster_id,
                identity.node_id,
                identity.log_count,
                identity.created_ms
            ),
            (
                first.cluster_id,
                first.node_id,
                first.log_count,
                first.created_ms
            )
        );
    }
}

#[test]
fn a_directory_in_use_is_refused_by_the_pid_of_its_user_and_free_afterwards() {
    let folder = Folder::new("locked");
    let path = folder.path().join("data");
    let held = Directory::open(&path, options()).expect("open");
    let (error, text) = refused(&path, options());
    assert!(matches!(error, DirectoryError::Locked { pid, .. } if pid == Some(std::process::id())));
    assert!(
        text.contains(&format!("in use by process {}", std::process::id())),
        "{text}"
    );
    let error = Directory::inspect(&path).expect_err("inspection waits its turn too");
    assert!(matches!(error, DirectoryError::Locked { .. }));
    drop(held);
    Directory::open(&path, options()).expect("it is free again");
}

/// Does something to LOCK in a directory.
type Meddle = fn(&Path);

/// What a clean-up job or a person does to LOCK.
const MEDDLED: [(&str, Meddle); 3] = [
    ("rm", |path| fs::remove_file(path.join("LOCK")).unwrap()),
    ("mv", |path| {
        fs::rename(path.join("LOCK"), path.join("LOCK.old")).unwrap();
    }),
    ("replaced", |path| {
        fs::write(path.join("LOCK.new"), "1\n").unwrap();
        fs::rename(path.join("LOCK.new"), path.join("LOCK")).unwrap();
    }),
];

/// Whether each way to open a directory says that it is in use.
fn is_in_use_for_all(path: &Path) -> bool {
    let errors = [
        Directory::open(path, options()).err(),
        Directory::inspect(path).err(),
        Directory::repair(path).err(),
        Directory::without_identity(path).err(),
    ];
    errors
        .iter()
        .all(|it| matches!(it, Some(DirectoryError::Locked { .. })))
}

#[test]
fn a_directory_in_use_is_refused_whatever_became_of_its_file_lock_and_by_whatever_path() {
    let folder = Folder::new("lock_gone");
    let path = folder.path().join("data");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("link");
    for (how, meddle) in MEDDLED {
        let held = Directory::open(&path, options()).expect("open");
        meddle(&path);
        assert!(is_in_use_for_all(&path), "{how}");
        assert!(is_in_use_for_all(&link), "{how}, by a symbolic link");
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).expect("move");
        assert!(is_in_use_for_all(&elsewhere), "{how}, moved");
        fs::rename(&elsewhere, &path).expect("move back");
        drop(held);
        Directory::open(&path, options()).expect("it is free again");
    }
    // The same of one that is only read.
    let held = Directory::inspect(&path).expect("look");
    fs::remove_file(path.join("LOCK")).expect("remove");
    assert!(is_in_use_for_all(&path));
    drop(held);
    let held = Directory::inspect(&path).expect("look where no LOCK is");
    assert!(is_in_use_for_all(&path));
    drop(held);
}

#[test]
fn a_garbage_identity_is_refused_with_what_is_wrong_and_how_to_mend_it() {
    let folder = Folder::new("garbage");
    let path = folder.path().join("data");
    drop(Directory::open(&path, options()).expect("open"));
    let good = fs::read(path.join("IDENTITY")).expect("read");

    let mut flipped = good.clone();
    flipped[60] ^= 1;
    let longer = [&good[..], &[0]].concat();
    let cases: [(&[u8], &str); 5] = [
        (b"", "does not begin with PENSTOCK"),
        (&[0xee; 4096], "does not begin with PENSTOCK"),
        (&good[..100], "100 bytes long, not as many"),
        (&longer, "4097 bytes long, not as many"),
        (&flipped, "checksum disagrees"),
    ];
    for (contents, cause) in cases {
        fs::write(path.join("IDENTITY"), contents).expect("write");
        let (error, text) = refused(&path, options());
        assert!(matches!(error, DirectoryError::Damaged { .. }));
        assert!(text.contains(cause) && text.contains("restore"), "{text}");
    }
    fs::write(path.join("IDENTITY"), good).expect("write");
    Directory::open(&path, options()).expect("the good one is taken again");
}

#[test]
fn another_format_version_is_named_with_the_one_this_build_reads() {
    let folder = Folder::new("version");
    let path = folder.path().join("data");
    drop(Directory::open(&path, options()).expect("open"));
    let mut identity = fs::read(path.join("IDENTITY")).expect("read");
    identity[8] = 9;
    fs::write(path.join("IDENTITY"), identity).expect("write");
    let (_, text) = refused(&path, options());
    assert!(
        text.contains("format version 9, and this build reads versions up to 2"),
        "{text}"
    );
}

#[test]
fn a_directory_keeps_its_logs_until_its_layout_is_changed() {
    let folder = Folder::new("shards");
    let path = folder.path().join("data");
    drop(Directory::open(&path, options()).expect("open"));
    let other = DirectoryOptions {
        shards_of_new: 3,
        ..options()
    };
    let mut directory = Directory::open(&path, other).expect("the logs stay");
    let layout = directory.identity().layout().expect("few shards");
    assert_eq!(layout.own(), 1..3);
    let changed = layout.changed_to(3, []);
    directory.change_layout(&changed).expect("change");
    drop(directory);
    let directory = Directory::open(&path, options()).expect("open");
    assert_eq!(directory.identity().layout(), Some(changed));
    assert_eq!(directory.identity().incarnation, 3);
}

#[test]
fn a_strangers_directory_is_left_alone() {
    let folder = Folder::new("foreign");
    let path = folder.path().join("photos");
    fs::create_dir(&path).expect("create");
    fs::write(path.join("beach.jpg"), "x").expect("write");
    let (_, text) = refused(&path, options());
    assert!(text.contains("holds 'beach.jpg' and no IDENTITY"), "{text}");
    let names = fs::read_dir(&path).expect("list").count();
    assert_eq!(names, 1, "nothing was put beside it");
}

#[test]
fn segments_without_an_identity_are_not_taken_for_a_fresh_directory() {
    let folder = Folder::new("lost_identity");
    let path = folder.path().join("data");
    drop(Directory::open(&path, options()).expect("open"));
    fs::write(path.join("segments/00000001.seg"), "records").expect("write");
    fs::remove_file(path.join("IDENTITY")).expect("remove");
    let (_, text) = refused(&path, options());
    assert!(text.contains("holds 'segments' and no IDENTITY"), "{text}");
}

#[test]
fn an_interrupted_first_start_is_begun_anew() {
    let folder = Folder::new("interrupted");
    let path = folder.path().join("data");
    fs::create_dir_all(path.join("segments")).expect("create");
    fs::create_dir(path.join("lost+found")).expect("create");
    fs::write(path.join("LOCK"), "").expect("write");
    fs::write(path.join("IDENTITY.tmp"), "half").expect("write");
    let directory = Directory::open(&path, options()).expect("open");
    assert_eq!(directory.identity().incarnation, 1);
}

/// A crash leaves the old file, perhaps beside a beginning of the new one, or the new file.
#[test]
fn a_crash_at_any_step_of_a_replacement_leaves_the_old_identity_or_the_new_one() {
    let folder = Folder::new("replacement");
    let path = folder.path().join("data");
    let (file, tmp) = (path.join("IDENTITY"), path.join("IDENTITY.tmp"));
    let mut directory = Directory::open(&path, options()).expect("open");
    let first = directory.identity().clone();
    directory.accept_values(1, 1 << 20).expect("nothing to do");
    assert_eq!(*directory.identity(), first);
    let old = fs::read(&file).expect("read");
    directory
        .accept_values(2 << 20, 1 << 20)
        .expect("larger ones");
    drop(directory);
    let new = fs::read(&file).expect("read");
    assert_ne!(old, new);
    for cut in [0, 1, 92, 95, 96, 4091, 4096] {
        fs::write(&file, &old).expect("write");
        fs::write(&tmp, &new[..cut]).expect("write");
        let opened = Directory::open(&path, options()).expect("open");
        assert_eq!(opened.identity().value_bytes_max, 1, "cut at {cut}");
        assert_eq!(opened.identity().incarnation, 2);
    }
    fs::write(&file, &new).expect("write");
    let opened = Directory::open(&path, options()).expect("open");
    assert_eq!(opened.identity().value_bytes_max, 2 << 20);
    assert_eq!(opened.identity().node_id, first.node_id);
    // The file of the start before keeps its room, whole or not.
    assert_eq!(fs::read(&tmp).expect("read"), new);
}

#[test]
fn an_identity_of_the_first_version_is_opened_and_replaced_by_one_of_the_second() {
    let folder = Folder::new("first_version");
    let path = folder.path().join("data");
    let options = DirectoryOptions {
        segment_bytes: 4 << 20,
        ..options()
    };
    let first = Directory::open(&path, options)
        .expect("open")
        .identity()
        .clone();
    let mut file = fs::read(path.join("IDENTITY")).expect("read");
    file[8] = 1;
    file[80..96].fill(0);
    let crc = crc32fast::hash(&file[..4092]);
    file[4092..].copy_from_slice(&crc.to_le_bytes());
    fs::write(path.join("IDENTITY"), &file).expect("write");
    let found = Directory::inspect(&path)
        .expect("look")
        .identity()
        .value_bytes_max;
    assert_eq!(found, 0);
    let opened = Directory::open(&path, options)
        .expect("open")
        .identity()
        .clone();
    assert_eq!(fs::read(path.join("IDENTITY")).expect("read")[8], 2);
    assert_eq!(opened.node_id, first.node_id);
    assert_eq!(opened.incarnation, 2);
    // Four records of two such values fit in a segment.
    assert!((500 << 10..512 << 10).contains(&opened.value_bytes_max));
}

#[test]
fn a_file_in_the_way_is_named_as_such() {
    let folder = Folder::new("in_the_way");
    let path = folder.path().join("file");
    fs::write(&path, "x").expect("write");
    for path in [path.clone(), path.join("below")] {
        let (_, text) = refused(&path, options());
        assert!(
            text.contains("not a directory; name another with --data"),
            "{text}"
        );
    }
}

#[test]
fn a_directory_of_another_user_is_refused_with_the_command_that_mends_it() {
    let folder = Folder::new("denied");
    let path = folder.path().join("data");
    fs::create_dir(&path).expect("create");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).expect("chmod");
    if fs::write(path.join("LOCK"), "").is_ok() {
        eprintln!("SKIPPED: permissions do not hold this user back (root)");
        return;
    }
    let (_, text) = refused(&path, options());
    assert!(
        text.contains("has no permission to") && text.contains("chmod -R u+rwX"),
        "{text}"
    );
}

#[test]
fn what_is_refused_names_who_may_not_whose_it_is_and_the_command_to_paste() {
    let denied = |owner, is_new| {
        let error = DirectoryError::Denied {
            path: "/srv/my data/PEERS".into(),
            action: "read",
            data: "/srv/my data".into(),
            is_new,
            owner,
            user: 998,
        };
        error.to_string()
    };
    assert_eq!(
        denied(Some(0), false),
        "/srv/my data/PEERS: user 998 has no permission to read it, which belongs to user 0; run: \
         chown -R 998 '/srv/my data' (as root), or name another directory with --data"
    );
    assert_eq!(
        denied(Some(998), false),
        "/srv/my data/PEERS: user 998 has no permission to read it, though it is the owner; run: \
         chmod -R u+rwX '/srv/my data' (as root), or name another directory with --data"
    );
    assert_eq!(
        denied(None, false),
        "/srv/my data/PEERS: user 998 has no permission to read it; run: chown -R 998 '/srv/my \
         data' (as root), or name another directory with --data"
    );
    assert_eq!(
        denied(None, true),
        "/srv/my data/PEERS: user 998 has no permission to read it; run: install -d -m 0700 -o 998 \
         '/srv/my data' (as root), or name another directory with --data"
    );
}

#[test]
fn inspection_changes_nothing_and_recognizes_an_empty_directory() {
    let folder = Folder::new("inspection");
    let path = folder.path().join("data");
    assert!(Directory::inspect(&path).is_err());
    assert!(!path.exists(), "looking makes nothing");
    fs::create_dir(&path).expect("create");
    assert!(matches!(
        Directory::inspect(&path),
        Err(DirectoryError::Empty { .. })
    ));
    assert_eq!(fs::read_dir(&path).expect("list").count(), 0);

    let identity = Directory::open(&path, options())
        .expect("open")
        .identity()
        .clone();
    let lock = fs::read(path.join("LOCK")).expect("read");
    for _ in 0..2 {
        let directory = Directory::inspect(&path).expect("look");
        assert_eq!(*directory.identity(), identity);
    }
    assert_eq!(fs::read(path.join("LOCK")).expect("read"), lock);
}

#[test]
fn segment_files_are_found_by_their_exact_names_and_leftovers_are_removed() {
    let folder = Folder::new("names");
    let path = folder.path().join("data");
    drop(Directory::open(&path, options()).expect("open"));
    let files = [
        ("00000007.seg", 4096),
        ("01048574.seg", 10),
        ("00000000.seg", 4096),
        ("0000001.seg", 1),
        ("+0000002.seg", 1),
        ("00000003.seg.bak", 1),
        ("00000004.tmp", 1),
    ];
    for (name, bytes) in files {
        fs::write(path.join("segments").join(name), vec![1; bytes]).expect("write");
    }
    let directory = Directory::open(&path, options()).expect("open");
    assert_eq!(
        directory.segments().strangers().expect("list"),
        [
            "+0000002.seg",
            "00000000.seg",
            "00000003.seg.bak",
            "0000001.seg"
        ]
    );
    let mut found = directory.segments().list().expect("list");
    found.sort_unstable();
    assert_eq!(found, [(FileId(7), 4096), (FileId(1_048_574), 10)]);
    assert_eq!(
        directory.segments().next_file().expect("list"),
        FileId(1_048_575)
    );
    assert!(!path.join("segments/00000004.tmp").exists());
    assert!(
        path.join("segments/00000003.seg.bak").exists(),
        "not ours to remove"
    );
}

#[test]
fn a_segment_number_that_no_index_entry_can_hold_is_refused_by_name() {
    let folder = Folder::new("numbers");
    let directory = folder.data();
    fs::write(directory.segments().path(FileId(1 << 20)), [0; 4096]).expect("write");
    let refusal = directory.segments().list().expect_err("too high");
    let text = refusal.to_string();
    assert!(
        text.ends_with("segment number 1048576 is too high: they end at 1048575"),
        "{text}"
    );
}

#[test]
fn recovery_reads_at_any_offset_and_length_and_knows_where_a_file_ends() {
    let folder = Folder::new("reader");
    let directory = folder.data();
    let contents: Vec<u8> = (0..10_000u32).map(|at| at.to_le_bytes()[0]).collect();
    for number in [1, 2] {
        fs::write(directory.segments().path(FileId(number)), &contents).expect("write");
    }
    let mut reader = directory.segments().reader();
    assert_eq!(reader.files().expect("list").len(), 2);
    for (file, offset, bytes, there) in [
        (1, 0, 10_000, 10_000),
        (2, 4097, 33, 33),
        (1, 9_990, 100, 10),
        (2, 20_000, 5, 0),
    ] {
        let mut into = vec![0xee; bytes];
        let moved = reader
            .read_at(FileId(file), offset, &mut into)
            .expect("read");
        assert_eq!(moved, there);
        let begin = usize::try_from(offset).expect("small").min(contents.len());
        assert_eq!(into[..there], contents[begin..begin + there]);
    }
    let error = reader
        .read_at(FileId(3), 0, &mut [0; 8])
        .expect_err("there is no such file");
    assert!(error.to_string().contains("00000003.seg"), "{error}");
}

#[test]
fn a_file_is_cut_and_removed_by_its_number() {
    let folder = Folder::new("cut");
    let directory = folder.data();
    let segments = directory.segments();
    fs::write(segments.path(FileId(4)), vec![1; 8192]).expect("write");
    segments.truncate(FileId(4), 4096).expect("cut");
    assert_eq!(segments.list().expect("list"), [(FileId(4), 4096)]);
    segments.open_file(FileId(4)).expect("open");
    segments.remove(FileId(4)).expect("remove");
    assert!(segments.list().expect("list").is_empty());
    let error = segments.open_file(FileId(4)).expect_err("it is gone");
    assert!(error.to_string().contains("00000004.seg"), "{error}");
}

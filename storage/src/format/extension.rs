//! The extension area of a part: what a part tells besides key, value and expiry, as items with
//! tags. Every byte is described in `FORMAT.md`.

use crate::types::version::Version;

/// Bytes that a part may have of what runs when its key expires, at most.
pub const EFFECTS_BYTES_MAX: usize = 2944;

/// The item that names the version by which a kept version was superseded.
const TAG_SUCCESSOR: u16 = 5;
/// The item with what runs when the key expires.
const TAG_EFFECTS: u16 = TAG_IS_UNDERSTOOD | 4;
/// The item that tells how many changes of its key a part stands for.
const TAG_CHANGES: u16 = TAG_IS_UNDERSTOOD | 6;
/// The item that tells the place of a record in its group.
const TAG_GROUP: u16 = TAG_IS_UNDERSTOOD | 7;
/// Who does not know a tag with this bit cannot use the part.
const TAG_IS_UNDERSTOOD: u16 = 1 << 15;

const HEAD_BYTES: usize = 8;
const ITEM_HEAD_BYTES: usize = 8;
const SUCCESSOR_ITEM_BYTES: usize = ITEM_HEAD_BYTES + 16;
/// Bytes that a successor adds to an area, or makes one of.
pub(super) const SUCCESSOR_AREA_BYTES: usize = HEAD_BYTES + SUCCESSOR_ITEM_BYTES;
/// Bytes of the area of a part that stands for several changes.
pub(crate) const CHANGES_AREA_BYTES: usize = HEAD_BYTES + ITEM_HEAD_BYTES + size_of::<u64>();
const GROUP_ITEM_BYTES: usize = ITEM_HEAD_BYTES + 8;
/// Bytes that a group adds to an area, or makes one of.
pub(crate) const GROUP_AREA_BYTES: usize = HEAD_BYTES + GROUP_ITEM_BYTES;

/// Whether an area can be read: `Some(false)` if an item in it must be understood and is not,
/// `None` if it is damaged.
pub(super) fn check(area: &[u8]) -> Option<bool> {
    let (head, mut items) = area.split_first_chunk::<HEAD_BYTES>()?;
    if usize::from(u16::from_le_bytes([head[0], head[1]])) != area.len() || head[4..] != [0; 4] {
        return None;
    }
    let mut is_known = true;
    for _ in 0..u16::from_le_bytes([head[2], head[3]]) {
        let (item, rest) = items.split_first_chunk::<ITEM_HEAD_BYTES>()?;
        let (tag, len) = tag_and_len(item);
        let padding = rest.get(len..padded(len))?;
        if item[4..] != [0; 4] || padding.iter().any(|&byte| byte != 0) {
            return None;
        }
        let is_ours = matches!(tag, TAG_EFFECTS | TAG_CHANGES | TAG_GROUP);
        is_known &= tag & TAG_IS_UNDERSTOOD == 0 || is_ours;
        items = &rest[padded(len)..];
    }
    items.is_empty().then_some(is_known)
}

/// The version that took the place of the part, if its area tells.
pub(super) fn successor(area: &[u8]) -> Option<Version> {
    let data = item(area, TAG_SUCCESSOR)?.first_chunk::<16>()?;
    let [epoch, _, low, high] = data.as_chunks::<4>().0 else {
        return None;
    };
    Some(Version {
        epoch: u32::from_le_bytes(*epoch),
        sequence: u64::from(u32::from_le_bytes(*high)) << 32 | u64::from(u32::from_le_bytes(*low)),
    })
}

/// What runs when the key of the part expires, if its area tells.
pub(super) fn effects(area: &[u8]) -> Option<&[u8]> {
    item(area, TAG_EFFECTS)
}

/// How many changes the part stands for, if its area tells. 0 if it tells in other than 8 bytes.
pub(super) fn changes(area: &[u8]) -> Option<u64> {
    let data = item(area, TAG_CHANGES)?;
    Some(<[u8; 8]>::try_from(data).map_or(0, u64::from_le_bytes))
}

/// The place of a record in its group. The records of a group are of one commit and stand side by
/// side in one frame; all of them count or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The number of the record in the group, from 0.
    pub ordinal: u16,
    /// Records of the group, at least 2.
    pub count: u16,
}

/// The place of the record in its group, if the area tells. `Some(None)`: it tells none that a
/// record can have.
pub(super) fn group(area: &[u8]) -> Option<Option<Group>> {
    let data = item(area, TAG_GROUP)?;
    let read = |at: usize| Some(u16::from_le_bytes([*data.get(at)?, *data.get(at + 1)?]));
    let group = read(0).zip(read(2));
    let group = group.map(|(ordinal, count)| Group { ordinal, count });
    let is_sound = |group: &Group| group.count > 1 && group.ordinal < group.count;
    Some(group.filter(|group| data.len() == 8 && data[4..] == [0; 4] && is_sound(group)))
}

/// This area, or nothing, and behind its items the one with a place in a group.
pub(crate) fn with_group(area: &[u8], group: Group) -> Vec<u8> {
    let mut with = area.to_vec();
    with.resize(area.len().max(HEAD_BYTES) + GROUP_ITEM_BYTES, 0);
    let items = u16::from_le_bytes([with[2], with[3]]) + 1;
    put_head(&mut with, items);
    let at = with.len() - GROUP_ITEM_BYTES;
    let item = &mut with[at..];
    put_item_head(item, TAG_GROUP, 8);
    item[8..10].copy_from_slice(&group.ordinal.to_le_bytes());
    item[10..12].copy_from_slice(&group.count.to_le_bytes());
    with
}

/// The bytes of an area that has an item with a successor behind the items of this one.
pub(super) fn with_successor_bytes(area: &[u8]) -> usize {
    area.len().max(HEAD_BYTES) + SUCCESSOR_ITEM_BYTES
}

/// Adds the item with a successor to an area, whose bytes stand at the begin of `into`; the other
/// bytes of `into`, as many as [`with_successor_bytes`] says, are zeros.
pub(super) fn add_successor(successor: Version, into: &mut [u8]) {
    let len = into.len();
    let items = u16::from_le_bytes([into[2], into[3]]) + 1;
    put_head(into, items);
    let item = &mut into[len - SUCCESSOR_ITEM_BYTES..];
    put_item_head(item, TAG_SUCCESSOR, 16);
    item[8..12].copy_from_slice(&successor.epoch.to_le_bytes());
    item[16..24].copy_from_slice(&successor.sequence.to_le_bytes());
}

/// An area that has nothing but what runs when a key expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectsArea(Box<[u8]>);

impl EffectsArea {
    /// The area of these effects.
    ///
    /// # Panics
    /// If they have more than [`EFFECTS_BYTES_MAX`] bytes: the caller checks that before.
    #[must_use]
    pub fn new(effects: &[u8]) -> Self {
        assert!(effects.len() <= EFFECTS_BYTES_MAX, "they are bounded");
        let mut area = vec![0; Self::bytes_of(effects.len())];
        put_head(&mut area, 1);
        put_item_head(&mut area[HEAD_BYTES..], TAG_EFFECTS, effects.len());
        area[HEAD_BYTES + ITEM_HEAD_BYTES..][..effects.len()].copy_from_slice(effects);
        EffectsArea(area.into())
    }

    /// Bytes of the area of so many bytes of effects.
    #[must_use]
    pub const fn bytes_of(effects_len: usize) -> usize {
        HEAD_BYTES + ITEM_HEAD_BYTES + padded(effects_len)
    }

    /// The area as it stands in a part.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The effects.
    #[must_use]
    pub fn effects(&self) -> &[u8] {
        effects(&self.0).unwrap_or_default()
    }
}

/// An area that has nothing but how many changes the part stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangesArea([u8; CHANGES_AREA_BYTES]);

impl ChangesArea {
    /// The area of a part of so many changes.
    pub(crate) fn new(changes: u64) -> Self {
        let mut area = [0; CHANGES_AREA_BYTES];
        put_head(&mut area, 1);
        put_item_head(&mut area[HEAD_BYTES..], TAG_CHANGES, size_of::<u64>());
        area[HEAD_BYTES + ITEM_HEAD_BYTES..].copy_from_slice(&changes.to_le_bytes());
        ChangesArea(area)
    }

    /// The area as it stands in a part.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The data of the first item with a tag, in an area that was checked.
fn item(area: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut items = area.get(HEAD_BYTES..)?;
    while let Some((item, rest)) = items.split_first_chunk::<ITEM_HEAD_BYTES>() {
        let (tag, len) = tag_and_len(item);
        if tag == wanted {
            return rest.get(..len);
        }
        items = rest.get(padded(len)..)?;
    }
    None
}

fn tag_and_len(item: &[u8; ITEM_HEAD_BYTES]) -> (u16, usize) {
    let tag = u16::from_le_bytes([item[0], item[1]]);
    (tag, u16::from_le_bytes([item[2], item[3]]).into())
}

fn put_head(area: &mut [u8], items: u16) {
    let len = u16::try_from(area.len()).expect("an area is bounded");
    area[0..2].copy_from_slice(&len.to_le_bytes());
    area[2..4].copy_from_slice(&items.to_le_bytes());
}

fn put_item_head(item: &mut [u8], tag: u16, len: usize) {
    let len = u16::try_from(len).expect("an area is bounded");
    item[0..2].copy_from_slice(&tag.to_le_bytes());
    item[2..4].copy_from_slice(&len.to_le_bytes());
}

const fn padded(len: usize) -> usize {
    (len + 7) & !7
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(tag: u16, reserved: u8, padding: u8) -> [u8; 24] {
        let [low, high] = tag.to_le_bytes();
        [
            24, 0, 1, 0, 0, 0, 0, 0, low, high, 3, 0, reserved, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0,
            padding,
        ]
    }

    #[test]
    fn an_area_is_read_whole_or_refused() {
        assert_eq!(check(&area(1, 0, 0)), Some(true));
        assert_eq!(check(&area(TAG_EFFECTS, 0, 0)), Some(true));
        assert_eq!(check(&area(1 << 15 | 1, 0, 0)), Some(false));
        assert_eq!(check(&area(1, 1, 0)), None);
        assert_eq!(check(&area(1, 0, 1)), None);
        for cut in 0..24 {
            assert_eq!(check(&area(1, 0, 0)[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn effects_come_back_from_their_area_also_beside_a_successor() {
        let successor_is = Version {
            epoch: 7,
            sequence: 1 << 40 | 3,
        };
        for len in [0, 1, 8, 31, EFFECTS_BYTES_MAX] {
            let bytes = vec![7; len];
            let area = EffectsArea::new(&bytes);
            assert_eq!(check(area.bytes()), Some(true));
            assert_eq!(
                (area.effects(), successor(area.bytes())),
                (&bytes[..], None)
            );
            let mut both = area.bytes().to_vec();
            both.resize(with_successor_bytes(area.bytes()), 0);
            add_successor(successor_is, &mut both);
            assert_eq!(check(&both), Some(true));
            assert_eq!(effects(&both), Some(&bytes[..]));
            assert_eq!(successor(&both), Some(successor_is));
        }
        assert_eq!((effects(&[]), successor(&[])), (None, None));
        assert_eq!(effects(&area(1, 0, 0)), None);
    }

    #[test]
    fn the_number_of_changes_comes_back_from_its_area_and_takes_eight_bytes() {
        for count in [2, 1 << 32 | 7, u64::MAX] {
            let area = ChangesArea::new(count);
            assert_eq!(check(area.bytes()), Some(true));
            assert_eq!(changes(area.bytes()), Some(count));
        }
        assert_eq!(changes(&[]), None);
        // Three bytes are no number of changes.
        assert_eq!(changes(&area(TAG_CHANGES, 0, 0)), Some(0));
    }

    #[test]
    fn a_group_comes_back_from_its_area_also_behind_effects() {
        let place = Group {
            ordinal: 1,
            count: 300,
        };
        let effects_area = EffectsArea::new(b"what runs");
        for before in [&[][..], effects_area.bytes()] {
            let with = with_group(before, place);
            assert_eq!(check(&with), Some(true));
            assert_eq!(group(&with), Some(Some(place)));
            assert_eq!(effects(&with), effects(before));
            assert!(with.len() <= before.len() + GROUP_AREA_BYTES);
            let mut both = with.clone();
            both.resize(with_successor_bytes(&with), 0);
            add_successor(Version::default(), &mut both);
            assert_eq!(
                (check(&both), group(&both)),
                (Some(true), Some(Some(place)))
            );
        }
        assert_eq!((group(&[]), group(effects_area.bytes())), (None, None));
    }

    #[test]
    fn a_place_that_no_record_has_in_a_group_is_none() {
        for (ordinal, count, is_good) in [
            (0, 2, true),
            (1, 2, true),
            (2, 2, false),
            (0, 1, false),
            (0, 0, false),
        ] {
            let with = with_group(&[], Group { ordinal, count });
            let is_read = group(&with).expect("it has the item").is_some();
            assert_eq!(is_read, is_good, "{ordinal} of {count}");
        }
        let mut with = with_group(
            &[],
            Group {
                ordinal: 0,
                count: 2,
            },
        );
        *with.last_mut().expect("not empty") = 1;
        assert_eq!(group(&with), Some(None), "the rest is zero");
        // Three bytes are no place.
        assert_eq!(group(&area(TAG_GROUP, 0, 0)), Some(None));
    }

    #[test]
    fn the_area_of_a_group_is_the_one_of_the_document() {
        let place = Group {
            ordinal: 1,
            count: 3,
        };
        assert_eq!(
            shown("The second of three records:"),
            with_group(&[], place)
        );
    }

    #[test]
    fn the_area_of_a_thousand_changes_is_the_one_of_the_document() {
        let area = ChangesArea::new(1000);
        assert_eq!(shown("The area of 1000 changes:"), area.bytes());
    }

    /// The bytes that stand in the document behind this line.
    fn shown(line: &str) -> Vec<u8> {
        let format = include_str!("../../FORMAT.md");
        let (_, behind) = format.split_once(line).unwrap();
        let block = behind.split("```").nth(1).unwrap();
        let lines = block.lines().filter_map(|line| line.split_once(": "));
        let bytes = lines.flat_map(|(_, line)| line.split('#').next().unwrap().split_whitespace());
        bytes
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect()
    }
}

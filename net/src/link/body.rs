//! Fields that the bodies of several messages share: a partition, reserved bytes, a code.

use crate::batch::read_u16;
use crate::link::fault::LinkFault;
use crate::link::limits::LINK_PARTITIONS;

/// A body of exactly `N` bytes, and the partition that its first two bytes name.
pub(super) fn fixed<'a, const N: usize>(
    body: &'a [u8],
    kind: &'static str,
) -> Result<(&'a [u8; N], u16), LinkFault> {
    let fixed = body.first_chunk::<N>().filter(|_| body.len() == N);
    let fixed = fixed.ok_or(length(kind, body, N))?;
    Ok((fixed, partition_at(fixed)?))
}

/// The first `N` bytes of a body, the bytes behind them, and the partition that the first two name.
pub(super) fn head<'a, const N: usize>(
    body: &'a [u8],
    kind: &'static str,
) -> Result<(&'a [u8; N], &'a [u8], u16), LinkFault> {
    let (head, rest) = body.split_first_chunk::<N>().ok_or(length(kind, body, N))?;
    Ok((head, rest, partition_at(head)?))
}

/// The fault of a body whose length is not `needed` bytes.
pub(super) fn length(kind: &'static str, body: &[u8], needed: usize) -> LinkFault {
    LinkFault::BodyLength {
        kind,
        len: body.len(),
        needed,
    }
}

/// Checks that reserved bytes are zero. `name` names them in the fault.
pub(super) fn zero(bytes: &[u8], name: &'static str) -> Result<(), LinkFault> {
    match bytes.iter().all(|&byte| byte == 0) {
        true => Ok(()),
        false => Err(LinkFault::Reserved { name }),
    }
}

/// Checks a number against its limit. `name` names it in the fault.
pub(super) fn at_most(name: &'static str, found: u64, max: u64) -> Result<(), LinkFault> {
    match found <= max {
        true => Ok(()),
        false => Err(LinkFault::Field { name, found, max }),
    }
}

/// The choice whose code is `found`. No code is above 2.
pub(super) fn one_of<T, const N: usize>(
    found: u8,
    name: &'static str,
    choices: [(u8, T); N],
) -> Result<T, LinkFault> {
    let fault = LinkFault::Field {
        name,
        found: found.into(),
        max: 2,
    };
    choices
        .into_iter()
        .find_map(|(code, choice)| (code == found).then_some(choice))
        .ok_or(fault)
}

fn partition_at(body: &[u8]) -> Result<u16, LinkFault> {
    let partition = read_u16(body, 0);
    at_most(
        "a partition",
        partition.into(),
        u64::from(LINK_PARTITIONS) - 1,
    )?;
    Ok(partition)
}

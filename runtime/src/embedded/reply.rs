//! Replies of a shard, read by the process in which the shard runs. They have no checksums;
//! everything else is checked as a client checks it.

use penstock_client::ClientError;
use penstock_net::batch::Batch;
use penstock_net::frame::HEADER_BYTES;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{ReplyItem, text_of};
use penstock_net::status::Status;

use super::core::frame_at;

/// The body of a reply in one frame.
///
/// # Errors
/// The error of a frame that was refused as a whole.
#[inline]
pub(super) fn body(reply: &[u8]) -> Result<&[u8], ClientError> {
    let header = frame_at(reply, 0).ok_or_else(|| protocol("a reply without a frame"))?;
    let body = reply
        .get(HEADER_BYTES..header.len as usize)
        .ok_or_else(|| protocol("a reply that is cut"))?;
    match Status::from_code(header.level_or_status) {
        Some(Status::Ok) => Ok(body),
        status => Err(ClientError::of_frame(
            status,
            text_of(body).unwrap_or("an error without a text"),
        )),
    }
}

/// The item of the reply to one operation.
///
/// # Errors
/// As for [`body`].
#[inline]
pub(super) fn only_item(reply: &[u8]) -> Result<ReplyItem<'_>, ClientError> {
    let batch = Batch::read(body(reply)?).map_err(refused)?;
    ReplyItem::read(batch.item(0)).map_err(refused)
}

/// Shows each item of a reply in any number of frames.
///
/// # Errors
/// As for [`body`].
pub(super) fn items(
    mut reply: &[u8],
    mut see: impl FnMut(ReplyItem<'_>),
) -> Result<(), ClientError> {
    while let Some(header) = frame_at(reply, 0) {
        let batch = Batch::read(body(reply)?).map_err(refused)?;
        for number in 0..batch.len() {
            see(ReplyItem::read(batch.item(number)).map_err(refused)?);
        }
        reply = &reply[header.len as usize..];
    }
    Ok(())
}

fn refused(refusal: Refusal) -> ClientError {
    ClientError::Protocol(refusal.to_string())
}

fn protocol(text: &str) -> ClientError {
    ClientError::Protocol(text.to_string())
}

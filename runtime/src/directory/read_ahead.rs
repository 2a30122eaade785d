//! Reading ahead of a start: a helper thread has the kernel bring into its page cache what the
//! start is going to read, in that order, while the start checks and takes in what is there.
//!
//! The kernel takes of one advice no more than its own window, so a file is asked for in small
//! steps. Nobody waits for the helper, and nothing relies on it: what it has not brought is read
//! when it is wanted.

use std::fs::File;
use std::os::fd::AsFd;

use crate::system;

/// Bytes of one advice: what the kernels that we know take of one at least.
const STEP_BYTES: u64 = 128 << 10;
/// Files that may wait for the helper, open; what comes beyond is not read ahead.
const ORDERS_MAX: usize = 64;

/// The helper of one reader. When this is dropped it ends behind what was announced.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    orders: Option<flume::Sender<Order>>,
}

#[derive(Debug)]
struct Order {
    file: File,
    offset: u64,
}

impl ReadAhead {
    /// All of `file` is going to be read from `offset` on, behind what was announced before.
    pub(crate) fn announce(&mut self, file: &File, offset: u64) {
        let Ok(file) = file.try_clone() else { return };
        if self.orders.is_none() {
            self.orders = start();
        }
        if let Some(orders) = &self.orders {
            let _ = orders.try_send(Order { file, offset });
        }
    }
}

fn start() -> Option<flume::Sender<Order>> {
    let (orders, inbox) = flume::bounded::<Order>(ORDERS_MAX);
    let helper = std::thread::Builder::new()
        .name("penstock-ahead".into())
        .spawn(move || {
            for Order { file, offset } in inbox {
                let end = file.metadata().map_or(0, |of| of.len());
                let mut at = offset;
                while at < end {
                    if system::read_ahead(file.as_fd(), at, STEP_BYTES).is_err() {
                        break;
                    }
                    at += STEP_BYTES;
                }
            }
        });
    helper.is_ok().then_some(orders)
}

use penstock_client::Layout;
use zerocopy::little_endian::F64;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    weight: F64,
    is_open: bool,
}

fn main() {
    let _ = Product::weight().at_least(1.0);
    let _ = Product::is_open().at_least(true);
}

use penstock_client::Layout;
use zerocopy::little_endian::U32;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Product {
    stock: U32,
}

fn main() {
    let _ = Product::stock().at_least(-1);
    let _ = Product::build().with(Product::stock(), "100");
}

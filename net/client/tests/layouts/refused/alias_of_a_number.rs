use penstock_client::Layout;
use zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

type Units = u32;

#[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Product {
    stock: Units,
}

fn main() {}

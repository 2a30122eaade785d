use penstock_client::Layout;
use zerocopy::little_endian::U32;

#[derive(Layout)]
#[repr(C)]
struct Product {
    stock: U32,
}

fn main() {}

use penstock_client::Layout;

#[derive(Layout)]
#[repr(C, align(16))]
struct Product {
    flags: [u8; 3],
}

fn main() {}

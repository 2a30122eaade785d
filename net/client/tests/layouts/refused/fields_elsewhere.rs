use penstock_client::Layout;

#[derive(Layout)]
#[repr(C)]
struct Product {
    name: String,
    sku: Option<u8>,
}

fn main() {}

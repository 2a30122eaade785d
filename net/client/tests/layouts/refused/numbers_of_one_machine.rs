use penstock_client::Layout;

#[derive(Layout)]
#[repr(C)]
struct Product {
    is_open: bool,
    stock: u32,
    weights: [f64; 2],
}

fn main() {}

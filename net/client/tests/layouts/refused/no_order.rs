use penstock_client::Layout;

#[derive(Layout)]
struct Product {
    stock: u8,
}

fn main() {}

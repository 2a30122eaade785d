//! `#[derive(Layout)]` of `penstock-client`. What a layout is stands in LAYOUTS.md there.

#![forbid(unsafe_code)]

mod expand;
mod refused;

use proc_macro::TokenStream;

/// Implements `penstock_client::Layout` for a struct with named fields and `#[repr(C)]`, and gives
/// it one function for each field, from which guards and effects are made.
///
/// `#[layout(crate = path)]` names `penstock_client` where it is known under another path.
#[proc_macro_derive(Layout, attributes(layout))]
pub fn derive_layout(input: TokenStream) -> TokenStream {
    let expanded = syn::parse(input).and_then(|input| expand::expand(&input));
    expanded
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

//! From a struct to its implementation of `Layout`, or to the sentence that refuses it.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, LitInt, Path, Result, parse_quote};

use crate::refused;

/// The implementation.
///
/// # Errors
/// One for each thing that cannot be, at its place, with what to write instead.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let mut refused = Refusals::default();
    refused.check(check_repr(input));
    refused.check(check_generics(input));
    let fields: Vec<&Field> = match named_fields(input) {
        Ok(fields) => fields,
        Err(error) => return Err(refused.and(error)),
    };
    for field in &fields {
        if let Some(reason) = refused::reason(&field.ty) {
            refused.add(Error::new(field.ty.span(), reason));
        }
    }
    let krate = match client_path(&input.attrs) {
        Ok(path) => path,
        Err(error) => return Err(refused.and(error)),
    };
    refused.end()?;
    Ok(implementation(input, &fields, &krate))
}

/// All that is wrong, so that one compilation tells all of it.
#[derive(Default)]
struct Refusals(Option<Error>);

impl Refusals {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            None => self.0 = Some(error),
            Some(first) => first.combine(error),
        }
    }

    fn check(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.add(error);
        }
    }

    fn and(mut self, error: Error) -> Error {
        self.add(error);
        self.0.expect("it was added")
    }

    fn end(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The fields of a struct that has some, with names.
fn named_fields(input: &DeriveInput) -> Result<Vec<&Field>> {
    let refuse = |sentence: &str| Err(Error::new(input.ident.span(), sentence));
    let Data::Struct(data) = &input.data else {
        return refuse(
            "a layout is a struct: store what an enum distinguishes in a u8, with a constant for \
             each case",
        );
    };
    match &data.fields {
        Fields::Named(fields) if !fields.named.is_empty() => Ok(fields.named.iter().collect()),
        Fields::Unnamed(_) => refuse(
            "the fields of a layout have names, because guards and the hash use them: write \
             struct Name { field: Type }",
        ),
        _ => refuse("a layout has at least one field"),
    }
}

fn check_generics(input: &DeriveInput) -> Result<()> {
    match input.generics.params.is_empty() {
        true => Ok(()),
        false => Err(Error::new(
            input.generics.span(),
            "a layout has no parameters, because its bytes are fixed: write one struct for each \
             combination",
        )),
    }
}

/// `#[repr(C)]` and nothing that would align or pack.
fn check_repr(input: &DeriveInput) -> Result<()> {
    let mut is_c = false;
    for attribute in input.attrs.iter().filter(|it| it.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("C") {
                is_c = true;
                return Ok(());
            }
            if meta.path.is_ident("align") {
                let content;
                syn::parenthesized!(content in meta.input);
                let bytes: LitInt = content.parse()?;
                return Err(meta.error(format!(
                    "a value may lie at any address, so a layout has the alignment 1, and an \
                     alignment of {bytes} would put padding into it: write #[repr(C)], and the \
                     numbers of zerocopy::little_endian"
                )));
            }
            if meta.path.is_ident("packed") {
                return Err(meta.error(
                    "a layout has no padding anyway, because its types have the alignment 1: \
                     write #[repr(C)]",
                ));
            }
            Err(meta.error("the order of the fields is that of C: write #[repr(C)]"))
        })?;
    }
    match is_c {
        true => Ok(()),
        false => Err(Error::new(
            input.ident.span(),
            "without #[repr(C)] the compiler chooses the order of the fields: write #[repr(C)] \
             above the struct",
        )),
    }
}

/// Where the client's crate is found: `#[layout(crate = path)]`, or under its own name.
fn client_path(attributes: &[Attribute]) -> Result<Path> {
    let mut path: Path = parse_quote!(::penstock_client);
    for attribute in attributes.iter().filter(|it| it.path().is_ident("layout")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("allowed is #[layout(crate = path)]"));
            }
            path = meta.value()?.call(Path::parse_mod_style)?;
            Ok(())
        })?;
    }
    Ok(path)
}

fn implementation(input: &DeriveInput, fields: &[&Field], krate: &Path) -> TokenStream {
    let (name, visibility) = (&input.ident, &input.vis);
    let text = name.to_string();
    let layout = quote!(#krate::layout);
    let infos = fields.iter().map(|field| {
        let (ident, field_type) = (&field.ident, &field.ty);
        let text = ident.as_ref().map(ToString::to_string);
        let text = text.unwrap_or_default();
        let text = text.trim_start_matches("r#");
        quote! {
            #layout::FieldInfo::new(
                #text,
                ::core::mem::offset_of!(#name, #ident),
                <#field_type as #layout::LayoutType>::KIND,
            )
        }
    });
    let functions = fields.iter().map(|field| {
        let (ident, field_type) = (&field.ident, &field.ty);
        let documentation = format!(
            "The field `{}`, for guards, effects and the builder.",
            ident
                .as_ref()
                .map_or_else(|| format_ident!("_"), Clone::clone)
        );
        quote! {
            #[doc = #documentation]
            #[must_use]
            #[allow(dead_code)]
            #visibility const fn #ident() -> #layout::NamedField<#name, #field_type> {
                #layout::NamedField::at_offset(::core::mem::offset_of!(#name, #ident))
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl #layout::LayoutType for #name {
            const KIND: #layout::Kind =
                #layout::Kind::Layout(<#name as #layout::Layout>::DESCRIPTION);
            type Plain<'a> = #name;

            fn put(plain: #name, offset: usize, parts: &mut #layout::Parts) {
                parts.set(offset, &plain);
            }
        }

        #[automatically_derived]
        impl #layout::Layout for #name {
            const DESCRIPTION: &'static #layout::Description = &#layout::Description::new(
                #text,
                ::core::mem::size_of::<#name>(),
                &[#(#infos),*],
            );
        }

        #[automatically_derived]
        impl #name {
            /// Names, types and offsets of the fields, and their hash.
            #[allow(dead_code)]
            #visibility const LAYOUT: &'static #layout::Description =
                <#name as #layout::Layout>::DESCRIPTION;

            #(#functions)*
        }
    }
}

#[cfg(test)]
#[path = "expand/tests.rs"]
mod tests;

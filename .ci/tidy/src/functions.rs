//! The length of functions.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::{FUNCTION_LINES_MAX, Finding, Rule, Tree};

/// Functions that are too long.
///
/// # Errors
/// A file that is not Rust.
pub fn findings(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    for (path, text) in tree.texts(".rs") {
        let file = syn::parse_file(text).map_err(|error| {
            let at = error.span().start().line;
            format!("{path}:{at}: cannot be parsed: {error}")
        })?;
        let mut functions = Functions::default();
        functions.visit_file(&file);
        for (name, (at, lines)) in functions.longest {
            found.push(Finding {
                rule: Rule::Function,
                subject: format!("{path}::{name}"),
                figure: lines,
                places: vec![format!("{path}:{at}: `{name}`")],
            });
        }
    }
    Ok(found)
}

/// The long functions of a file.
#[derive(Default)]
struct Functions {
    /// The type whose `impl` is open.
    owner: Option<String>,
    /// By name: where the longest of that name begins, and its lines.
    longest: BTreeMap<String, (usize, usize)>,
}

impl Functions {
    fn add(&mut self, name: &syn::Ident, begin: Span, end: Span) {
        let at = begin.start().line;
        let lines = end.end().line + 1 - at;
        if lines <= FUNCTION_LINES_MAX {
            return;
        }
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{name}"),
            None => name.to_string(),
        };
        let longest = self.longest.entry(name).or_insert((at, lines));
        if lines > longest.1 {
            *longest = (at, lines);
        }
    }
}

impl<'a> Visit<'a> for Functions {
    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|it| it.ident.to_string()),
            _ => None,
        };
        let before = std::mem::replace(&mut self.owner, name);
        visit::visit_item_impl(self, item);
        self.owner = before;
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        let before = self.owner.replace(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owner = before;
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig.ident, item.sig.span(), block.span());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

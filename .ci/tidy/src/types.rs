//! The size of types: their methods and their fields.
//!
//! The methods of a type may stand in many files, each with an `impl` of its own. So they are
//! counted by crate and name. Where a crate has several types of one name, the `impl`s in the file
//! of a type are counted for it.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use crate::{Finding, Rule, Tree};

/// Types with too many methods or fields.
///
/// # Errors
/// A file that is not Rust.
pub fn findings(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut types = BTreeMap::new();
    for (path, text) in tree.texts(".rs") {
        let Some(source) = source_of(path) else {
            continue;
        };
        let file = syn::parse_file(text).map_err(|error| {
            let at = error.span().start().line;
            format!("{path}:{at}: cannot be parsed: {error}")
        })?;
        let mut counts = Counts {
            source,
            path,
            types: &mut types,
        };
        counts.visit_file(&file);
    }
    let found = types.iter().flat_map(|((source, _), counted)| {
        let methods = counted
            .iter()
            .flat_map(|it| it.methods_among(counted).map(|methods| (it, methods)));
        let methods = methods.map(|(it, methods)| it.finding(source, Rule::Methods, methods));
        let fields = counted
            .iter()
            .map(|it| it.finding(source, Rule::Fields, it.fields.unwrap_or(0)));
        methods.chain(fields)
    });
    Ok(found.filter(|it| it.figure > it.rule.limit()).collect())
}

/// The folder of sources that a file belongs to. `None` of tests, benches and examples.
fn source_of(path: &str) -> Option<&str> {
    let end = path.find("/src/")? + "/src".len();
    Some(&path[..end])
}

/// What one file says of one type.
struct Counted {
    path: String,
    name: String,
    /// The line of the definition, and its fields. `None`: the type is defined in another file.
    line: usize,
    fields: Option<usize>,
    methods: usize,
}

impl Counted {
    /// The methods of the type that this file defines. `None` if the file defines no such type.
    fn methods_among(&self, all: &[Counted]) -> Option<usize> {
        self.fields?;
        let is_only = all.iter().filter(|it| it.fields.is_some()).count() == 1;
        Some(match is_only {
            true => all.iter().map(|it| it.methods).sum(),
            false => self.methods,
        })
    }

    fn finding(&self, source: &str, rule: Rule, figure: usize) -> Finding {
        let (path, name, line) = (&self.path, &self.name, self.line);
        Finding {
            rule,
            subject: format!("{source}::{name}"),
            figure,
            places: vec![format!("{path}:{line}: `{name}`")],
        }
    }
}

/// By folder of sources and name: what the files say of a type.
type Types<'t> = BTreeMap<(&'t str, String), Vec<Counted>>;

struct Counts<'c, 't> {
    source: &'t str,
    path: &'t str,
    types: &'c mut Types<'t>,
}

impl Counts<'_, '_> {
    fn of(&mut self, name: String) -> &mut Counted {
        let all = self.types.entry((self.source, name.clone())).or_default();
        if all.last().is_none_or(|last| last.path != self.path) {
            all.push(Counted {
                path: self.path.to_string(),
                name,
                line: 0,
                fields: None,
                methods: 0,
            });
        }
        all.last_mut().expect("one was just added")
    }
}

fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| {
        it.path().is_ident("cfg")
            && it
                .parse_args::<syn::Ident>()
                .is_ok_and(|ident| ident == "test")
    })
}

impl<'a> Visit<'a> for Counts<'_, '_> {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        let counted = self.of(item.ident.to_string());
        counted.line = item.ident.span().start().line;
        counted.fields = Some(item.fields.len());
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        let counted = self.of(item.ident.to_string());
        counted.line = item.ident.span().start().line;
        counted.fields = Some(0);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let syn::Type::Path(path) = &*item.self_ty else {
            return;
        };
        let (Some(last), None) = (path.path.segments.last(), &item.trait_) else {
            return;
        };
        let methods = item
            .items
            .iter()
            .filter(|it| matches!(it, syn::ImplItem::Fn(_)));
        let count = methods.count();
        self.of(last.ident.to_string()).methods += count;
    }
}

//! The modules of a crate and the names in them, read from its files.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::UseTree;
use syn::visit::{self, Visit};

use crate::Tree;

/// A chain of re-exports is followed so far.
const REEXPORTS_MAX: usize = 16;

/// A module by its names from the root of the crate; the root is empty.
pub type Name = Vec<String>;

/// One file of a crate.
#[derive(Default)]
pub struct Module {
    /// Its path in the repository.
    pub file: String,
    /// The names that it declares.
    items: BTreeSet<String>,
    /// The names that it imports or re-exports, and from where.
    imports: BTreeMap<String, Name>,
    /// Modules that it imports with `*`.
    globs: Vec<Name>,
    /// The paths that its text uses, as written from the root, with their lines.
    uses: Vec<(usize, Name)>,
}

/// All files of a crate.
pub struct Modules(pub BTreeMap<Name, Module>);

impl Modules {
    /// Reads the files that the root declares.
    ///
    /// # Errors
    /// A file that cannot be parsed or that is declared and absent.
    pub fn read(tree: &Tree, root: &str) -> Result<Modules, String> {
        let mut parsed = Vec::new();
        let mut files = vec![(Name::new(), root.to_string())];
        while let Some((name, file)) = files.pop() {
            let text = tree
                .text(&file)
                .ok_or_else(|| format!("{file}: declared as a module and absent"))?;
            let syntax = syn::parse_file(text).map_err(|error| format!("{file}: {error}"))?;
            let (folder, own) = file.rsplit_once('/').unwrap_or(("", &file));
            let below = match own {
                "mod.rs" | "lib.rs" | "main.rs" => folder.to_string(),
                own => format!("{folder}/{}", own.trim_end_matches(".rs")),
            };
            for item in &syntax.items {
                let syn::Item::Mod(module) = item else {
                    continue;
                };
                if module.content.is_some() || is_test(&module.attrs) {
                    continue;
                }
                let ident = module.ident.to_string();
                let flat = format!("{below}/{ident}.rs");
                let nested = format!("{below}/{ident}/mod.rs");
                let given = path_of(&module.attrs).map(|path| format!("{folder}/{path}"));
                let file = given.unwrap_or(match tree.text(&flat) {
                    Some(_) => flat,
                    None => nested,
                });
                files.push(([&name[..], &[ident]].concat(), file));
            }
            parsed.push((name, file, syntax));
        }
        let names: BTreeSet<Name> = parsed.iter().map(|(name, ..)| name.clone()).collect();
        let read = parsed.iter().map(|(name, file, syntax)| {
            let mut reader = Reader {
                names: &names,
                at: name.clone(),
                module: Module {
                    file: file.clone(),
                    ..Module::default()
                },
            };
            reader.visit_file(syntax);
            (name.clone(), reader.module)
        });
        Ok(Modules(read.collect()))
    }

    /// The uses of one module by another, each with its first line. The root of a crate is no user:
    /// it only re-exports, and a use of such a name counts for the module that declares it.
    pub fn edges(&self) -> BTreeMap<(&Name, &Name), usize> {
        let mut edges = BTreeMap::new();
        for (from, module) in self.0.iter().filter(|(name, _)| !name.is_empty()) {
            for (line, path) in &module.uses {
                if let Some(to) = self.home(path, 0)
                    && to != from
                {
                    edges.entry((from, to)).or_insert(*line);
                }
            }
        }
        edges
    }

    /// The module that declares what a path names; none for a path that names a module alone.
    fn home(&self, path: &[String], depth: usize) -> Option<&Name> {
        let names = (0..=path.len()).rev();
        let (name, module) = names
            .filter_map(|len| self.0.get_key_value(&path[..len]))
            .next()?;
        let item = path.get(name.len())?;
        if item == "*" {
            return Some(name);
        }
        if module.items.contains(item) || depth > REEXPORTS_MAX {
            return Some(name);
        }
        if let Some(target) = module.imports.get(item) {
            let rest = &path[name.len() + 1..];
            return self.home(&[target, rest].concat(), depth + 1);
        }
        let through = module.globs.iter().find_map(|glob| {
            let rest = &path[name.len()..];
            let target = self.0.get(glob)?;
            let has = target.items.contains(item) || target.imports.contains_key(item);
            has.then(|| self.home(&[glob, rest].concat(), depth + 1))?
        });
        through.or(Some(name))
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| {
        let list = it.meta.require_list();
        it.path().is_ident("cfg") && list.is_ok_and(|it| it.tokens.to_string() == "test")
    })
}

/// The value of `#[path = "..."]`.
fn path_of(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|it| match &it.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

/// Reads one file.
struct Reader<'a> {
    names: &'a BTreeSet<Name>,
    /// The module that is open: the file's, or one inside the file.
    at: Name,
    module: Module,
}

impl Reader<'_> {
    /// A path from the root of the crate; none for another crate.
    fn absolute(&self, path: &[String]) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let begin = match first.as_str() {
            "crate" | "$crate" => Name::new(),
            "self" => self.at.clone(),
            "super" => {
                let (_, parent) = self.at.split_last()?;
                let up = rest.iter().take_while(|it| *it == "super").count();
                let parent = parent[..parent.len().checked_sub(up)?].to_vec();
                return Some([&parent[..], &rest[up..]].concat());
            }
            first => {
                let child = [&self.at[..], &[first.to_string()]].concat();
                if self.names.contains(&child) {
                    child
                } else {
                    self.module.imports.get(first)?.clone()
                }
            }
        };
        Some([&begin[..], rest].concat())
    }

    fn uses(&mut self, line: usize, path: &[String]) {
        if let Some(path) = self.absolute(path) {
            self.module.uses.push((line, path));
        }
    }

    fn import(&mut self, is_private: bool, before: &[String], tree: &UseTree) {
        let of = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        let (line, path, name) = match tree {
            UseTree::Path(path) => return self.import(is_private, &of(&path.ident), &path.tree),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(is_private, before, tree);
                }
                return;
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                if let Some(target) = self.absolute(before) {
                    if is_private {
                        let all = [&target[..], &["*".to_string()]].concat();
                        self.module.uses.push((line, all));
                    }
                    self.module.globs.push(target);
                }
                return;
            }
            UseTree::Name(name) if name.ident == "self" => {
                let last = before.last().cloned().unwrap_or_default();
                (name.ident.span().start().line, before.to_vec(), last)
            }
            UseTree::Name(name) => {
                let line = name.ident.span().start().line;
                (line, of(&name.ident), name.ident.to_string())
            }
            UseTree::Rename(rename) => {
                let line = rename.ident.span().start().line;
                (line, of(&rename.ident), rename.rename.to_string())
            }
        };
        let Some(target) = self.absolute(&path) else {
            return;
        };
        // A re-export does not count as a use. An import by a re-export counts for the module
        // that declares the name.
        if is_private {
            self.module.uses.push((line, target.clone()));
        }
        self.module.imports.insert(name, target);
    }

    /// Paths among the words of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut at = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(at, &mut path);
                        at = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end(at, &mut path);
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => {
                    self.end(at, &mut path);
                    colons = 0;
                }
            }
        }
        self.end(at, &mut path);
    }

    fn end(&mut self, line: usize, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.uses(line, path);
        }
        path.clear();
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_file(&mut self, file: &'a syn::File) {
        // Imports first: a path may stand above the import that explains it.
        for item in &file.items {
            let ident = match item {
                syn::Item::Use(item) if !is_test(&item.attrs) => {
                    let is_private = matches!(item.vis, syn::Visibility::Inherited);
                    self.import(is_private, &[], &item.tree);
                    continue;
                }
                syn::Item::Const(item) => &item.ident,
                syn::Item::Enum(item) => &item.ident,
                syn::Item::Fn(item) => &item.sig.ident,
                syn::Item::Static(item) => &item.ident,
                syn::Item::Struct(item) => &item.ident,
                syn::Item::Trait(item) => &item.ident,
                syn::Item::Type(item) => &item.ident,
                syn::Item::Union(item) => &item.ident,
                syn::Item::Macro(syn::ItemMacro {
                    ident: Some(ident), ..
                }) => ident,
                _ => continue,
            };
            self.module.items.insert(ident.to_string());
        }
        visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if is_test(&item.attrs) {
            return;
        }
        self.at.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.at.pop();
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    /// Imports at the head of the file are read before; one inside a function is read here.
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let mut inner = Reader {
            names: self.names,
            at: self.at.clone(),
            module: Module::default(),
        };
        inner.import(true, &[], &item.tree);
        if matches!(item.vis, syn::Visibility::Inherited) {
            self.module.uses.append(&mut inner.module.uses);
        }
    }

    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 {
            let names: Vec<String> = path
                .segments
                .iter()
                .map(|it| it.ident.to_string())
                .collect();
            self.uses(path.segments[0].ident.span().start().line, &names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

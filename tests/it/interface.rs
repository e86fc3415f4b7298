//! The library's public interface, item by item, against the list in `docs/interface.txt`: what goes or changes there
//! breaks somebody's build, so it is seen, and told in the change log, before it happens.
//!
//! `CHECKRUN_INTERFACE=write` writes the list anew.

use quote::ToTokens;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use syn::{ImplItem, Item, Visibility};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(tokens: &impl ToTokens) -> String {
    let mut text = tokens.to_token_stream().to_string();
    for (from, to) in [
        (" ::", "::"),
        (":: ", "::"),
        (" :", ":"),
        (" ,", ","),
        (" ;", ";"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("& ", "&"),
        ("' ", "'"),
    ] {
        text = text.replace(from, to);
    }
    text.replace("->", " -> ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Traits whose derivation can be relied on, as much as on a function.
fn derived(attributes: &[syn::Attribute]) -> String {
    let mut names = BTreeSet::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        if let syn::Meta::List(list) = &attribute.meta {
            names.extend(list.tokens.to_string().split(',').map(|name| name.trim().replace(' ', "")));
        }
    }
    let is_open = attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("non_exhaustive"))
        .then_some("non_exhaustive");
    names.extend(is_open.map(str::to_owned));
    if names.is_empty() {
        String::new()
    } else {
        format!(" [{}]", names.into_iter().collect::<Vec<_>>().join(", "))
    }
}

/// Adds the lines of one module and of the public ones below it.
struct Reader {
    lines: BTreeSet<String>,
}

impl Reader {
    fn file(&mut self, path: &Path, module: &str) {
        let source =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for item in &file.items {
            self.item(item, path, module);
        }
    }

    fn add(&mut self, module: &str, line: &str) {
        self.lines.insert(format!("{module}: {line}"));
    }

    fn item(&mut self, item: &Item, path: &Path, module: &str) {
        match item {
            // What a private module has that is public is for others by `pub use`.
            Item::Mod(inner) if inner.content.is_none() => {
                let name = inner.ident.to_string();
                self.file(&below(path, &name), &format!("{module}::{name}"));
            }
            Item::Use(used) if is_public(&used.vis) => self.add(module, &text(&used.tree)),
            Item::Const(item) if is_public(&item.vis) => {
                self.add(module, &format!("const {}: {}", item.ident, text(&item.ty)));
            }
            Item::Type(item) if is_public(&item.vis) => {
                self.add(module, &format!("type {} = {}", item.ident, text(&item.ty)));
            }
            Item::Fn(item) if is_public(&item.vis) => self.add(module, &text(&item.sig)),
            Item::Trait(item) if is_public(&item.vis) => {
                let name = format!("trait {}{}", item.ident, text(&item.generics));
                self.add(module, &name);
                for inner in &item.items {
                    if let syn::TraitItem::Fn(function) = inner {
                        self.add(module, &format!("{name} {}", text(&function.sig)));
                    }
                }
            }
            Item::Struct(item) if is_public(&item.vis) => {
                let name = format!("struct {}{}", item.ident, text(&item.generics));
                self.add(module, &format!("{name}{}", derived(&item.attrs)));
                for (at, field) in item.fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
                    let field_name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
                    self.add(module, &format!("{name} .{field_name}: {}", text(&field.ty)));
                }
            }
            Item::Enum(item) if is_public(&item.vis) => {
                let name = format!("enum {}{}", item.ident, text(&item.generics));
                self.add(module, &format!("{name}{}", derived(&item.attrs)));
                for variant in &item.variants {
                    let fields: Vec<String> = variant
                        .fields
                        .iter()
                        .map(|field| {
                            let name =
                                field.ident.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
                            name + &text(&field.ty)
                        })
                        .collect();
                    let fields =
                        if fields.is_empty() { String::new() } else { format!("({})", fields.join(", ")) };
                    self.add(module, &format!("{name} ::{}{fields}", variant.ident));
                }
            }
            Item::Impl(item) => self.implementation(item, module),
            _ => {}
        }
    }

    /// Types that are not public are nobody's business, whatever they implement.
    fn implementation(&mut self, item: &syn::ItemImpl, module: &str) {
        let syn::Type::Path(of) = &*item.self_ty else { return };
        let word = of.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        let is_known = |line: &String| {
            ["struct", "enum"].iter().any(|kind| {
                let rest = line.split_once(&format!(": {kind} {word}")).map(|(_, rest)| rest);
                rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
            })
        };
        if !self.lines.iter().any(is_known) {
            return;
        }
        let name = format!("impl{} {}", text(&item.generics), text(&item.self_ty));
        if let Some((of, _)) = &item.trait_ {
            self.add(module, &format!("{name} is {}", text(of)));
            return;
        }
        for inner in &item.items {
            match inner {
                ImplItem::Fn(function) if is_public(&function.vis) => {
                    self.add(module, &format!("{name} {}", text(&function.sig)));
                }
                ImplItem::Const(constant) if is_public(&constant.vis) => {
                    self.add(module, &format!("{name} const {}: {}", constant.ident, text(&constant.ty)));
                }
                _ => {}
            }
        }
    }
}

/// The file of a module named in another one.
fn below(path: &Path, name: &str) -> PathBuf {
    let folder = path.parent().expect("a file is in a folder");
    let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("UTF-8");
    let folder = if ["lib", "mod"].contains(&stem) { folder.to_owned() } else { folder.join(stem) };
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("mod.rs") }
}

#[test]
fn what_is_public_is_what_the_list_says() {
    let mut reader = Reader { lines: BTreeSet::new() };
    reader.file(&root().join("src/lib.rs"), "checkrun");
    let list = root().join("docs/interface.txt");
    let now = reader.lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if std::env::var_os("CHECKRUN_INTERFACE").is_some_and(|value| value == "write") {
        std::fs::write(&list, &now).expect("docs/interface.txt");
    }
    let before = std::fs::read_to_string(&list).expect("docs/interface.txt");
    let before: BTreeSet<&str> = before.lines().collect();
    let now: BTreeSet<&str> = now.lines().collect();
    let gone: Vec<_> = before.difference(&now).collect();
    let new: Vec<_> = now.difference(&before).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the interface has changed. Gone, which breaks builds of others and needs a line in CHANGELOG.md under Changed \
         and, once 0.1.0 is out, the next minor version: {gone:#?}\nNew: {new:#?}\n\
         hint: CHECKRUN_INTERFACE=write cargo test --test it interface writes docs/interface.txt anew"
    );
    assert!(now.iter().any(|line| line.starts_with("checkrun::pipeline: fn check")), "{now:#?}");
    assert!(now.len() > 300, "only {} lines", now.len());
}

//! Checks the sizes of files, functions and lines, and finds doc comments that only repeat a name.
//!
//! `xtask/exceptions.toml` lists the exceptions with their sizes, so that each is visible and none grows.
//! Obsolete entries are reported, too.

use std::collections::BTreeMap;

use syn::spanned::Spanned;
use syn::visit::Visit;
use toml::Table;

use crate::sources::Source;

/// A longer file usually contains a second idea.
pub(crate) const FILE_LINES: usize = 600;
/// A function should fit on a screen.
const FUNCTION_LINES: usize = 80;
/// The formatter limits code to 110 columns, but not comments and literals.
pub(crate) const LINE_COLUMNS: usize = 130;

/// Measurements by table of exceptions: the subject and its size.
type Measured = BTreeMap<&'static str, BTreeMap<String, usize>>;

/// The sizes over a limit that are not exceptions, one line each.
pub(crate) fn violations(sources: &[Source], exceptions: &str) -> Vec<String> {
    let exceptions: Table = match exceptions.parse() {
        Ok(exceptions) => exceptions,
        Err(error) => return vec![format!("xtask/exceptions.toml: {error}")],
    };
    let measured = measure(sources);
    let allowed = |kind: &str, what: &str| {
        let allowed = exceptions.get(kind).and_then(|table| table.get(what)?.as_integer());
        allowed.and_then(|allowed| usize::try_from(allowed).ok())
    };
    let mut violations = Vec::new();
    for (kind, found) in &measured {
        for (what, count) in found {
            if allowed(kind, what).is_none_or(|allowed| *count > allowed) {
                violations.push(format!("{what}: {}", complaint(kind, *count)));
            }
        }
    }
    for (kind, table) in exceptions.iter().filter_map(|(kind, table)| Some((kind, table.as_table()?))) {
        let needed = measured.get(kind.as_str());
        for what in table.keys().filter(|what| needed.is_none_or(|needed| !needed.contains_key(*what))) {
            violations
                .push(format!("xtask/exceptions.toml: [{kind}] {what:?} is no longer needed; remove it"));
        }
    }
    violations
}

fn complaint(kind: &str, count: usize) -> String {
    match kind {
        "files" => format!("{count} lines, the limit is {FILE_LINES}; look for a second idea to split off"),
        "functions" => {
            format!("{count} lines, the limit is {FUNCTION_LINES}; a function should fit on a screen")
        }
        "width" => format!("lines of more than {LINE_COLUMNS} columns: {count}"),
        _ => format!("doc comments of public items that only repeat their names: {count}"),
    }
}

fn measure(sources: &[Source]) -> Measured {
    let mut measured = Measured::new();
    for source in sources {
        let mut note = |kind, what: String, count| {
            measured.entry(kind).or_default().insert(what, count);
        };
        let lines = source.text.lines().count();
        if lines > FILE_LINES {
            note("files", source.path.clone(), lines);
        }
        let wide = source.text.lines().filter(|line| line.chars().count() > LINE_COLUMNS).count();
        if wide > 0 {
            note("width", source.path.clone(), wide);
        }
        // Tests are often one long sequence of steps.
        if !source.path.contains("/tests/") {
            let mut found = Found::default();
            found.visit_file(&source.syntax);
            for (name, lines) in found.functions {
                note("functions", format!("{}::{name}", source.path), lines);
            }
            if found.repeating > 0 {
                note("docs", source.path.clone(), found.repeating);
            }
        }
    }
    measured
}

/// The measurements of a file.
#[derive(Default)]
struct Found {
    functions: Vec<(String, usize)>,
    repeating: usize,
}

impl Found {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line + 1 - signature.span().start().line;
        if lines > FUNCTION_LINES {
            self.functions.push((signature.ident.to_string(), lines));
        }
    }

    fn documented(&mut self, is_public: bool, attributes: &[syn::Attribute], name: &syn::Ident) {
        self.repeating += usize::from(is_public && repeats(&doc(attributes), &name.to_string()));
    }
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

impl Visit<'_> for Found {
    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.function(&item.sig, &item.block);
        self.documented(is_public(&item.vis), &item.attrs, &item.sig.ident);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        self.documented(is_public(&item.vis), &item.attrs, &item.sig.ident);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.documented(is_public(&item.vis), &item.attrs, &item.ident);
        if is_public(&item.vis) {
            for field in &item.fields {
                if let Some(name) = &field.ident {
                    self.documented(is_public(&field.vis), &field.attrs, name);
                }
            }
        }
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.documented(is_public(&item.vis), &item.attrs, &item.ident);
        for variant in item.variants.iter().filter(|_| is_public(&item.vis)) {
            self.documented(true, &variant.attrs, &variant.ident);
            for field in &variant.fields {
                if let Some(name) = &field.ident {
                    self.documented(true, &field.attrs, name);
                }
            }
        }
        syn::visit::visit_item_enum(self, item);
    }
}

/// The text of doc comments.
fn doc(attributes: &[syn::Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// Whether every word of a doc comment is in the name.
fn repeats(doc: &str, name: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let mut spaced = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(c);
    }
    let name = words(&spaced);
    let said: Vec<String> = words(doc)
        .into_iter()
        .filter(|word| !matches!(word.as_str(), "the" | "a" | "an" | "its" | "this"))
        .collect();
    !said.is_empty() && said.iter().all(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{FUNCTION_LINES, repeats, violations};
    use crate::sources::Source;

    fn source(text: String) -> Source {
        let syntax = syn::parse_file(&text).unwrap();
        Source { path: "crates/a/src/b.rs".to_owned(), text, syntax }
    }

    #[test]
    fn p6_a_comment_that_only_repeats_the_name_is_noticed() {
        assert!(repeats("The id.", "id") && repeats(" Its shard count. ", "shard_count"));
        assert!(repeats("A turn.", "Turn"));
        assert!(!repeats("The id, which the user chooses.", "id"));
        assert!(!repeats("", "id"));
    }

    #[test]
    fn what_is_too_large_is_named_unless_it_is_an_exception() {
        let body = "    let _ = 1;\n".repeat(FUNCTION_LINES);
        let large = [source(format!("fn large() {{\n{body}}}\n"))];
        let lines = FUNCTION_LINES + 2;
        let found = violations(&large, "");
        assert!(found.len() == 1 && found[0].starts_with("crates/a/src/b.rs::large: 82 lines"), "{found:?}");
        let exception = format!("[functions]\n\"crates/a/src/b.rs::large\" = {lines}\n");
        assert_eq!(violations(&large, &exception), Vec::<String>::new());
        let smaller = format!("[functions]\n\"crates/a/src/b.rs::large\" = {}\n", lines - 1);
        assert_eq!(violations(&large, &smaller).len(), 1, "an exception does not grow");
    }

    #[test]
    fn an_exception_that_nothing_needs_is_reported() {
        let found =
            violations(&[source("fn small() {}\n".to_owned())], "[files]\n\"crates/a/src/b.rs\" = 700\n");
        assert!(found.len() == 1 && found[0].contains("remove it"), "{found:?}");
    }

    #[test]
    fn wide_lines_and_empty_comments_are_counted_for_each_file() {
        let wide = format!(
            "// {}\npub struct Turn {{\n    /// The number.\n    pub number: u64,\n}}\n",
            "x".repeat(140)
        );
        assert_eq!(
            violations(&[source(wide)], ""),
            [
                "crates/a/src/b.rs: doc comments of public items that only repeat their names: 1",
                "crates/a/src/b.rs: lines of more than 130 columns: 1"
            ]
        );
    }
}

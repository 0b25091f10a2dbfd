//! Checks links between the pages of the repository: every linked file and heading exists.
//!
//! Web addresses and code are not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The broken links, one line each.
pub(crate) fn violations(workspace_root: &Path) -> Vec<String> {
    let mut pages: Vec<PathBuf> = ["", "docs", "docs/src"]
        .iter()
        .flat_map(|directory| fs::read_dir(workspace_root.join(directory)).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    let texts: BTreeMap<PathBuf, String> = pages
        .into_iter()
        .filter_map(|page| fs::read_to_string(&page).ok().map(|text| (page, text)))
        .collect();
    let mut violations = Vec::new();
    for (page, text) in &texts {
        let shown = page.strip_prefix(workspace_root).unwrap_or(page).display();
        let mut complain = |line: usize, what: String| violations.push(format!("{shown}:{line}: {what}"));
        for (line, target) in links(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let found = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let Ok(found) = found.canonicalize() else {
                complain(line, format!("{file} does not exist"));
                continue;
            };
            let headings =
                texts.iter().find(|(other, _)| other.canonicalize().is_ok_and(|other| other == found));
            if let (false, Some((_, text))) = (anchor.is_empty(), headings)
                && !anchors(text).contains(anchor)
            {
                complain(line, format!("{file} has no heading #{anchor}"));
            }
        }
    }
    violations
}

/// The links of a page to files, with their line numbers.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = &rest[..end];
            if !target.contains("://") && !target.starts_with("mailto:") {
                links.push((number, target));
            }
            rest = &rest[end..];
        }
    }
    links
}

/// The headings of a page as link anchors. A repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase();
        let count = counts.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

/// The lines of a page outside code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::{anchors, links, violations};

    #[test]
    fn links_to_files_are_found_and_those_in_code_are_not() {
        let text = "See [a](b.md#c), [d](https://e.f) and\n```\n[g](h.md)\n```\n[i](../j).";
        assert_eq!(links(text), [(1, "b.md#c"), (5, "../j")]);
    }

    #[test]
    fn headings_are_spelled_as_links_spell_them() {
        let found = anchors("# One, two\n## PER-0203 no `drift`\n## One, two\n```sh\n# a comment\n```\n#no");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["one-two", "one-two-1", "per-0203-no-drift"]);
    }

    #[test]
    fn what_is_missing_is_named_with_its_page_and_line() {
        let root = std::env::temp_dir().join(format!("perennial-links-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs/src")).unwrap();
        std::fs::write(root.join("README.md"), "# R\n[x](docs/src/a.md#here) [y](docs/b.md)").unwrap();
        std::fs::write(root.join("docs/src/a.md"), "# There\n[up](../../README.md#r)").unwrap();
        let found = violations(&root);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            found,
            ["README.md:2: docs/src/a.md has no heading #here", "README.md:2: docs/b.md does not exist"]
        );
    }

    #[test]
    fn no_link_of_the_repository_is_broken() {
        assert_eq!(violations(&crate::command::workspace_root()), Vec::<String>::new());
    }
}

//! `cargo xtask lint`: all checks that do not run the product.
//!
//! All steps run, even if earlier ones fail, so that one run reports everything. Tools that do not come with
//! a Rust toolchain are used if they are installed, and reported if they are not.

use crate::command::{self, Failure, announce, cargo};
use crate::metadata::{self, Package};
use crate::sources::{self, Source};
use crate::{document, house_rules, licences, links, log_table, neighbours, packaging, sizes, ui};

/// The sets of features that the library is checked with, besides the default ones.
const FEATURES: &[&str] = &["", "macros", "postgres", "sqlite"];

pub(crate) fn run() -> Result<(), Vec<Failure>> {
    let mut outcomes = vec![formatting(), clippy(), docs(), links(), guide()];
    outcomes.extend(FEATURES.iter().map(|features| alone(features)));
    match metadata::packages() {
        Ok(packages) => outcomes.extend([house(&packages), licence_list(&packages)]),
        Err(failure) => outcomes.push(Err(failure)),
    }
    match sources::read(&command::workspace_root()) {
        Ok(sources) => outcomes.extend([log_page(&sources), size_limits(&sources)]),
        Err(failure) => outcomes.push(Err(failure)),
    }
    outcomes.push(oldest_compiler());
    outcomes.push(neighbours::check(&command::workspace_root()));
    outcomes.push(document::check(&command::workspace_root()));
    outcomes.push(packaging::check());
    outcomes.push(ui::check());
    outcomes.push(optional("deny", &["deny", "check"]));
    outcomes.push(optional("audit", &["audit"]));

    let failures: Vec<Failure> = outcomes.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

fn formatting() -> Result<(), Failure> {
    command::run("formatting", cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), Failure> {
    let arguments =
        ["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    command::run("clippy", cargo(&arguments))
}

fn docs() -> Result<(), Failure> {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--all-features", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command::run("docs", command)
}

/// Checks the library with only some of its features.
fn alone(features: &str) -> Result<(), Failure> {
    let mut command = cargo(&["clippy", "--locked", "--package", "perennial", "--no-default-features"]);
    command.args(["--features", features, "--", "-D", "warnings"]);
    command::run("features", command)
}

fn house(packages: &[Package]) -> Result<(), Failure> {
    announce(
        "house rules",
        "no unsafe code, no missing docs, licence and compiler version stated, in all members",
    );
    verdict("house rules", house_rules::violations(&command::workspace_root(), packages))
}

fn log_page(sources: &[Source]) -> Result<(), Failure> {
    announce("logs", "the guide's page against the events that the library logs");
    verdict("logs", log_table::violations(&command::workspace_root(), sources))
}

fn size_limits(sources: &[Source]) -> Result<(), Failure> {
    announce("sizes", "of files, functions and lines, and doc comments that only repeat names");
    let path = command::workspace_root().join("xtask/exceptions.toml");
    let exceptions = std::fs::read_to_string(path).map_err(|error| Failure::new("sizes", error))?;
    verdict("sizes", sizes::violations(sources, &exceptions))
}

/// Checks the published crates with the minimum compiler version of the manifests, if it is installed. Clippy
/// finds uses of newer parts of the standard library (`incompatible_msrv`); this finds the rest.
fn oldest_compiler() -> Result<(), Failure> {
    let oldest = format!("+{}", env!("CARGO_PKG_RUST_VERSION"));
    if !command::has("rustup", &["run", &oldest[1..], "cargo", "--version"]) {
        announce("oldest compiler", format_args!("skipped, the toolchain {} is not installed", &oldest[1..]));
        return Ok(());
    }
    let mut check = std::process::Command::new("cargo");
    check.current_dir(command::workspace_root());
    // The cargo that runs this program is another one, and is named in the environment.
    check.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC");
    check.args([&*oldest, "check", "--workspace", "--exclude", "xtask", "--exclude", "perennial-load"]);
    check.args(["--all-features", "--locked", "--target-dir", "target/oldest"]);
    command::run("oldest compiler", check)
}

fn links() -> Result<(), Failure> {
    announce("links", "between the pages of the repository");
    verdict("links", links::violations(&command::workspace_root()))
}

/// Builds the guide as a book, if mdbook is installed.
fn guide() -> Result<(), Failure> {
    if !command::has("mdbook", &["--version"]) {
        announce("guide", "skipped, mdbook is not installed");
        return Ok(());
    }
    let book = std::env::temp_dir().join(format!("perennial-guide-{}", std::process::id()));
    let mut build = std::process::Command::new("mdbook");
    build.current_dir(command::workspace_root()).args(["build", "docs", "--dest-dir"]).arg(&book);
    let built = command::run("guide", build);
    let _ = std::fs::remove_dir_all(book);
    built
}

fn licence_list(packages: &[Package]) -> Result<(), Failure> {
    announce("licences", format_args!("{} packages against the list of allowed licences", packages.len()));
    verdict("licences", licences::violations(packages))
}

/// Prints the findings of a check, if any.
fn verdict(step: &'static str, violations: Vec<String>) -> Result<(), Failure> {
    for violation in &violations {
        eprintln!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        1 => Err(Failure::new(step, "1 violation")),
        count => Err(Failure::new(step, format_args!("{count} violations"))),
    }
}

/// Runs the cargo subcommand of a step, if it is installed.
fn optional(step: &'static str, arguments: &[&str]) -> Result<(), Failure> {
    if command::has_cargo_subcommand(step) {
        command::run(step, cargo(arguments))
    } else {
        announce(step, format_args!("skipped, cargo-{step} is not installed"));
        Ok(())
    }
}

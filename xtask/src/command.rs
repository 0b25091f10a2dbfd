//! Runs child processes, one step at a time.
//!
//! A step announces itself on one line, and its failure contains its name. Children start in the workspace's
//! root and write directly to our output, so that their last output stays last on the screen.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// A step that failed, and the reason.
#[derive(Debug)]
pub(crate) struct Failure {
    step: &'static str,
    reason: String,
    /// Whether the step was given wrong arguments, by its exit code.
    is_misuse: bool,
}

impl Failure {
    pub(crate) fn new(step: &'static str, reason: impl fmt::Display) -> Self {
        Self { step, reason: reason.to_string(), is_misuse: false }
    }

    fn of_status(step: &'static str, status: ExitStatus) -> Self {
        Self { is_misuse: status.code() == Some(2), ..Self::new(step, status) }
    }

    /// Whether the step was given wrong arguments.
    pub(crate) fn is_misuse(&self) -> bool {
        self.is_misuse
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "step `{}` failed: {}", self.step, self.reason)
    }
}

/// Prints the line that announces a step.
pub(crate) fn announce(step: &str, what: impl fmt::Display) {
    eprintln!("==> {step}: {what}");
}

/// The directory of the workspace's `Cargo.toml`.
pub(crate) fn workspace_root() -> PathBuf {
    // Cargo sets the variable when it runs this program; the constant is for running the binary directly.
    let manifest_directory =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(manifest_directory).parent().expect("xtask lies inside the workspace").to_owned()
}

/// A cargo command in the workspace's root, with the same cargo that started this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_root()).args(arguments);
    command
}

/// Whether `cargo <name>` is installed.
pub(crate) fn has_cargo_subcommand(name: &str) -> bool {
    succeeds(cargo(&[name, "--version"]))
}

/// Whether a program is installed.
pub(crate) fn has(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments);
    succeeds(command)
}

fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs a command to its end with our input and output.
pub(crate) fn run(step: &'static str, mut command: Command) -> Result<(), Failure> {
    announce(step, describe(&command));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::of_status(step, status)),
        Err(error) => Err(Failure::new(step, error)),
    }
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn read(step: &'static str, mut command: Command) -> Result<Vec<u8>, Failure> {
    announce(step, describe(&command));
    match command.stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(Failure::of_status(step, output.status)),
        Err(error) => Err(Failure::new(step, error)),
    }
}

/// The command as it would be typed in the workspace's root.
fn describe(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={:?}", name.display(), value.to_string_lossy()));
        }
    }
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default();
    words.push(program.to_string_lossy().into_owned());
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{cargo, describe, has_cargo_subcommand, run, workspace_root};

    #[test]
    fn a_command_is_described_as_one_would_type_it() {
        let mut command = cargo(&["doc", "--no-deps"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(describe(&command), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
    }

    #[test]
    fn a_failure_names_its_step() {
        let failure = run("speak", cargo(&["--no-such-option"])).unwrap_err();
        assert!(failure.to_string().starts_with("step `speak` failed: "), "{failure}");
    }

    #[test]
    fn a_subcommand_that_is_not_installed_is_noticed() {
        assert!(!has_cargo_subcommand("no-such-subcommand-anywhere"));
    }

    #[test]
    fn the_workspace_root_holds_the_workspace() {
        assert!(workspace_root().join("xtask").is_dir());
        assert!(workspace_root().join("Cargo.toml").is_file());
    }
}

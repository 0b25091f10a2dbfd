//! The recorder: a small library, compiled by the C compiler that also compiles SQLite, that is loaded into the process of
//! the load and records every change and every sync of its files.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::node::NodeOptions;

const SOURCE: &str = include_str!("recorder.c");

/// How long a process may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A call that fails, once or from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The kind of call.
    pub(super) call: FailingCall,
    /// Which of these calls fails, counted from 1.
    pub(super) number: u64,
    /// Whether all later ones fail too.
    pub(super) repeats: bool,
}

/// A kind of call that fails, with its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailingCall {
    /// A sync, with EIO.
    Sync,
    /// A write, with EIO.
    Write,
    /// A write, with ENOSPC.
    WriteOnFullDisk,
}

impl Failure {
    fn setting(self) -> String {
        let (kind, errno) = match self.call {
            FailingCall::Sync => ("sync", rustix::io::Errno::IO),
            FailingCall::Write => ("write", rustix::io::Errno::IO),
            FailingCall::WriteOnFullDisk => ("write", rustix::io::Errno::NOSPC),
        };
        format!("{kind}:{}:{}:{}", self.number, errno.raw_os_error(), u8::from(self.repeats))
    }
}

/// The compiled library.
#[derive(Debug)]
pub(super) struct Recorder {
    library: PathBuf,
    _directory: tempfile::TempDir,
}

impl Recorder {
    /// Compiles the library, with `$CC` or `cc`.
    ///
    /// # Panics
    ///
    /// If there is no C compiler, or it fails.
    pub(super) fn compile() -> Recorder {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let source = directory.path().join("recorder.c");
        std::fs::write(&source, SOURCE).expect("a file can be written");
        let library = directory.path().join("recorder.so");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = std::process::Command::new(compiler)
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([&library, &source])
            .arg("-lpthread")
            .status()
            .expect("the C compiler that builds SQLite");
        assert!(compiled.success(), "the recorder does not compile");
        Recorder { library, _directory: directory }
    }

    /// Runs a node and records what it does below a directory.
    pub(super) async fn run(
        &self,
        program: &Path,
        options: &NodeOptions,
        root: &Path,
        record: &Path,
        failure: Option<Failure>,
    ) -> Result<ExitStatus, String> {
        let journal = root.join("journal");
        let journal = std::fs::File::options().create(true).append(true).open(journal).map_err(told)?;
        let mut command = Command::new(program);
        command
            .args(options.arguments())
            .env("LD_PRELOAD", &self.library)
            .env("PERENNIAL_RECORDER_ROOT", root)
            .env("PERENNIAL_RECORDER_LOG", record)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(journal)
            .kill_on_drop(true);
        if let Some(failure) = failure {
            command.env("PERENNIAL_RECORDER_FAIL", failure.setting());
        }
        let mut child = command.spawn().map_err(told)?;
        match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(status) => status.map_err(told),
            Err(_) => Err("the process does not end".to_owned()),
        }
    }
}

fn told(error: std::io::Error) -> String {
    error.to_string()
}

//! A database cluster in a temporary directory, and the server process.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{ServerOptions, USER, binaries, draw_password, unique};

/// How long a server may take to accept connections. Recovery after a crash takes longer than a normal start.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// How long other processes of a killed server may keep running.
const RESTART_PATIENCE: Duration = Duration::from_secs(20);

/// Number of ports to try. Another program may take a free port before the server binds it.
const PORTS_TRIED: usize = 5;

/// A shell script that stops the server when the process it belongs to has ended for any reason. `$1` is that process,
/// `$2` the server, `$3` the directory. `$4` is text of the server's command line; it shows that the process id was not
/// reused by another process.
const KEEPER: &str = r#"
    while kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do sleep 0.2; done
    if ps -o args= -p "$2" 2>/dev/null | grep -qF "$4"; then kill -QUIT "$2" 2>/dev/null; fi
    for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$2" 2>/dev/null || break; sleep 0.2; done
    kill -0 "$1" 2>/dev/null || rm -rf "$3"
"#;

pub(super) fn new_directory(kind: &str) -> PathBuf {
    std::env::temp_dir().join(unique(&format!("perennial_postgres_{kind}")))
}

/// The files of a server, and how to start it.
#[derive(Debug)]
pub(super) struct Cluster {
    bin: PathBuf,
    directory: PathBuf,
    data: PathBuf,
    port: u16,
    password: String,
    account: Option<Account>,
    options: ServerOptions,
}

/// The account that runs the server if the test runs as root, because PostgreSQL refuses to run as root.
#[derive(Clone, Copy, Debug)]
struct Account {
    user: u32,
    group: u32,
}

impl Cluster {
    /// Creates an empty cluster in a directory that does not exist yet.
    pub(super) fn create(directory: &Path, options: &ServerOptions) -> Result<Cluster, String> {
        let bin = binaries::find()?;
        let failed = |what: &str, error: std::io::Error| format!("{what} {}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(|error| failed("cannot create", error))?;
        let mode = fs::Permissions::from_mode(0o700);
        fs::set_permissions(directory, mode).map_err(|error| failed("cannot protect", error))?;
        let cluster = Cluster {
            bin,
            data: directory.join("data"),
            directory: directory.to_owned(),
            port: free_port()?,
            password: draw_password(),
            account: account()?,
            options: options.clone(),
        };
        cluster.change_owner(directory)?;
        let password_file = directory.join("password");
        cluster.write(&password_file, cluster.password.as_bytes())?;
        cluster.initialise(&password_file)?;
        for (name, content) in &options.files {
            cluster.write(&cluster.data.join(name), content)?;
        }
        Ok(cluster)
    }

    fn initialise(&self, password_file: &Path) -> Result<(), String> {
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(&self.data).args(["-U", USER, "-A", "password", "-E", "UTF8", "--locale=C"]);
        initdb.arg("--no-sync").arg("--pwfile").arg(password_file);
        let output = initdb.output().map_err(|error| format!("cannot run initdb: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let messages = String::from_utf8_lossy(&output.stderr);
        Err(format!("initdb failed: {}", messages.lines().last().unwrap_or("no output")))
    }

    /// Starts the server, and waits until it accepts connections. The server stops when the process `watched` ends.
    pub(super) fn start(&self, watched: u32) -> Result<Process, String> {
        let log = OpenOptions::new().create(true).append(true).open(self.log());
        let log = log.map_err(|error| format!("cannot write {}: {error}", self.log().display()))?;
        let mut server = self.command("postgres");
        server.arg("-D").arg(&self.data).args(["-p", &self.port.to_string()]);
        let sync = if self.options.unsynced { "off" } else { "on" };
        let settings = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            ("max_connections", "300"),
            ("fsync", sync),
            ("full_page_writes", sync),
            ("timezone", "UTC"),
        ];
        let own = self.options.settings.iter().map(|(name, value)| (&**name, &**value));
        for (name, value) in settings.into_iter().chain(own) {
            server.args(["-c", &format!("{name}={value}")]);
        }
        let errors = log.try_clone().map_err(|error| format!("cannot share the log: {error}"))?;
        // In its own process group, so that a signal to the test's group does not reach the server. The keeper stops
        // it.
        server.process_group(0).stdin(Stdio::null()).stdout(Stdio::from(log)).stderr(Stdio::from(errors));
        let child = server.spawn().map_err(|error| format!("cannot run postgres: {error}"))?;
        let mut process = Process { child, directory: self.directory.clone() };
        self.keep(watched, process.child.id())?;
        match self.wait_until_ready(&mut process) {
            Ok(()) => Ok(process),
            Err(problem) => {
                process.stop(Stop::Immediate);
                Err(problem)
            }
        }
    }

    /// Starts the server on the files of one that has ended. Other processes of a killed server use the files for a
    /// short time, and a server that is started meanwhile exits. The start is repeated then.
    pub(super) fn start_again(&self, watched: u32) -> Result<Process, String> {
        let begun = Instant::now();
        loop {
            match self.start(watched) {
                Err(_) if begun.elapsed() < RESTART_PATIENCE => thread::sleep(PAUSE),
                started => return started,
            }
        }
    }

    fn keep(&self, watched: u32, server: u32) -> Result<(), String> {
        let mut keeper = Command::new("/bin/sh");
        keeper.args(["-c", KEEPER, "keeper", &watched.to_string(), &server.to_string()]);
        keeper.arg(&self.directory).arg(&self.data).process_group(0);
        keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        keeper.spawn().map(drop).map_err(|error| format!("cannot run /bin/sh: {error}"))
    }

    fn wait_until_ready(&self, process: &mut Process) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            if let Ok(Some(status)) = process.child.try_wait() {
                let messages = fs::read_to_string(self.log()).unwrap_or_default();
                let last = messages.lines().last().unwrap_or("no output");
                return Err(format!("postgres ended ({status}): {last}"));
            }
            let mut ready = Command::new(self.bin.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ready.status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("postgres accepts no connections; see {}", self.log().display()));
            }
            thread::sleep(PAUSE);
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(&self.directory).env("LC_ALL", "C");
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    /// Writes a file that only the server can read.
    fn write(&self, path: &Path, content: &[u8]) -> Result<(), String> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = made.and_then(|mut file| file.write_all(content));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        self.change_owner(path)
    }

    fn change_owner(&self, path: &Path) -> Result<(), String> {
        let Some(Account { user, group }) = self.account else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user), Some(group))
            .map_err(|error| format!("cannot change the owner of {}: {error}", path.display()))
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/postgres", self.password, self.port)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The keeper of a shared server deletes the directory.
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory).unwrap_or_default();
        }
    }
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// Without a checkpoint, like a crash.
    Immediate,
    /// Cleanly, without waiting for clients.
    Fast,
    /// With SIGKILL, so that it cannot stop its other processes.
    Kill,
}

/// A running server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    directory: PathBuf,
}

impl Process {
    /// Detaches from the server; its keeper stops it.
    pub(super) fn leave(self) {
        drop(self.directory);
    }

    /// Stops the server, and waits until it has exited.
    pub(super) fn stop(mut self, how: Stop) {
        let signal = match how {
            Stop::Immediate => "-QUIT",
            Stop::Fast => "-INT",
            Stop::Kill => "-KILL",
        };
        let id = self.child.id().to_string();
        let signalled =
            Command::new("kill").args([signal, &id]).status().is_ok_and(|status| status.success());
        if !signalled {
            self.child.kill().unwrap_or_default();
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > PATIENCE {
                self.child.kill().unwrap_or_default();
            }
            thread::sleep(PAUSE);
        }
    }
}

fn free_port() -> Result<u16, String> {
    let mut last = String::new();
    for _ in 0..PORTS_TRIED {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()) {
            Ok(address) => return Ok(address.port()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!("no port is free on the loopback address: {last}"))
}

/// The account of the distribution's package, or else an unprivileged one. `None` unless this process runs as root.
fn account() -> Result<Option<Account>, String> {
    let probe = std::env::temp_dir().join(unique("perennial_postgres_probe"));
    let made = File::create(&probe).and_then(|file| file.metadata());
    fs::remove_file(&probe).unwrap_or_default();
    let metadata = made.map_err(|error| format!("cannot write in {}: {error}", probe.display()))?;
    if std::os::unix::fs::MetadataExt::uid(&metadata) != 0 {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let of = |name: &str| accounts.lines().find_map(|line| account_in(line, name));
    let found = ["postgres", "nobody"].into_iter().find_map(of);
    found.map(Some).ok_or_else(|| {
        "PostgreSQL does not run as root, and there is no account `postgres` or `nobody`; run the tests as another user"
            .to_owned()
    })
}

fn account_in(line: &str, name: &str) -> Option<Account> {
    let mut fields = line.split(':');
    (fields.next() == Some(name)).then_some(())?;
    let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    (user != 0).then_some(Account { user, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_name_and_is_never_root() {
        let account = account_in("postgres:x:101:104:administrator:/var/lib:/bin/bash", "postgres").unwrap();
        assert_eq!((account.user, account.group), (101, 104));
        assert!(account_in("postgres:x:101:104::/:/bin/sh", "nobody").is_none());
        assert!(account_in("root:x:0:0:root:/root:/bin/bash", "root").is_none());
    }
}

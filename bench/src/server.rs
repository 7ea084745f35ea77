//! Finds servers, starts them on a core of their own, reads the CPU time that they have used, and stops them.

use crate::wire::Connection;
use anyhow::{Context, Result, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The server's core. The client runs on [`CLIENT_CORE`].
pub const SERVER_CORE: usize = 0;

/// The client's core.
pub const CLIENT_CORE: usize = 1;

/// Nice value of the server.
const PRIORITY: i32 = -10;

/// Nice value of a thread that measures latencies, which takes precedence over the clients that create the load.
const PROBE_PRIORITY: i32 = -15;

/// Folder in which `scripts/servers` puts the servers, relative to the root of the repository.
const SERVERS: &str = ".cache/servers";

/// Maximum time that a server may take to start.
const START: Duration = Duration::from_secs(120);

/// What is needed to start a server.
#[derive(Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its name and version.
    pub name: String,
    /// Modules to load.
    pub modules: Vec<PathBuf>,
}

impl Launch {
    /// Finds the server with that name among those that `scripts/servers` made.
    pub fn find(name: &str, modules: &[&Path]) -> Result<Launch> {
        for folder in fs::read_dir(SERVERS).context("run scripts/servers first")? {
            let folder = folder?.path();
            let Ok(list) = fs::read_to_string(folder.join("servers.tsv")) else { continue };
            for line in list.lines() {
                let fields: Vec<&str> = line.split('\t').collect();
                if let [known, version, program, ..] = fields[..]
                    && known == name
                {
                    return Ok(Launch {
                        program: folder.join(program).canonicalize()?,
                        name: format!("{} {version}", name.split('-').next().unwrap_or(name)),
                        modules: modules.iter().map(|path| path.canonicalize()).collect::<Result<_, _>>()?,
                    });
                }
            }
        }
        bail!("no server {name} in {SERVERS}; run scripts/servers")
    }

    /// Starts the server. It saves only when a command asks it to. If a core is given, the server is pinned to it.
    pub fn start(&self, core: Option<usize>, settings: &[(&str, &str)]) -> Result<Server> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let folder = std::env::temp_dir().join(format!("bloomery-bench-{}-{number}", std::process::id()));
        fs::create_dir(&folder)?;
        Server::start(self.clone(), folder, core, settings)
    }
}

/// A running server. When this is dropped, the server is stopped and its folder deleted.
pub struct Server {
    launch: Launch,
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Server {
    fn start(
        launch: Launch,
        folder: PathBuf,
        core: Option<usize>,
        settings: &[(&str, &str)],
    ) -> Result<Server> {
        // A child inherits the cores of the thread that starts it, and its own threads inherit them in turn.
        let before = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
        match core {
            Some(core) => pin(core)?,
            None => unpin()?,
        }
        let port = free_port()?;
        let child = Server::spawn(&launch, &folder, port, settings);
        sched_setaffinity(Pid::from_raw(0), &before)?;
        let mut server = Server { launch, child: child?, folder, port };
        server.wait()?;
        Ok(server)
    }

    fn spawn(launch: &Launch, folder: &Path, port: u16, settings: &[(&str, &str)]) -> Result<Child> {
        // With setpriv, the server is killed when this process ends, for whatever reason. With nice, the server has
        // priority over other programs on the machine, if permitted.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nice", "-n", &PRIORITY.to_string()]).arg(&launch.program);
        command.arg("--dir").arg(folder).arg("--port").arg(port.to_string());
        let fixed = [
            ("save", ""),
            ("appendonly", "no"),
            ("enable-debug-command", "yes"),
            ("proto-max-bulk-len", "4gb"),
            ("client-query-buffer-limit", "4gb"),
            ("maxmemory", "0"),
        ];
        for (name, value) in fixed.iter().chain(settings) {
            command.arg(format!("--{name}")).arg(value);
        }
        for module in &launch.modules {
            command.arg("--loadmodule").arg(module);
        }
        let log = fs::File::create(folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start the server")
    }

    fn wait(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("{} exited with {status}:\n{log}", self.launch.name);
            }
            if self.query::<String>(&["PING"]).is_ok() {
                return Ok(());
            }
            ensure!(started.elapsed() < START, "{} does not answer", self.launch.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// A connection for the measured commands.
    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(self.port)?)
    }

    /// A connection for the other commands.
    pub fn client(&self) -> Result<redis::Connection> {
        Ok(redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?.get_connection()?)
    }

    /// Sends one command, on a connection of its own.
    pub fn query<T: redis::FromRedisValue>(&self, words: &[&str]) -> Result<T> {
        query(&mut self.client()?, words)
    }

    /// Whether the server has a command.
    pub fn knows(&self, command: &str) -> Result<bool> {
        let known: Vec<redis::Value> = self.query(&["COMMAND", "INFO", command])?;
        Ok(matches!(known.first(), Some(redis::Value::Array(_))))
    }

    /// A field of INFO.
    pub fn info(&self, section: &str, field: &str) -> Result<String> {
        let text: String = self.query(&["INFO", section])?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(str::to_owned).with_context(|| format!("INFO has no {field}"))
    }

    /// Nanoseconds of processor time that all threads of the server have used. Waits until they sleep: while a thread
    /// runs, the kernel adds to its time only every 4 ms, which is longer than some measurements take.
    pub fn cpu_ns(&self) -> Result<u64> {
        let deadline = Instant::now() + Duration::from_millis(100);
        while self.of_threads("stat")?.iter().any(|stat| stat.contains(") R ")) && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(100));
        }
        let times = self.of_threads("schedstat")?;
        times.iter().map(|times| Ok(times.split(' ').next().unwrap_or_default().parse::<u64>()?)).sum()
    }

    /// The content of the file with this name in `/proc`, for each thread of the server.
    fn of_threads(&self, file: &str) -> Result<Vec<String>> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        threads.map(|thread| Ok(fs::read_to_string(thread?.path().join(file))?)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A port that nobody listens on.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Sends one command on a connection.
pub fn query<T: redis::FromRedisValue>(client: &mut redis::Connection, words: &[&str]) -> Result<T> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command.query(client).with_context(|| words.join(" "))
}

/// Pins this thread, and those that it starts, to a core. Does nothing if the machine doesn't have that core.
pub fn pin(core: usize) -> Result<()> {
    if core < cores() {
        let mut set = CpuSet::new();
        set.set(core)?;
        sched_setaffinity(Pid::from_raw(0), &set)?;
    }
    Ok(())
}

/// Gives this thread priority over others, if permitted. A probe that had to wait for a core would measure the machine
/// instead of the server.
pub fn hurry() {
    // SAFETY: a plain system call about the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PROBE_PRIORITY) };
}

/// Lets this thread run on every core.
pub fn unpin() -> Result<()> {
    let mut set = CpuSet::new();
    (0..cores()).try_for_each(|core| set.set(core))?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Number of cores of the machine, not only of those that this thread may run on.
pub fn cores() -> usize {
    fs::read_to_string("/proc/cpuinfo")
        .map(|text| text.lines().filter(|line| line.starts_with("processor")).count())
        .unwrap_or(1)
        .max(1)
}

"""Real servers with the module loaded, each on a free port and in its own folder.

`matrix()` lists the servers that `scripts/servers` made. A `Server` runs one of them:

    with Server(matrix()[0], module_args=["..."], config={"appendonly": "yes"}) as server:
        server.client().execute_command("BF.ADD", "seen", "ada")
        server.kill()       # kill -9
        server.start()      # same folder, same port
        replica = server.replica()

Every server allows the commands that tests need (DEBUG, MODULE), saves nothing unless told to, and panics rather than
let a replica diverge from its primary. All servers end with the tests, however the tests end.
"""

import atexit
import collections
import contextlib
import ctypes
import dataclasses
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ROOT = Path(__file__).resolve().parents[2]
# BLOOMERY_MODULE names another build, such as one with a sanitizer, or one with a planted bug that the tests must find.
MODULE = Path(os.environ.get("BLOOMERY_MODULE") or ROOT / "target" / "release" / "libbloomery.so")
SERVERS = ROOT / ".cache" / "servers"
# What servers load, in turn, each time that one starts: a suite with --other adds a second build.
BUILDS = collections.deque([MODULE])

# Anything that takes longer is considered hung. The limit is this high because a busy machine can be ten times slower
# than an idle one.
HANG_SECONDS = 240
START_SECONDS = 120  # includes the time to load a large dump
STOP_SECONDS = 60

# With these settings, every acknowledged write is in the file, and only tests rewrite the file.
APPEND_ONLY = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-percentage": "0"}

# What must never be in a log. Sanitizers write to stderr, which goes to the same file.
FATAL = re.compile(r"panic|crash|assert|bug report|sanitizer", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Spec:
    """One server of the matrix."""

    name: str  # as in `--server redis-7.0`
    product: str  # "redis" or "valkey"
    version: tuple[int, ...]
    program: Path
    cli: Path

    def __str__(self) -> str:
        return self.name


def matrix() -> list[Spec]:
    """Every server that `scripts/servers` made, sorted by product and version."""
    specs = []
    for table in sorted(SERVERS.glob("*/servers.tsv")):
        for line in table.read_text().splitlines():
            name, version, program, cli = line.split("\t")
            numbers = tuple(int(part) for part in version.split("."))
            specs.append(Spec(name, name.split("-")[0], numbers, table.parent / program, table.parent / cli))
    return sorted(specs, key=lambda spec: (spec.product, spec.version))


class ServerFailed(Exception):
    """A server didn't start, or died. The message contains the end of its log."""


class Server:
    """A server process, its folder and its port. The folder and the port don't change on `stop`, `kill` and `start`."""

    def __init__(self, spec: Spec, *, config=None, module_args=(), module=MODULE, arguments=(), env=None):
        """Starts the server.

        `config` maps configuration names to values, `module_args` follow the module's path, and `arguments` are added
        to the command line unchanged. `module=None` starts a server without the module.
        """
        self.spec = spec
        self.config = dict(config or {})
        self.module = module
        self.module_args = [str(argument) for argument in module_args]
        self.arguments = [str(argument) for argument in arguments]
        self.env = {**os.environ, **(env or {})}
        self.directory = Path(tempfile.mkdtemp(prefix=f"bloomery-{spec.name}-"))
        self.port = free_port()
        self.process = None
        self.replicas: list[Server] = []
        self._log_seen = 0
        _everyone.add(self)
        try:
            self.start_somewhere()
        except ServerFailed:
            self.destroy()
            raise

    def __repr__(self) -> str:
        return f"<{self.spec.name} on port {self.port}>"

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_) -> None:
        self.destroy()

    # ---- life and death ---------------------------------------------------------------------------------------------

    def command_line(self) -> list[str]:
        settings = {
            "port": self.port,
            "dir": self.directory,
            "save": "",
            "enable-debug-command": "yes",
            "enable-module-command": "yes",
            # A replica that gets an error in the replication stream already differs from its primary, so it must stop
            # at once.
            "propagation-error-behavior": "panic",
            "repl-diskless-sync-delay": 0,
            # Without this, a server would test the machine's memory for seconds after a crash, and the stack trace
            # wouldn't be at the end of the log.
            "crash-memcheck-enabled": "no",
            **self.config,
        }
        line = [str(self.spec.program)]
        for name, value in settings.items():
            # A list becomes separate words, as in {"save": ["3600", "1"]}.
            line += [f"--{name}", *(map(str, value) if isinstance(value, (list, tuple)) else [str(value)])]
        if self.module:
            BUILDS.rotate()
            build = BUILDS[0] if self.module == MODULE else self.module
            line += ["--loadmodule", str(build), *self.module_args]
        return line + self.arguments

    def start(self, *, wait=True) -> None:
        """Starts the server and waits until it has loaded its data and answers. Raises `ServerFailed`."""
        assert not self.alive(), f"{self} runs already"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command_line(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.directory,
                preexec_fn=_die_with_parent(),
            )
        if wait:
            self.wait_until_ready()

    def start_somewhere(self) -> None:
        """Starts the server, on another port if a program that doesn't use `free_port` listens on this one."""
        for _ in range(20):
            try:
                return self.start()
            except ServerFailed:
                if "Address already in use" not in self.log()[-1000:]:
                    raise
                give_back(self.port)
                self.port = free_port()
        raise ServerFailed(f"{self} finds no port")

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self.alive():
                raise ServerFailed(self.explain(f"exited with status {self.process.returncode} instead of starting"))
            try:
                with self.client() as client:
                    client.ping()
                    # Another server might answer on this port until this server notices that the port is in use.
                    if client.info("server")["process_id"] == self.process.pid:
                        return
            except (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError):
                pass
            time.sleep(0.02)
        raise ServerFailed(self.explain(f"did not answer within {START_SECONDS} s"))

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9: the server gets no chance to save anything."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Ends the server in an orderly way, like SHUTDOWN: it saves if configured to."""
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            # Again and again, because a server that is writing its first append-only file refuses.
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
                return
        self.kill()
        raise ServerFailed(self.explain(f"did not stop within {STOP_SECONDS} s"))

    def restart(self, *, kill=False) -> None:
        """Stops the server, with kill -9 if `kill` is true, and starts it again in the same folder."""
        self.kill() if kill else self.stop()
        self.start()

    def destroy(self) -> None:
        """Kills the server and its replicas, and removes their folders."""
        for replica in self.replicas:
            replica.destroy()
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self in _everyone:
            _everyone.discard(self)
            give_back(self.port)

    # ---- talking to it ----------------------------------------------------------------------------------------------

    def client(self, protocol: int = 2, **options) -> redis.Redis:
        """A new client. Replies are bytes unless `decode_responses=True`."""
        # Don't retry: a test must notice that a server is gone, and a command that is sent twice would invalidate the
        # test.
        options = {"socket_timeout": HANG_SECONDS, "retry": Retry(NoBackoff(), 0), **options}
        return redis.Redis(host="127.0.0.1", port=self.port, protocol=protocol, **options)

    def command(self, *arguments):
        """Runs one command on a new connection."""
        with self.client() as client:
            return client.execute_command(*arguments)

    def cli(self, *arguments, input=None, timeout=60, program=None) -> str:
        """Runs `redis-cli`, or another such program, and returns its output."""
        done = subprocess.run(
            [str(program or redis_cli()), "-p", str(self.port), *map(str, arguments)],
            input=input,
            stdin=None if input is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "REDISCLI_RCFILE": os.devnull, "REDISCLI_HISTFILE": os.devnull},
            timeout=timeout,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
        return done.stdout

    def check_file(self, kind: str, *arguments, input=None) -> subprocess.CompletedProcess:
        """Runs redis-check-rdb or valkey-check-aof, for example, in the server's folder. The server and its tools are one
        executable. The name under which the executable is called (--argv0) decides which of them runs."""
        tree, product = self.spec.program.parent, self.spec.product
        (loader,) = tree.glob("usr/lib/*-linux-gnu/ld-linux-*.so.?")
        line = [loader, "--argv0", f"{product}-check-{kind}", "--library-path", loader.parent]
        line += [tree / "usr" / "bin" / f"{product}-check-rdb", *arguments]
        return subprocess.run(line, cwd=self.directory, input=input, text=True, stdout=subprocess.PIPE, timeout=60)

    @contextlib.contextmanager
    def configured(self, settings: dict):
        """Applies CONFIG SET for the duration of a `with` block."""
        with self.client(decode_responses=True) as client:
            before = {name: client.config_get(name)[name] for name in settings}
            try:
                for name, value in settings.items():
                    client.config_set(name, value)
                yield
            finally:
                for name, value in before.items():
                    client.config_set(name, value)

    # ---- replicas ---------------------------------------------------------------------------------------------------

    def replica(self, *, config=None, wait=True, **options) -> "Server":
        """Starts a replica: a server of the same version, unless `spec` is given. It may have another configuration,
        and ends with this server."""
        settings = {"replicaof": ["127.0.0.1", str(self.port)], **(config or {})}
        replica = Server(options.pop("spec", self.spec), config=settings, **options)
        self.replicas.append(replica)
        if wait:
            self.wait_until_online(replica)
        return replica

    def wait_until_online(self, replica: "Server") -> None:
        """Waits until both sides say that the replica is in sync. The replica says so up to a second earlier, when the
        primary doesn't send it new writes yet."""

        def online() -> bool:
            if replica.info("replication")["master_link_status"] != "up":
                return False
            links = self.info("replication")
            states = [link for name, link in links.items() if re.fullmatch(r"slave\d+", name)]
            return any(link["port"] == replica.port and link["state"] == "online" for link in states)

        wait_for(online, f"{replica} to be in sync")

    def wait_for_replicas(self) -> None:
        """Waits until every replica has applied everything that was written so far."""
        written = self.info("replication")["master_repl_offset"]
        for replica in self.replicas:
            # WAIT would cover only its own connection's writes.
            wait_for(lambda: replica.info("replication")["slave_repl_offset"] >= written, f"{replica} to catch up")

    def info(self, section: str) -> dict:
        with self.client(decode_responses=True) as client:
            return client.info(section)

    def processor(self) -> float:
        """Seconds of CPU time that the server's main thread has used. The difference between two readings is an upper
        bound for the time for which the thread was blocked, however busy the machine is."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    # ---- its log ----------------------------------------------------------------------------------------------------

    @property
    def log_path(self) -> Path:
        return self.directory / "log"

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        """The end of the log, or the part around the first fatal line since the last `check`."""
        new = self.log()[self._log_seen :].splitlines()
        fatal = next((number for number, line in enumerate(new) if FATAL.search(line)), None)
        start = max(0, len(new) - lines if fatal is None else fatal - 5)
        return "\n".join(new[start : start + 60])

    def explain(self, what: str) -> str:
        return f"{self} {what}\n--- {' '.join(self.command_line())}\n--- from its log\n{self.log_tail()}"

    def check(self) -> None:
        """Raises if the server or a replica has died on its own, or has logged a fatal line since the last check."""
        for replica in self.replicas:
            replica.check()
        status = self.process.poll()
        try:
            if status not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
                raise ServerFailed(self.explain(f"died with status {status}"))
            if fatal := FATAL.search(self.log()[self._log_seen :]):
                raise ServerFailed(self.explain(f"wrote {fatal.group()!r} to its log"))
        finally:
            self._log_seen = len(self.log())  # don't blame the next test for it


def option(spec, name: str) -> str:
    """The name of a module option in CONFIG. Redis 8 lets the module choose the name, and other servers put `bf.`
    before it."""
    return f"bf-{name}" if spec.product == "redis" and spec.version >= (8,) else f"bf.{name}"


def io_threads(spec, count: int) -> dict:
    """The configuration of a server with `count` I/O threads."""
    reads = {"io-threads-do-reads": "yes"} if spec.product == "redis" and spec.version < (8,) else {}
    return {"io-threads": count, **reads}


def saves_loads(spec) -> bool:
    """Whether RDB files contain unfinished loads, and replicas and append-only files get each piece when it arrives."""
    return spec.product == "valkey" or spec.version >= (7, 2)


def rewrite(server, client):
    def done():
        return server.info("persistence")["aof_rewrite_in_progress"] == 0

    wait_for(done, "an earlier rewrite to end")
    client.bgrewriteaof()
    wait_for(lambda: done() and not server.info("persistence")["aof_rewrite_scheduled"], "the rewrite to end")
    assert server.info("persistence")["aof_last_bgrewrite_status"] == "ok"


def redis_cli() -> Path:
    """The redis-cli that is used with all servers, so that the format of replies doesn't depend on the server."""
    return next(spec.cli for spec in matrix() if spec.product == "redis")


PORTS = range(11_000, 21_000)  # the kernel assigns neither these nor their bus ports to clients
BUS = 10_000  # a server's cluster bus port is its port plus this number

_reserved: dict[int, socket.socket] = {}


def free_port() -> int:
    """A port on which nothing listens, and whose cluster bus port is free as well.

    The port stays reserved until `give_back` or the end of this process, because a server starts to listen only some
    time after it gets its port, and doesn't listen between `stop` and `start`. The reservation is a UDP socket on this
    port. Nothing else uses such sockets, so the reservation works for all processes on this machine that call
    `free_port`.
    """
    for port in random.sample(PORTS, len(PORTS)):
        reservation = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as here, socket.socket() as bus:
            try:
                reservation.bind(("127.0.0.1", port))
                here.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + BUS))
            except OSError:
                reservation.close()
                continue
        _reserved[port] = reservation
        return port
    raise ServerFailed("there is no free port")


def give_back(port: int) -> None:
    _reserved.pop(port).close()


def wait_for(condition, what: str, seconds: float = HANG_SECONDS) -> None:
    """Waits until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)


# ---- nobody outlives the tests --------------------------------------------------------------------------------------

_everyone: set[Server] = set()


@atexit.register
def _destroy_all() -> None:
    for server in list(_everyone):
        server.destroy()


def _die_with_parent():
    """A `preexec_fn` that makes Linux kill the child if this process is killed, in which case `atexit` doesn't run.
    Linux kills the child as soon as the parent's *thread* ends, so servers that a test starts from a thread of its own
    don't get this protection."""
    if threading.current_thread() is not threading.main_thread():
        return None
    prctl = ctypes.CDLL(None).prctl
    PR_SET_PDEATHSIG = 1
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

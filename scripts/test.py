"""The stages of scripts/test, and the code that runs them in this order, two at a time unless they have to wait."""

import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

LOGS = Path(".cache/log")
AT_A_TIME = 2
RUSTDOC = "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --locked"
PYTEST = ".cache/venv/bin/python -m pytest -n 2"
SERVERS = ("fetch", "module", "program")
FAST_RELEASE = "CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16"


@dataclass
class Stage:
    """A command for bash. It waits for the stages that it needs, and for others with the same lock."""

    name: str
    command: str  # empty if it runs only with --quick
    needs: tuple = ()
    lock: str = ""  # what cargo locks: a target folder and profile
    quick: str | bool = False  # the command to run with --quick, True for the same one, or False for none
    is_long: bool = False  # only with --all
    background: bool = False  # mostly waits for the network, so it doesn't count towards AT_A_TIME


# No stage compares times: docs/RELIABILITY.md says what does, and needs a quiet machine. So any two stages may run at
# the same time.
#
# Code with the same features and profile is compiled only once. So the program and its tests use the library with the
# feature that the library's own tests need (`serde`). Release builds and the models don't wait for debug builds,
# because cargo's locks are per target folder and profile.
STAGES = [
    Stage(
        "fetch",
        "source scripts/lib.sh; need_python; need_node; scripts/servers {all}; scripts/prometheus",
        quick=True,
        background=True,
    ),
    # After `fetch`, because only one process at a time can install packages.
    Stage(
        "browser",
        "source scripts/lib.sh; need_packages chromium chromium-driver",
        needs=("fetch",),
        background=True,
    ),
    Stage(
        "format",
        "cargo fmt --all --check && for part in bench fuzz tests/portable; do "
        "cargo fmt --all --check --manifest-path $part/Cargo.toml || exit; done",
        quick=True,
    ),
    Stage("seeded bugs apply", "scripts/seeded-bugs --check"),
    # With --quick, the module isn't optimised across crates, which takes most of the time.
    Stage(
        "module",
        "cargo build --release --locked",
        lock="release",
        quick=f"{FAST_RELEASE} cargo build --release --locked",
    ),
    Stage(
        "program",
        "cargo build --package bloomery-cli --features bloomery/serde --locked",
        lock="debug",
    ),
    Stage(
        "clippy",
        "cargo clippy --workspace --all-targets --locked -- -D warnings",
        lock="debug",
        quick="cargo clippy --workspace --lib --locked -- -D warnings",
    ),
    Stage(
        "tests",
        "cargo test --workspace --locked --no-fail-fast",
        lock="debug",
        quick="CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo test --locked --lib --test commands --test wire "
        "-- --skip every_flipped_bit_under",
    ),
    # `tests` has compiled them. For `cargo run`, the library would be compiled again, with fewer features.
    Stage(
        "examples",
        'set -e; for file in examples/*.rs; do "target/debug/examples/$(basename "$file" .rs)" 200000; done',
        needs=("tests",),
    ),
    Stage("loom", "scripts/loom", lock="loom"),
    Stage("offline", f"{PYTEST} tests/offline", needs=("fetch",)),
    Stage(
        "servers",
        f"{PYTEST} tests/server {{large}}",
        needs=SERVERS,
    ),
    Stage("quick servers", "", needs=("fetch", "module"), quick=f"{PYTEST} tests/server -m quick --server redis-8.0"),
    # Checks the links in the comments of the public interface, and then in all comments.
    Stage(
        "rustdoc",
        f"{RUSTDOC} --package bloomery-redis && {RUSTDOC} --workspace --document-private-items",
        lock="debug",
    ),
    Stage("api", "scripts/api", lock="api"),
    # Compiling cargo-deny takes 140 s of processor time. tests/offline checks licences and sources, too.
    Stage("dependencies", "scripts/deny", is_long=True),
    Stage("library alone", "scripts/library --no-clock", lock="debug"),
    Stage("site", f"scripts/docs && {PYTEST} tests/site", needs=("fetch", "browser", "program")),
    # Compiles the crates of rivals.
    Stage("benchmarks", "cargo check --manifest-path bench/Cargo.toml --all-targets --locked", lock="bench", is_long=True),
    Stage("fuzz targets", "cargo check --manifest-path fuzz/Cargo.toml --bins --locked", lock="bench", is_long=True),
    Stage("rivals", "scripts/bench --rivals --smoke", needs=SERVERS, lock="release"),
    # The long suites of docs/RELIABILITY.md, for a few seconds each, on one server each. They wait more than they
    # compute. With --all, they run on every server.
    *(
        Stage(suite.split()[0], f"scripts/suite {suite}", needs=SERVERS)
        for suite in (
            "corrupt --count 500 --server redis-8.0",
            "chunks --count 500 --server valkey-8.1",
            "kill9 --count 5 --server redis-7.0",
            "restart --count 4 --cuts 6 --server valkey-8.1",
            "replica --count 2000 --server redis-8.0",
            "rebuild --count 20 --server redis-7.0",
            "redisbloom --count 1000 --server redis-7.0",
            "sketches --count 5000 --server redis-8.0",
            "middle --count 10 --server redis-8.0",
            "fullsync --count 5 --megabytes 40 --server valkey-8.1",
            "cluster --count 50 --server redis-8.0",
            "soak --count 1 --server valkey-8.1",
            "memory --count 64 --server redis-7.0",
            "latency --count 1 --short --unbounded --server redis-8.0",
            "load --count 300000 --server redis-8.0",
            "valgrind --count 20 --server redis-7.0",
        )
    ),
]


def chosen(arguments):
    """The stages to run: the named ones, or else all (with --quick, all quick ones), and the stages that these need."""
    wanted = {argument for argument in arguments if not argument.startswith("--")}
    if unknown := wanted - {stage.name for stage in STAGES}:
        sys.exit(f"scripts/test: there is no stage {', '.join(sorted(unknown))}; --list prints them")
    if not wanted:
        stages = [stage for stage in STAGES if "--all" in arguments or not stage.is_long]
        wanted = {stage.name for stage in stages if (stage.quick if "--quick" in arguments else stage.command)}
    for stage in reversed(STAGES):  # the stages that a stage needs come before it
        if stage.name in wanted:
            wanted |= set(stage.needs)
    return [stage for stage in STAGES if stage.name in wanted]


def command_of(stage, arguments):
    command = stage.quick if "--quick" in arguments and isinstance(stage.quick, str) else stage.command
    if "--all" in arguments and command.startswith("scripts/suite"):
        command = re.sub(r" --server \S+", "", command)
    is_all = "--all" in arguments
    return command.replace(" {all}", " --all" if is_all else "").replace("{large}", "--all-servers" if is_all else "-m 'not large'")


def tests_in(log):
    """The numbers of passed, failed and skipped tests. Cargo reports them as `test result: ok. 12 passed; 0 failed; 1
    ignored; …`, and pytest as `==== 12 passed, 1 skipped in 3s ====`."""
    counts = [0, 0, 0]
    for line in re.findall(r"^(?:test result: .*|=+ .* in [0-9.]+s.* =+)$", log, re.M):
        for number, what in re.findall(r"(\d+) (passed|failed|error|skipped|ignored)", line):
            counts[{"passed": 0, "failed": 1, "error": 1}.get(what, 2)] += int(number)
    return counts


def failures_in(log):
    """The names of failed tests and where they panicked: the end of the output is all that some services show."""
    return re.findall(
        r"^(?:test .* \.\.\. FAILED|(?:FAILED|ERROR) tests/.*|thread .* panicked at .*\n.*|error(?:\[\w+\])?: .*)$", log, re.M
    )[:20]


class Run:
    def __init__(self, stages, arguments):
        self.waiting = list(stages)
        self.running = []
        self.verdicts = {}
        self.summary = []
        self.failures = []
        self.totals = [0, 0, 0]
        self.arguments = arguments
        self.changed = threading.Condition()

    def run(self):
        with self.changed:
            while self.waiting or self.running:
                for stage in list(self.waiting):
                    if lacks := [name for name in stage.needs if self.verdicts.get(name) == "FAILED"]:
                        self.waiting.remove(stage)
                        self.finish(stage, "FAILED", f"not run, as {lacks[0]} failed", [0, 1, 0])
                    elif self.may_start(stage):
                        self.waiting.remove(stage)
                        self.running.append(stage)
                        threading.Thread(target=self.execute, args=[stage], daemon=True).start()
                if self.running:
                    self.changed.wait()

    def may_start(self, stage):
        busy = sum(not other.background for other in self.running)
        return (
            all(self.verdicts.get(name) for name in stage.needs)
            and not (stage.lock and any(other.lock == stage.lock for other in self.running))
            and (stage.background or busy < AT_A_TIME)
        )

    def execute(self, stage):
        command = command_of(stage, self.arguments)
        log = LOGS / f"test-{stage.name.replace(' ', '-')}.log"
        started = time.monotonic()
        print(f"---- {stage.name}: {command}", flush=True)
        with log.open("w") as output:
            words = ["bash", "-o", "pipefail", "-c", command]
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = f"{time.monotonic() - started:5.0f} s, of processors {used.ru_utime + used.ru_stime:5.0f} s"
        said = log.read_text(errors="replace")
        counts = tests_in(said)
        verdict = "FAILED" if status else "passed"
        if status:
            counts[1] = counts[1] or 1  # it failed before its tests began
        elif not any(counts):
            counts[0] = 1
        with self.changed:
            if status:
                print(said, end="" if said.endswith("\n") else "\n")
                self.failures += failures_in(said)
            self.running.remove(stage)
            self.finish(stage, verdict, took, counts)
            self.changed.notify()

    def finish(self, stage, verdict, took, counts):
        self.verdicts[stage.name] = verdict
        self.totals = [total + count for total, count in zip(self.totals, counts)]
        self.summary.append(f"{verdict:7} {stage.name:18} {took}")
        print(f"==== {self.summary[-1]}", flush=True)


def main(arguments):
    stages = chosen(arguments)
    if "--list" in arguments:
        for stage in stages:
            print(f"{stage.name:18} {command_of(stage, arguments)}")
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    run = Run(stages, arguments)
    run.run()
    print("\n==== summary", *run.summary, sep="\n")
    print(*run.failures, sep="\n")
    print(f"took {time.monotonic() - started:.0f} s")
    print("{} passed, {} failed, {} skipped".format(*run.totals))
    return int(run.totals[1] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

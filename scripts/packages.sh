# shellcheck shell=bash
# Runs programs from Debian packages without installing anything.
#
# To be sourced after lib.sh. A package and the libraries that it needs are fetched from this machine's Debian mirror,
# verified with Debian's keys, and unpacked into a folder of their own. There is no chroot, and nothing else on the
# machine changes. Apt resolves the dependencies against an empty package status. So the C library is fetched, too, and
# the programs run with its dynamic loader on any host.

# Prints the address of the Debian mirror that this machine uses; nothing if there are no package lists yet.
known_mirror() {
    apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' 'Label: Debian' | awk 'NR == 1'
}

debian_mirror() {
    local mirror
    mirror=$(known_mirror)
    # A fresh machine has no package lists yet, and apt reads the label from them. Fetching them needs root.
    [[ -n $mirror ]] || { quietly apt-update apt-get update && mirror=$(known_mirror); }
    [[ -n $mirror ]] || { say "apt knows no Debian mirror on this machine" && return 1; }
    echo "$mirror"
}

# download SUITE DIR PACKAGE...: fetch the packages and everything that they depend on into DIR/archives. For another
# processor architecture, set ARCHITECTURE.
download() {
    local suite=$1 dir=$2 keyring mirror
    shift 2
    mirror=$(debian_mirror) || return
    for keyring in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        [[ -e $keyring ]] && break
    done
    mkdir -p "$dir"/{lists,archives}/partial
    : >"$dir/status"
    echo "deb [signed-by=$keyring] $mirror $suite main" >"$dir/sources.list"
    local apt=(
        apt-get --quiet --yes
        -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$dir/lists" -o Dir::State::Status="$dir/status"
        -o Dir::Cache="$dir" -o Dir::Cache::Archives="$dir/archives"
        -o APT::Sandbox::User=root -o Acquire::Languages=none
        -o APT::Update::Error-Mode=any
        ${ARCHITECTURE:+-o APT::Architecture="$ARCHITECTURE" -o APT::Architectures="$ARCHITECTURE"}
    )
    "${apt[@]}" update && "${apt[@]}" install --download-only --no-install-recommends "$@"
}

# unpack DIR PACKAGEFILE...: unpack the packages into DIR, without /usr/share, /etc and /var. Older packages still put
# files into /lib, which is now a link to /usr/lib.
unpack() {
    local dir=$1 file
    shift
    mkdir -p "$dir/usr/lib"
    ln -s usr/lib "$dir/lib"
    for file; do
        dpkg-deb --fsys-tarfile "$file" |
            tar --extract --directory "$dir" --keep-directory-symlink --no-same-owner \
                --exclude './usr/share' --exclude './etc' --exclude './var'
    done
}

# launcher DIR NAME PROGRAM: write DIR/NAME, which starts the tree's PROGRAM with the tree's own loader and with NAME as
# argv[0]. A server and its check-rdb tool are the same file, which decides by argv[0] which of them to be.
launcher() {
    local lib
    lib=$(cd "$1" && echo usr/lib/*-linux-gnu)
    cat >"$1/$2" <<-LAUNCHER
		#!/bin/sh
		tree=\$(dirname "\$(readlink -f "\$0")")
		exec "\$tree"/$lib/ld-linux-*.so.? --argv0 $2 --library-path "\$tree/$lib" "\$tree/usr/bin/$3" "\$@"
	LAUNCHER
    chmod 755 "$1/$2"
}

#!/usr/bin/env bash
# nightly.sh BLOCKED ALLOWED
#
# Makes a filter file of the lines of BLOCKED, without a server; tests it; and swaps it in for the key `deny`. No line
# of ALLOWED, which are those that must never be refused, may test positive. What goes wrong leaves the key as it was.

set -euo pipefail

blocked=$(realpath "$1") allowed=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

grep -q . "$blocked" # a list without entries is none that was downloaded
bloomery build deny.bloom "$blocked" --static --error-rate 0.000001 --quiet >/dev/null
bloomery inspect deny.bloom >/dev/null # it is whole ...
# ... every entry is in it ...
bloomery test --filter deny.bloom --from "$blocked" --quiet
# ... and nobody who must not be.
refused=$(bloomery test --filter deny.bloom --from "$allowed" --only yes)
if [[ $refused ]]; then
    printf 'the deny list is as it was: it would refuse %s\n' "$refused" >&2
    exit 1
fi
bloomery push deny.bloom deny --replace --quiet

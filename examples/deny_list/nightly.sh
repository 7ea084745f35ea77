#!/usr/bin/env bash
# nightly.sh BLOCKED ALLOWED
#
# Makes a filter file from the lines of BLOCKED, without a server, tests it, and swaps it in at the key `deny`. ALLOWED
# lists those who must never be refused: none of its lines may test positive. If anything goes wrong, the key stays as
# it was.

set -euo pipefail

blocked=$(realpath "$1") allowed=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

grep -q . "$blocked" # an empty list means that the download failed
bloomery build deny.bloom "$blocked" --static --error-rate 0.000001 --quiet >/dev/null
bloomery inspect deny.bloom >/dev/null # the file is intact ...
# ... every entry is in it ...
bloomery test --filter deny.bloom --from "$blocked" --quiet
# ... and nobody who must never be refused is in it.
refused=$(bloomery test --filter deny.bloom --from "$allowed" --only yes)
if [[ $refused ]]; then
    printf 'the deny list is as it was: it would refuse %s\n' "$refused" >&2
    exit 1
fi
bloomery push deny.bloom deny --replace --quiet

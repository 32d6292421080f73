# clean.sh FILE... OUT: the lines of all files, trimmed, sorted, each once.
set -eu
for out; do :; done
while [ $# -gt 1 ]; do cat "$1"; shift; done | sed 's/^ *//; s/ *$//; /^$/d' | LC_ALL=C sort -u > "$out"

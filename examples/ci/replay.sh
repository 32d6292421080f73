#!/bin/sh
# Builds on a machine that measures, and replays the build on one that has no
# network and measures nothing:
#
#   replay.sh populate ARCHIVE PATTERN...   build, and pack what a replay needs
#   replay.sh replay ARCHIVE PATTERN...     build again from the archive alone
#
# Both run in the same revision of the workspace. ASSAY names the program (assay),
# ASSAY_CACHE the cache that populate uses, SUMMARY a file for the Markdown summary
# of the replay. The exit code is that of assay, or 1 if an output is another one
# than on the machine that measured.
set -eu

assay=${ASSAY:-assay}

usage() {
	echo "usage: $0 populate|replay ARCHIVE PATTERN..." >&2
	exit 2
}

# The digest of every target's output, from the report of a build. That of a
# publication is the digest of all its files.
outputs() {
	sed -n -e 's/^ *"target": "\([^"]*\)".*/\1/p' -e 's/^ *"output": "\([^"]*\)".*/    \1/p' "$1"
}

# Runs a command in a network namespace of its own, which has no way out. The
# first form needs no root where the system lets users have namespaces.
offline() {
	if unshare -rn true 2>/dev/null; then
		unshare -rn "$@"
	elif unshare -n true 2>/dev/null; then
		unshare -n "$@"
	else
		echo "$0: no network namespace can be made here; replaying within reach of the network, so this run proves nothing about it" >&2
		"$@"
	fi
}

[ $# -ge 3 ] || usage
verb=$1 archive=$2
shift 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM

case $verb in
populate)
	cache=${ASSAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/assay}
	"$assay" build --json "$tmp/report.json" "$@"
	outputs "$tmp/report.json" >"$tmp/outputs"
	# The content and the records of it. Downloads and environments are needed to
	# measure; history, logs and locks belong to one machine.
	tar -cf "$archive" -C "$cache" cas ac -C "$tmp" outputs
	;;
replay)
	mkdir "$tmp/cache"
	tar -xf "$archive" -C "$tmp/cache"
	export ASSAY_CACHE="$tmp/cache"
	offline "$assay" build --replay --json "$tmp/report.json" ${SUMMARY:+--summary "$SUMMARY"} "$@"
	outputs "$tmp/report.json" >"$tmp/outputs"
	if ! diff "$tmp/cache/outputs" "$tmp/outputs"; then
		echo "$0: these outputs are others than on the machine that measured" >&2
		exit 1
	fi
	echo "every output is the one of the machine that measured"
	;;
*)
	usage
	;;
esac

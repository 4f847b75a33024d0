#!/bin/sh
# Runs a command several times with two busy loops beside it: `busy.sh TIMES COMMAND...`. Ends at the first failure.
set -eu
times=$1
shift
loops=
# a loop that outlives us would slow whatever comes next
trap 'kill $loops 2>/dev/null || true' EXIT INT TERM
for _ in 1 2; do
    (while :; do :; done) &
    loops="$loops $!"
done
for run in $(seq "$times"); do
    echo "busy: run $run of $times" >&2
    "$@"
done

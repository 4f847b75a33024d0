#!/bin/sh
# Runs the checks and all tests: `test.sh PYTEST...`. Tests on a cluster run one after the other, since two clusters at once
# slow each other down, and wait much; the checks and the fast tests fill that time, and the fast ones tell their result in
# one piece when both have ended.
set -u
told=$(mktemp)
fast= cluster=
trap 'kill $fast $cluster 2>/dev/null; rm -f "$told"' EXIT INT TERM
# the files are named, since to collect all the others takes half a minute
"$@" -m "spark and not soak" $(grep -rl "mark.spark" tests --include="test_*.py" | sort) &
cluster=$!
make lint || exit
nice -n 5 "$@" -m "not spark" --numprocesses="$(nproc)" >"$told" 2>&1 &
fast=$!
wait "$cluster"
cluster_code=$?
wait "$fast"
fast_code=$?
cat "$told"
[ $fast_code -eq 0 ] && [ $cluster_code -eq 0 ]

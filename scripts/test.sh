#!/bin/sh
# Runs all tests: `test.sh PYTEST...`. Those on a cluster run one after the other, since two clusters at once slow each
# other down, and wait much; the fast ones fill that time, and tell their result in one piece when they have ended.
set -u
told=$(mktemp)
trap 'kill "$fast" "$classes" 2>/dev/null; rm -f "$told"' EXIT INT TERM
(nice -n 3 "$@" -m "not spark" --numprocesses="$(($(nproc) > 2 ? $(nproc) - 1 : 1))" >"$told" 2>&1; code=$?; echo; cat "$told"; exit $code) &
fast=$!
# the first tests on a cluster do without; the later ones wait for it
nice -n 5 "$(dirname "$1")/python" -m penstock_lab.ground.class_training &
classes=$!
# to collect all the others takes half a minute
"$@" -m "spark and not soak" $(grep -rl "mark.spark" tests --include="test_*.py" | sort)
cluster=$?
wait "$fast"
[ $? -eq 0 ] && [ $cluster -eq 0 ]

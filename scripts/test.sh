#!/bin/sh
# Runs the checks and all tests: `test.sh PYTEST...`. Tests on a cluster run one after the other, since two clusters at once
# slow each other down, and wait much; the fast ones fill that time, and tell their result in one piece when they have ended.
set -u
told=$(mktemp)
fast= classes=
trap 'kill $fast $classes 2>/dev/null; rm -f "$told"' EXIT INT TERM
# the checks need one core, and the first tests on a cluster do without the archive of classes
"$(dirname "$1")/python" -m penstock_lab.ground.class_training &
classes=$!
make lint || exit
(nice -n 5 "$@" -m "not spark" --numprocesses="$(($(nproc) > 2 ? $(nproc) - 1 : 1))" >"$told" 2>&1; code=$?; echo; cat "$told"; exit $code) &
fast=$!
# to collect all the others takes half a minute
"$@" -m "spark and not soak" $(grep -rl "mark.spark" tests --include="test_*.py" | sort)
cluster=$?
wait "$fast"
[ $? -eq 0 ] && [ $cluster -eq 0 ]

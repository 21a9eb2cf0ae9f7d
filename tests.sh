#!/bin/sh
# Runs every test, one process a folder: one process for all of them grows to gigabytes, slows down by half, and in the
# end runs out of what it never gave back. Arguments go to pytest.
cd "$(dirname "$0")"
failed=
for part in model_foundry_tests/*/; do
    [ "$part" = model_foundry_tests/__pycache__/ ] && continue
    echo "== $part"
    .venv/bin/python -m pytest "$@" "$part" || failed="$failed $part"
done
echo "== model_foundry_tests"
.venv/bin/python -m pytest "$@" model_foundry_tests/test_*.py || failed="$failed model_foundry_tests"
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }

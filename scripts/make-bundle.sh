#!/bin/sh
# Everything that a host needs besides its own Python, in one file: DIR/holdfast-bundle-VERSION.tar.gz
#
#   scripts/make-bundle.sh [--with NAME] VENV DIR [SUFFIX]
#
# wheels/ holds Holdfast and what it depends on, in the versions of requirements.lock, built for the Python of VENV: the
# hosts' Python has to be of the same version and architecture, which the file PYTHON tells. It holds what ansible/bundle.in
# names too; the file SUPERVISOR tells which supervisord that is. SUFFIX is appended to the version ("+site.2"), to tell
# builds of one's own apart. pip's configuration is the environment's.
#
# --with spark: also what ansible/spark.in names, in the versions of ansible/spark.lock, as DIR/holdfast-spark-bundle-...;
# the file EXTRAS tells what that is.
set -eu
extras=
if [ "$1" = --with ]; then
    extras=$2
    shift 2
fi
venv=$1
out=$2
suffix=${3:-}
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$work/bundle/wheels" "$out"
"$venv/bin/python" scripts/dist/make_dist.py --wheels --suffix "$suffix" "$work/ours" >"$work/built"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)$suffix

set -- --constraint requirements.lock --requirement ansible/bundle.in
grep '^supervisor==' ansible/bundle.in >"$work/bundle/SUPERVISOR"
if [ -n "$extras" ]; then
    set -- "$@" --constraint "ansible/$extras.lock" --requirement "ansible/$extras.in"
    # Names from the one, versions from the other.
    sed -n 's/^\([a-zA-Z0-9_.-]*\).*/\1/p' "ansible/$extras.in" | grep . |
        while read -r name; do grep "^$name==" "ansible/$extras.lock"; done >"$work/bundle/EXTRAS"
    echo "holdfast-pipeline==$version" >>"$work/bundle/EXTRAS"
else
    rm "$work"/ours/holdfast_pipeline-*  # Spark's packages, which it needs, are half a gigabyte
fi
"$venv/bin/python" -m pip --disable-pip-version-check wheel --quiet --wheel-dir "$work/bundle/wheels" "$@" "$work"/ours/*.whl
printf '%s\n' "$version" >"$work/bundle/VERSION"
"$venv/bin/python" -c 'import platform, sys; print("%d.%d" % sys.version_info[:2], platform.machine())' >"$work/bundle/PYTHON"
(cd "$work/bundle/wheels" && sha256sum -- *.whl >../SHA256SUMS)
bundle=$out/holdfast-${extras:+$extras-}bundle-$version.tar.gz
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$work/bundle" -czf "$bundle.part" .
mv "$bundle.part" "$bundle"
echo "$bundle"

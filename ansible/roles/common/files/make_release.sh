# Makes RELEASE, an environment of PYTHON with PACKAGE..., from the bundle RELEASE.tar.gz alone, which goes afterwards.
#
#   sh -s RELEASE PYTHON PACKAGE...
#
# pip comes from the bundle as well: it is needed only here, and making an environment with one takes ten times as long.
set -eu
release=$1
python=$2
shift 2
umask 022
rm -rf "$release" "$release.bundle"  # of a run that was broken off
mkdir "$release.bundle"
tar --no-same-owner -C "$release.bundle" -xzf "$release.tar.gz"
"$python" -m venv --without-pip "$release"
pip=$(echo "$release.bundle"/wheels/pip-*.whl)
"$release/bin/python" "$pip/pip" --disable-pip-version-check install --quiet --no-cache-dir \
    --no-index --find-links "$release.bundle/wheels" "$@"
rm -rf "$release.bundle" "$release.tar.gz"
printf '%s\n' "$@" >"$release/complete"

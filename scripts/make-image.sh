#!/bin/sh
# Container image of a node, from Debian's packages and this tree: DIR/holdfast-image-VERSION.tar (an archive for
# `podman load` and `docker load`). No image registry is asked.
#
#   scripts/make-image.sh VENV DIR
#
# The image has the Debian release of this machine, since the wheels are built for the Python of VENV. apt's and pip's
# configuration are this machine's, and stay out of the image. Needs root, mmdebstrap and buildah
# (scripts/system-packages.sh container).
set -eu
venv=$1
out=$2
umask 022
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

[ "$(id -u)" = 0 ] || { echo "make-image.sh: needs root, to lay out the files of the image" >&2; exit 1; }
for program in mmdebstrap buildah; do
    command -v $program >/dev/null || { echo "make-image.sh: there is no $program; scripts/system-packages.sh container" >&2; exit 1; }
done
. /etc/os-release
root=$work/root

echo "the system: Debian $VERSION_CODENAME" >&2
apt-config dump Acquire >"$work/apt.conf"
# shellcheck disable=SC2046  # one word for each file of sources
mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates,netbase --aptopt="$work/apt.conf" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$VERSION_CODENAME" "$root" $(ls /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null)
rm -rf "$root"/etc/apt/apt.conf.d/*mmdebstrap* "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*

theirs=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ours=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$theirs" = "$ours" ] || { echo "make-image.sh: the image has Python $theirs, $venv has $ours: make $venv with Debian's" >&2; exit 1; }

echo "the packages" >&2
scripts/make-bundle.sh "$venv" "$work" >/dev/null
mkdir "$work/bundle"
tar -C "$work/bundle" -xf "$work"/holdfast-bundle-*.tar.gz
version=$(cat "$work/bundle/VERSION")
packages=$root/usr/local/lib/python$theirs/dist-packages
"$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-index --find-links "$work/bundle/wheels" \
    --no-compile --target "$packages" holdfast holdfast-node
rm -rf "$packages/bin"
chroot "$root" python3 -m compileall -q "/usr/local/lib/python$theirs/dist-packages"
command_of() {  # command_of NAME MODULE
    printf '#!/bin/sh\nexec python3 -m %s "$@"\n' "$2" >"$root/usr/local/bin/$1"
    chmod 755 "$root/usr/local/bin/$1"
}
command_of holdfast holdfast.cli
command_of holdfast-node node
command_of holdfast-container node.startup.container
chroot "$root" useradd --no-log-init --no-create-home --uid 10001 --user-group --home-dir /var/lib/holdfast --shell /usr/sbin/nologin holdfast
install -d -o 10001 -g 10001 -m 750 "$root/var/lib/holdfast"

echo "the image" >&2
container=$(buildah from --format docker scratch)
tar -C "$root" --numeric-owner -cf "$work/root.tar" .  # an archive keeps owners, a directory would not
buildah add --quiet "$container" "$work/root.tar" / >/dev/null
buildah config --user holdfast --workingdir /var/lib/holdfast --volume /var/lib/holdfast \
    --port 5672 --port 7101 --port 9101 --port 5300 --port 10000 --stop-signal SIGTERM --cmd holdfast-container \
    --env PATH=/usr/local/bin:/usr/bin:/bin --env PYTHONUNBUFFERED=1 \
    --healthcheck 'CMD holdfast-container health' --healthcheck-interval 5s --healthcheck-start-period 60s \
    --label org.opencontainers.image.title=Holdfast --label "org.opencontainers.image.version=$version" \
    --label org.opencontainers.image.licenses=Apache-2.0 "$container"
buildah commit --quiet --format docker --rm "$container" "holdfast:$version" >/dev/null
rm -f "$out/holdfast-image-$version.tar"
buildah push --quiet "holdfast:$version" "docker-archive:$out/holdfast-image-$version.tar:holdfast:$version"
buildah rmi "holdfast:$version" >/dev/null
echo "$out/holdfast-image-$version.tar"

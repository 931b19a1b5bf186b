#!/bin/sh
# Builds the Toxiproxy server that some tests break connections with, once, into the user's cache, and prints its path.
#
#   scripts/toxiproxy.sh [--optional]
#
# It needs Go (1.23 or newer; an older one since 1.21 fetches that by itself) and Go's module proxy, where the
# environment's own settings apply. Exit status: 0 it is there, 1 it cannot be had (0 with --optional, after saying so:
# what needs it is skipped).
set -u

version=2.12.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/toxiproxy-$version

if [ ! -x "$cache/server" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "there is no Go here, so Toxiproxy cannot be built; tests with it are skipped" >&2
    else
        echo "building Toxiproxy $version" >&2
        mkdir -p "$cache" &&
            GOBIN=$cache GOFLAGS=-modcacherw go install "github.com/Shopify/toxiproxy/v2/cmd/server@v$version" >&2
    fi
fi
if [ -x "$cache/server" ]; then
    echo "$cache/server"
elif [ "${1:-}" != "--optional" ]; then
    exit 1
fi

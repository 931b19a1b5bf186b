#!/bin/sh
# Builds the NATS server and its command line, peers of `make bench`, once, into the user's cache, and prints the
# directory.
#
#   scripts/nats.sh [--optional]
#
# It needs Go (1.23 or newer; an older one since 1.21 fetches the right one by itself) and Go's module proxy, where the
# environment's own settings apply. Exit status: 0 they are there, 1 they cannot be had (0 with --optional, after saying
# so: their rows are left out).
set -u

server=2.14.9
command=0.4.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast/nats-$server

if [ ! -x "$cache/nats-server" ] || [ ! -x "$cache/nats" ]; then
    if ! command -v go >/dev/null 2>&1; then
        echo "there is no Go here, so NATS cannot be built; its rows are left out" >&2
    else
        echo "building NATS $server" >&2
        mkdir -p "$cache" &&
            GOBIN=$cache GOFLAGS=-modcacherw go install "github.com/nats-io/nats-server/v2@v$server" >&2 &&
            GOBIN=$cache GOFLAGS=-modcacherw go install "github.com/nats-io/natscli/nats@v$command" >&2
    fi
fi
if [ -x "$cache/nats-server" ] && [ -x "$cache/nats" ]; then
    echo "$cache"
elif [ "${1:-}" != "--optional" ]; then
    exit 1
fi

#!/bin/sh
# Has Maven copy Apache Kafka's brokers (the versions of benchmarks/kafka/pom.xml) into the user's cache, once, and prints
# the directory with their jars.
#
#   scripts/kafka.sh [--optional]
#
# It needs Maven, where the environment's own settings apply; to run them takes a Java of 17 or newer. Exit status: 0 they
# are there, 1 they cannot be had (0 with --optional, after saying so: what needs them is skipped).
set -u

pom=$(dirname "$0")/../benchmarks/kafka/pom.xml
version=$(sed -n 's|.*<kafka.version>\(.*\)</kafka.version>.*|\1|p' "$pom")
caches=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast
cache=$caches/kafka-$version

if [ ! -d "$cache" ]; then
    if ! command -v mvn >/dev/null 2>&1; then
        echo "there is no Maven here, so Kafka's brokers cannot be had; what needs them is skipped" >&2
    else
        echo "fetching Kafka $version (45 MiB)" >&2
        mkdir -p "$caches"
        work=$(mktemp -d "$caches/kafka-XXXXXX") # complete or not there: it gets its name at the end
        trap 'rm -rf "$work"' EXIT
        trap 'exit 1' INT TERM
        if mvn -B -q -f "$pom" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$work" >&2; then
            chmod 755 "$work"
            mv -T "$work" "$cache" 2>/dev/null || [ -d "$cache" ] # another one was faster
        else
            echo "Maven could not fetch Kafka's brokers; what needs them is skipped" >&2
        fi
    fi
fi
if [ -d "$cache" ]; then
    echo "$cache"
elif [ "${1:-}" != "--optional" ]; then
    exit 1
fi

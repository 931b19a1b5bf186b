# shellcheck shell=sh
# What scripts/kafka.sh and scripts/artemis.sh share: has Maven copy a broker's jars into the user's cache, once.
#
#   maven_brokers NAME TITLE SIZE [--optional]
#
# NAME says where the pom with the pinned versions is (benchmarks/NAME/pom.xml, property NAME.version) and what the
# directory is called. It is printed; the exit status is as those scripts promise.
maven_brokers() {
    name=$1 title=$2 size=$3 optional=${4:-}
    pom=$(dirname "$0")/../benchmarks/$name/pom.xml
    version=$(sed -n "s|.*<$name.version>\(.*\)</$name.version>.*|\1|p" "$pom")
    caches=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast
    cache=$caches/$name-$version

    if [ ! -d "$cache" ]; then
        if ! command -v mvn >/dev/null 2>&1; then
            echo "there is no Maven here, so $title's brokers cannot be had; what needs them is skipped" >&2
        else
            echo "fetching $title $version ($size)" >&2
            mkdir -p "$caches"
            work=$(mktemp -d "$caches/$name-XXXXXX") # complete or not there: it gets its name at the end
            trap 'rm -rf "$work"' EXIT
            trap 'exit 1' INT TERM
            if mvn -B -q -f "$pom" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$work" >&2; then
                chmod 755 "$work"
                mv -T "$work" "$cache" 2>/dev/null || [ -d "$cache" ] # another one was faster
            else
                echo "Maven could not fetch $title's brokers; what needs them is skipped" >&2
            fi
        fi
    fi
    if [ -d "$cache" ]; then
        echo "$cache"
    elif [ "$optional" != "--optional" ]; then
        exit 1
    fi
}

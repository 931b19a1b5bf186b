#!/bin/sh
# Has Maven copy Apache ActiveMQ Artemis (the versions of benchmarks/artemis/pom.xml) into the user's cache, once, and
# prints the directory with its jars.
#
#   scripts/artemis.sh [--optional]
#
# It needs Maven, where the environment's own settings apply; to run it takes a Java of 17 or newer. Exit status: 0 it is
# there, 1 it cannot be had (0 with --optional, after saying so: what needs it is skipped).
set -u

. "$(dirname "$0")/maven-brokers.sh"
maven_brokers artemis Artemis "17 MiB" "$@"

#!/bin/sh
# Has Maven copy Apache Kafka's brokers (the versions of benchmarks/kafka/pom.xml) into the user's cache, once, and prints
# the directory with their jars.
#
#   scripts/kafka.sh [--optional]
#
# It needs Maven, where the environment's own settings apply; to run them takes a Java of 17 or newer. Exit status: 0 they
# are there, 1 they cannot be had (0 with --optional, after saying so: what needs them is skipped).
set -u

. "$(dirname "$0")/maven-brokers.sh"
maven_brokers kafka Kafka "55 MiB" "$@"

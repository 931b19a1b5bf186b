#!/bin/sh
# Makes sure the programs that pip cannot install are there.
#
#   scripts/system-packages.sh [--optional] GROUP...
#
#   build     Python >= 3.11 with venv, a C compiler and Python's headers (python-qpid-proton is built from source;
#             OpenSSL's headers are not needed: TLS is asyncio's business, not proton's)
#   rhea      nodejs and npm, for the test with an AMQP client that is not proton
#   java      Maven and a JDK, for the tests with Java's AMQP clients and for Kafka and Artemis, peers of
#             `make bench`
#   rabbitmq  rabbitmq-server, a peer of `make bench`
#   zookeeper zookeeper and a Java runtime, for the tests of discovery (they start servers of their own)
#   provision the above, with sshd, ip and logrotate: the hosts of `make provision-test`
#   proxy     haproxy and keepalived, for the tests of one service name
#   container mmdebstrap and buildah, which make the container image, and podman with what it needs, which runs it
#
# What is missing is installed by apt-get when we are root, and named exactly when we are not. Nothing that is there is
# touched. Exit status: 0 all there, 1 something is missing (0 with --optional, after saying so).
set -u

optional=no
[ "${1:-}" = "--optional" ] && { optional=yes; shift; }

missing=""
reasons=""
need() {  # need PACKAGE "why"
    case " $missing " in *" $1 "*) return ;; esac
    missing="$missing $1"
    reasons="$reasons
    $1: $2"
}

need_zookeeper() {
    [ -e /usr/share/java/zookeeper.jar ] || need zookeeper "the server that discovery by ZooKeeper is tested with"
    command -v java >/dev/null 2>&1 || need default-jre-headless "runs ZooKeeper"
}

here=$(dirname "$0")
for group in "$@"; do
    case $group in
    build)
        if python=$("$here/find-python.sh"); then
            "$python" -c 'import venv, ensurepip' 2>/dev/null || need python3-venv "virtual environments for $python"
            "$python" -c 'import os, sysconfig, sys
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
                need python3-dev "Python's C headers, to build python-qpid-proton"
        else
            need python3 "Python 3.11 or newer"
            need python3-venv "virtual environments"
            need python3-dev "Python's C headers, to build python-qpid-proton"
        fi
        if ! command -v cc >/dev/null 2>&1 && ! command -v gcc >/dev/null 2>&1; then
            need gcc "a C compiler, to build python-qpid-proton"
            need libc6-dev "the C library's headers"
        fi
        ;;
    rhea)
        command -v node >/dev/null 2>&1 || command -v nodejs >/dev/null 2>&1 || need nodejs "runs the rhea test client"
        command -v npm >/dev/null 2>&1 || need npm "installs the rhea test client"
        ;;
    java)
        command -v mvn >/dev/null 2>&1 || need maven "fetches the Java test clients"
        command -v javac >/dev/null 2>&1 || need default-jdk-headless "compiles the Java test clients"
        ;;
    rabbitmq)
        command -v rabbitmq-server >/dev/null 2>&1 || [ -x /usr/sbin/rabbitmq-server ] ||
            need rabbitmq-server "the peer that the benchmark compares with"
        ;;
    zookeeper) need_zookeeper ;;
    provision)
        need_zookeeper
        [ -x /usr/sbin/sshd ] || need openssh-server "the hosts of the provisioning test are reached by SSH"
        command -v ssh >/dev/null 2>&1 || need openssh-client "Ansible's connection to hosts"
        command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || need iproute2 "network namespaces for those hosts"
        [ -x /usr/sbin/logrotate ] || need logrotate "rotates logs on provisioned hosts"
        ;;
    proxy)
        command -v haproxy >/dev/null 2>&1 || [ -x /usr/sbin/haproxy ] || need haproxy "a proxy in front of the nodes"
        command -v keepalived >/dev/null 2>&1 || [ -x /usr/sbin/keepalived ] ||
            need keepalived "checks what the role writes for floating addresses"
        ;;
    container)
        command -v mmdebstrap >/dev/null 2>&1 || need mmdebstrap "lays out the system of the container image"
        command -v buildah >/dev/null 2>&1 || need buildah "makes the container image"
        command -v podman >/dev/null 2>&1 || need podman "runs the container image in its test"
        command -v runc >/dev/null 2>&1 || [ -x /usr/sbin/runc ] || need runc "runs containers for podman"
        command -v podman-compose >/dev/null 2>&1 || need podman-compose "runs the compose file in that test"
        [ -x /usr/sbin/iptables ] || need iptables "lets netavark make that network"
        [ -x /usr/lib/podman/netavark ] || need netavark "makes the network of those containers"
        [ -x /usr/lib/podman/aardvark-dns ] || need aardvark-dns "finds those containers by their names"
        ;;
    *)
        known="build, rhea, java, rabbitmq, zookeeper, provision, proxy, container"
        echo "system-packages.sh: unknown group '$group' ($known)" >&2
        exit 2
        ;;
    esac
done

[ -z "$missing" ] && exit 0

give_up() {
    echo "system packages are missing ($1):$reasons" >&2
    echo "  install them with:  sudo apt-get install -y --no-install-recommends$missing" >&2
    [ $optional = yes ] && { echo "  going on without: what needs them is skipped" >&2; exit 0; }
    exit 1
}

command -v apt-get >/dev/null 2>&1 || give_up "there is no apt-get here; use the names your system has for them"
[ "$(id -u)" = 0 ] || give_up "we are not root, so they are yours to install"

# Debian starts a service as soon as its package is unpacked; the benchmark starts its own RabbitMQ nodes, and a test run
# should not leave a daemon behind. policy-rc.d is Debian's documented way to say so.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy
    trap 'rm -f $policy' EXIT
fi

export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
echo "installing system packages:$missing"
# shellcheck disable=SC2086  # the names are meant to be split
install() { apt-get install -y --no-install-recommends $missing >"$log" 2>&1; }
install || { apt-get update >>"$log" 2>&1; install; } || {
    tail -n 15 "$log" >&2
    rm -f "$log"
    give_up "apt-get could not install them; its last lines are above"
}
rm -f "$log"

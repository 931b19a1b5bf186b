"""Check that this host has the addresses, free ports, space, Python and limits that it needs. Reads only; prints JSON.

One argument, JSON: {"user": ..., "addresses": [[variable, address]], "ports": [[variable, address, port]],
"disks": [[variable, path, MiB]], "pythons": [[variable, program, what it has to be]],
"files": [[variable, how many may be open]], "links": [path]}. A port of a process of `user` counts as free. The output
has the targets of the links, "" for none. One call does everything, since a call by Ansible takes longer than all of
it.
"""

import errno
import json
import os
import pwd
import resource
import socket
import subprocess
import sys
from pathlib import Path


def has_address(address):
    """Say why an address or name cannot be bound on this host; "" if it can."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        return f"it cannot be resolved: {error}"
    for family, kind, _, _, where in found:
        with socket.socket(family, kind) as probe:
            try:
                probe.bind(where)
            except OSError as error:
                return f"this host has no such address ({error.strerror})"
    return ""


def holder(address, port, user):
    """Return the command that listens at a port; "" if there is none, or if it is a process of `user`."""
    family, kind, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
            return ""
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return ""  # `has_address` reports an address that is missing
    uid, command = listening(port)
    try:
        if uid is not None and uid == pwd.getpwnam(user).pw_uid:
            return ""
    except KeyError:
        pass  # the user does not exist yet, so it has no process
    return command or "another process"


def listening(port):
    """Return owner and command line of a process that listens on the port."""
    inodes = set()
    owner = None
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
                owner = int(fields[7])
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(entry) in inodes for entry in (process / "fd").iterdir()):
                return owner, (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
        except OSError:
            continue
    return owner, ""


def free_mib(path):
    place = Path(path)
    while not place.exists():
        place = place.parent
    system = os.statvfs(place)
    return system.f_bavail * system.f_frsize >> 20


def problems(wanted):
    for variable, address in wanted["addresses"]:
        wrong = has_address(address)
        if wrong:
            yield f"{variable}: {address}: {wrong}; write an address of this host"
    for variable, address, port in wanted["ports"]:
        if has_address(address) == "":
            other = holder(address, int(port), wanted["user"])
            if other:
                taken = f"port {port} of {address} is in use by {other.strip()}"
                yield f"{variable}: {taken}; stop that, or choose another port"
    for variable, path, mib in wanted["disks"]:
        free = free_mib(path)
        if free < int(mib):
            yield f"{variable}: {path} has {free} MiB free of {mib} asked for; free space, or choose another directory"
    for variable, program, asked_for in wanted.get("pythons", []):
        found = python(program)
        if not found:
            yield f"{variable}: {program} is no Python 3.11 or newer with venv here; install python3, or name another"
        elif asked_for not in ("", found):
            yield f"{variable}: {program} is Python {found}, but what is installed is for {asked_for}; name that one"
    for variable, count in wanted.get("files", []):
        most = open_files(int(count))
        if most < int(count):
            yield (
                f"{variable}: {count} open files, but this host lets no process have more than {most}; write less, or "
                "raise its limit (of a container: where it is started)"
            )


def open_files(count):
    """Return `count`, or the limit for root if that is lower: in some containers root may not raise it."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))  # sets only this process's limit
    except ValueError:
        return most
    return count


def python(program):
    """Return version and machine of a Python that can make environments; "" for anything else."""
    code = "import platform, sys, venv; print('%d.%d' % sys.version_info[:2], platform.machine())"
    code += "; sys.exit(sys.version_info < (3, 11))"
    try:
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def target(link):
    try:
        return os.readlink(link)
    except OSError:
        return ""


wanted = json.loads(sys.argv[1])
print(json.dumps({"problems": list(problems(wanted)), "links": [target(link) for link in wanted.get("links", [])]}))

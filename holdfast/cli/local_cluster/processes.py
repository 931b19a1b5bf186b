"""A cluster of local node processes: their files, how they are started, and how they are told apart from strangers.

Problem: a command that ends nodes by a number read from a file may end somebody else's process, because numbers are
used again; a copy of a directory names the processes and the data of the original; and a command that only starts
processes leaves its user guessing when they can be used.
Rule never broken: a process is signalled only when its number, its start time *and* its directory (which no copy is)
are those recorded at its birth, through a handle (pidfd) that cannot come to mean another process in between. A node is
not started on the data in another cluster's directory. A node counts as started when it said so itself. Rejected: a
supervisor daemon, one more thing that can die; searching processes by name, which finds other people's.

The directory:  D/cluster.json   what the cluster is (name, nodes, addresses)
                D/nodeN/node.toml  node.pid  node.log  data/
                D/secrets.key    the key that seals keys of rules
                D/nodes-ca.pem  D/nodeN/node.pem  node.key   with TLS between nodes
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.cli.local_cluster import child_processes
from holdfast.cli.shared.errors import CliError
from holdfast.cli.shared.local_servers import CLUSTER_FILE
from holdfast.extras import missing

STOP_BOUND_S = 20.0  # a node flushes and hands its leaderships over on SIGTERM; longer means it is stuck
SECRET_BYTES, SECRET_MODE = 32, 0o600
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640  # configurations and data are for their owner and its group
LOG_TAIL_LINES = 12  # of a node that did not start: enough for a traceback's end
LOG_TAIL_BYTES = 64 * 1024
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
_GRAVE = re.compile(r"error: (?P<said>.*)|\S+ \S+ (?P<level>WARNING|ERROR|CRITICAL) \S+ (?P<logged>.*)")

EXIT_MEANINGS = {
    2: "its configuration is refused",
    3: "its data directory is damaged, belongs to another node, or is full",
    4: "an address it should listen on is in use",
    5: "it stopped itself to protect its data",
}


class NodePlan(msgspec.Struct, frozen=True):
    """One node as `cluster.json` records it."""

    id: int
    amqp: str
    rpc: str
    monitoring: str = ""  # where its metrics and its health are; empty: nowhere
    checkpoints: str = ""  # where processors of Event Hubs keep theirs; empty: nowhere
    bind: str = LOOPBACK  # where clients are served; EVERYWHERE: everybody is let in, as is usual at loopback


class ClusterPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of `cluster.json`."""

    name: str
    durability: str
    nodes: list[NodePlan]
    version: int = 1
    tls: bool = False  # between nodes

    def node(self, node_id: int) -> NodePlan:
        for node in self.nodes:
            if node.id == node_id:
                return node
        known = ", ".join(str(node.id) for node in self.nodes)
        raise CliError(f"there is no node {node_id} in this cluster (its nodes: {known})")

    @property
    def servers(self) -> list[str]:
        return [node.amqp for node in self.nodes]


@dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    started: str

    @staticmethod
    def of(pid: int) -> ProcessId | None:
        """The process as it runs now; None if there is none (one that ended but was not waited for counts as none)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return _process_id_by_ps(pid) if not Path("/proc/self/stat").exists() else None
        # The second field, the command, may hold spaces and brackets; what follows its last bracket is regular.
        fields = stat[stat.rindex(")") + 2 :].split()
        state, start_ticks = fields[0], fields[19]
        return None if state in "ZX" else ProcessId(pid, start_ticks)

    @property
    def alive(self) -> bool:
        return ProcessId.of(self.pid) == self

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        except ProcessLookupError:
            return False
        try:
            if not self.alive:
                return False
            if handle is not None:
                signal.pidfd_send_signal(handle, number)
            else:
                os.kill(self.pid, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            if handle is not None:
                os.close(handle)

    def wait(self, bound_s: float) -> bool:
        """Wait until the process is gone; False when it still is there at the bound."""
        deadline = time.monotonic() + bound_s
        handle = None
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        try:
            while self.alive and (left_s := deadline - time.monotonic()) > 0:
                if handle is not None:
                    select.select([handle], [], [], left_s)
                else:
                    select.select([], [], [], min(0.02, left_s))
            return not self.alive
        finally:
            if handle is not None:
                os.close(handle)


def _process_id_by_ps(pid: int) -> ProcessId | None:
    found = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(None, 1)
    return ProcessId(pid, found[1].strip()) if len(found) == 2 and found[0][0] not in "ZX" else None


class LocalCluster:
    """The nodes of one directory."""

    def __init__(self, directory: Path, plan: ClusterPlan, *, tied: bool = False) -> None:
        self.directory = directory.resolve()
        self.plan = plan
        self._make = child_processes.spawn if tied else subprocess.Popen  # tied: nodes end with this process
        self._children: dict[int, subprocess.Popen[bytes]] = {}  # ours to wait for, so that none stays a zombie

    # ---------------------------------------------------------------- files

    @staticmethod
    def exists(directory: Path) -> bool:
        return (directory / CLUSTER_FILE).is_file()

    @classmethod
    def load(cls, directory: Path, *, tied: bool = False) -> LocalCluster:
        path = directory / CLUSTER_FILE
        try:
            return cls(directory, msgspec.json.decode(path.read_bytes(), type=ClusterPlan), tied=tied)
        except FileNotFoundError:
            raise CliError(
                f"{directory} holds no cluster (there is no {path.name})",
                advice=f"create one with: holdfast cluster up --dir {directory} --detach",
            ) from None
        except (msgspec.DecodeError, OSError) as error:
            raise CliError(f"{path} cannot be read: {error}") from error

    def write(self) -> None:
        """Write `cluster.json` and each node's configuration. Whole files, renamed into place."""
        _require_node_packages()
        self.directory.mkdir(parents=True, exist_ok=True)
        authority = None
        if self.plan.tls:
            # Imported here: what a node needs is not there in every installation.
            from holdfast.cli.local_cluster.authority import NodeAuthority

            authority = NodeAuthority(self.plan.name)
            authority.write(self.directory / "nodes-ca.pem")
        if not self._secrets_file.exists():
            _replace(self._secrets_file, base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode() + "\n")
            self._secrets_file.chmod(SECRET_MODE)
        for node in self.plan.nodes:
            directory = self.node_directory(node.id)
            directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            if authority is not None:
                authority.issue(node.id, directory / "node.pem", directory / "node.key")
            _replace(self.config_path(node.id), self._node_toml(node))
        _replace(
            self.directory / CLUSTER_FILE,
            msgspec.json.format(msgspec.json.encode(self.plan), indent=2).decode() + "\n",
        )

    def _node_toml(self, node: NodePlan) -> str:
        peers = ",\n".join(f'    {{ id = {peer.id}, address = "{peer.rpc}" }}' for peer in self.plan.nodes)
        home = self.node_directory(node.id)
        data = json.dumps(str(home / "data"))  # a JSON string is a TOML basic string
        files = {
            "ca_file": self.directory / "nodes-ca.pem",
            "cert_file": home / "node.pem",
            "key_file": home / "node.key",
        }
        tls = "".join(f"{key} = {json.dumps(str(path))}\n" for key, path in files.items()) if self.plan.tls else ""
        amqp, checkpoints = (at.replace(LOOPBACK, node.bind) for at in (node.amqp, node.checkpoints))
        more = {"monitoring": node.monitoring, "checkpoints": checkpoints}
        is_open = node.bind != LOOPBACK
        anonymous = 'anonymous = "always"\n' if is_open else ""
        # At loopback, clients from elsewhere would find their own machine: they hear of no other node.
        others = ", ".join(f'{peer.id} = ""' for peer in self.plan.nodes if is_open and peer.id != node.id)
        return (
            f"# Written by `holdfast cluster up`.\n\n"
            f"[node]\nid = {node.id}\ndata_dir = {data}\n\n"
            f"[cluster]\nname = {json.dumps(self.plan.name)}\npeers = [\n{peers},\n]\n{tls}\n"
            f'[[listener]]\nname = "default"\nbind = "{amqp}"\nadvertise = "{node.amqp}"\nredirect = "auto"\n'
            f"address_map = {{ {others} }}\n\n"
            f'[storage]\ndurability = "{self.plan.durability}"\n\n'
            f"[security]\nsecrets_file = {json.dumps(str(self._secrets_file))}\n{anonymous}\n"
            f'[log]\nlevel = "info"\n'
        ) + "".join(f'\n[{name}]\nbind = "{bind}"\n' for name, bind in more.items() if bind)

    @property
    def _secrets_file(self) -> Path:
        return self.directory / "secrets.key"

    def node_directory(self, node_id: int) -> Path:
        return self.directory / f"node{node_id}"

    def config_path(self, node_id: int) -> Path:
        return self.node_directory(node_id) / "node.toml"

    def log_path(self, node_id: int) -> Path:
        return self.node_directory(node_id) / "node.log"

    def _follow_move(self, node_id: int) -> None:
        """Name this directory in a node's configuration that came here with a moved or copied directory.

        Data that somebody put elsewhere stay there: they lie in no cluster's directory.
        """
        path, own = self.config_path(node_id), self.node_directory(node_id) / "data"
        try:
            text = path.read_text(encoding="utf-8")
            data = _data_directory(text)
            if data is None or not data.is_absolute() or data.parts[-2:] != own.parts[-2:]:
                return
            before = data.parent.parent
            gone = not data.parent.exists() and own.exists()
            if before.resolve() == self.directory or not (gone or self.exists(before)):
                return
            moved = text.replace(_quoted_prefix(before), _quoted_prefix(self.directory))
            if _data_directory(moved) != own:
                raise CliError(
                    f"node {node_id} would use {data}, which belongs to the cluster in {before}",
                    advice=f"write data_dir = {json.dumps(str(own))} in {path}",
                )
            _replace(path, moved)
        except OSError as error:
            raise CliError(f"node {node_id} was not started: {path}: {error}") from error

    # ---------------------------------------------------------------- processes

    def process(self, node_id: int) -> ProcessId | None:
        """The node's process if it runs, and is the one that was started for it."""
        if (child := self._children.get(node_id)) is not None:
            child.poll()
        try:
            recorded = json.loads((self.node_directory(node_id) / "node.pid").read_text())
            process = ProcessId(int(recorded["pid"]), str(recorded["started"]))
            # An earlier release recorded no directory; its nodes are found all the same.
            copied = "directory" in recorded and recorded["directory"] != self._identity(node_id)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CliError(f"{self.node_directory(node_id) / 'node.pid'} cannot be read: {error}") from error
        return process if process.alive and not copied else None

    def _identity(self, node_id: int) -> list[int]:
        """Numbers that tell a node's directory from a copy of it, wherever it is moved while its node runs."""
        found = self.node_directory(node_id).stat()
        return [found.st_dev, found.st_ino]

    def running(self) -> dict[int, ProcessId]:
        found = {node.id: self.process(node.id) for node in self.plan.nodes}
        return {node_id: process for node_id, process in found.items() if process is not None}

    def spawn(self, node_id: int) -> Starting:
        """Start a node's process in its own session: Ctrl-C at our terminal is not for it. It outlives us, unless it is
        tied to us. Wait with `Starting.wait`."""
        if self.process(node_id) is not None:
            raise CliError(f"node {node_id} is running already")
        _require_node_packages()
        self._follow_move(node_id)
        with self.log_path(node_id).open("ab") as log:
            os.fchmod(log.fileno(), FILE_MODE)
            logged_from = os.fstat(log.fileno()).st_size
            child = self._make(
                [sys.executable, "-m", "node", "--config", str(self.config_path(node_id))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=self.node_directory(node_id),
            )
        self._children[node_id] = child
        if (process := ProcessId.of(child.pid)) is not None:
            path = self.node_directory(node_id) / "node.pid"
            try:
                birth = {"pid": process.pid, "started": process.started, "directory": self._identity(node_id)}
                _replace(path, json.dumps(birth) + "\n")
            except OSError as error:
                self._children.pop(node_id)
                _end(child)  # nobody could find it, and so nobody could stop it
                raise CliError(
                    f"node {node_id} was not started: {path} cannot be written: {error}",
                    advice=f"make {path.parent} writable, with room on its disk, and start it again",
                ) from error
        return Starting(self, node_id, child, logged_from)

    def kill(self, node_id: int) -> bool:
        """Kill by kill -9: no goodbye to clients, nothing flushed. False when the node was not running."""
        process = self.process(node_id)
        if process is None or not process.signal(signal.SIGKILL):
            return False
        if not process.wait(STOP_BOUND_S):
            raise CliError(f"node {node_id} (process {process.pid}) does not die: is its disk hanging?")
        self._reap(node_id)
        return True

    def stop(self) -> dict[int, str]:
        """End every running node: politely, then by force. What became of each, for the report."""
        running = self.running()
        outcome = {node.id: "was not running" for node in self.plan.nodes}
        for process in running.values():
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_BOUND_S
        for node_id, process in running.items():
            if process.wait(max(0.0, deadline - time.monotonic())):
                outcome[node_id] = "stopped"
            else:
                process.signal(signal.SIGKILL)
                process.wait(STOP_BOUND_S)
                outcome[node_id] = f"killed: it had not stopped within {STOP_BOUND_S:.0f} s"
            self._reap(node_id)
        return outcome

    def _reap(self, node_id: int) -> None:
        if (child := self._children.pop(node_id, None)) is not None:
            child.wait()

    def logged(self, node_id: int, start: int) -> list[str]:
        """The last lines of a node's log, none of them from before byte `start`."""
        try:
            with self.log_path(node_id).open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(start, end - LOG_TAIL_BYTES))
                return log.read(LOG_TAIL_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return []


class Starting:
    """A node that was started and has not yet said that it is ready."""

    def __init__(self, cluster: LocalCluster, node_id: int, child: subprocess.Popen[bytes], logged_from: int) -> None:
        self.node_id = node_id
        self._cluster, self._child = cluster, child
        self._logged_from = logged_from
        self._said = b""

    def wait(self, deadline: float) -> None:
        """Wait until the node says that it is ready. A `CliError` tells why it is not."""
        for _ in ready([self], deadline):
            pass

    def fileno(self) -> int:
        """Return the pipe on which the node says that it is ready."""
        assert self._child.stdout is not None, "spawn gives every node a pipe"
        return self._child.stdout.fileno()

    def close(self) -> None:
        """Stop listening to the node; it runs on."""
        assert self._child.stdout is not None, "spawn gives every node a pipe"
        self._child.stdout.close()

    def is_ready(self) -> bool:
        """Read what the node said. True: it is ready. A dead node is a `CliError`."""
        if not (chunk := os.read(self.fileno(), 4096)):
            raise self._death()
        self._said += chunk
        if not self._said.endswith(b"\n"):
            return False
        try:
            json.loads(self._said)
        except ValueError:
            raise CliError(f"node {self.node_id} said {self._said[:200]!r} instead of a readiness line") from None
        return True

    def late(self) -> CliError:
        """Return the error of a node that runs and is not ready in time."""
        return self._failure("did not become ready in time; it runs on", self._advice_for_waiting())

    def _death(self) -> CliError:
        status = self._child.wait(STOP_BOUND_S)
        meaning = EXIT_MEANINGS.get(status, "see its log")
        if status < 0:
            meaning = f"ended by {signal.Signals(-status).name}"
        return self._failure(f"did not start (exit status {status}: {meaning})", "mend that, and start it again")

    def _advice_for_waiting(self) -> str:
        if len(self._cluster.running()) * 2 > len(self._cluster.plan.nodes):
            return "wait, and ask `holdfast cluster status`"
        return f"a majority must run; start all: holdfast cluster up --dir {self._cluster.directory} --detach"

    def _failure(self, what: str, advice: str) -> CliError:
        """Error with the node's last grave line, then all lines of this start; those of earlier ones mislead."""
        lines = self._cluster.logged(self.node_id, self._logged_from)
        grave = [found for line in lines if (found := _GRAVE.fullmatch(line)) is not None]
        worst = [found for found in grave if found["level"] != "WARNING"] or grave
        reason = f": {worst[-1]['said'] or worst[-1]['logged']}" if worst else ""
        rest = [line for line in lines if not worst or line != worst[-1].string][-LOG_TAIL_LINES:]
        log = "\n".join(["", "its log of this start:", *rest]) if rest else ""
        return CliError(
            f"node {self.node_id} {what}{reason}{log}",
            advice=f"{advice}; the whole log is {self._cluster.log_path(self.node_id)}",
        )


def ready(starting: Sequence[Starting], deadline: float) -> Iterator[Starting]:
    """Yield each node when it is ready. The first node that dies ends the wait for all with its reason: the others may
    wait for that node alone."""
    waiting = list(starting)
    try:
        while waiting:
            left_s = deadline - time.monotonic()
            heard = select.select(waiting, [], [], left_s)[0] if left_s > 0 else []
            if not heard:
                raise waiting[0].late()
            for node in heard:
                if node.is_ready():
                    waiting.remove(node)
                    yield node
    finally:
        for node in starting:
            node.close()


def _data_directory(text: str) -> Path | None:
    """The `data_dir` of a configuration; None: the node itself says what is wrong with it."""
    try:
        return Path(tomllib.loads(text)["node"]["data_dir"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        return None


def _quoted_prefix(directory: Path) -> str:
    """Beginning of a quoted path beneath a directory, as a configuration has it."""
    return json.dumps(f"{directory}/")[:-1]


def _end(child: subprocess.Popen[bytes]) -> None:
    with child:  # closes its pipe, and waits
        child.kill()


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.chmod(FILE_MODE)
    temporary.replace(path)


def _require_node_packages() -> None:
    if lack := missing("node"):
        raise CliError(lack)

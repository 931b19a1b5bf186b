"""`holdfast emulator` as programs and tools meet it: the file, the port for health, the line, and events that stay."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message, symbol

from tests.integration.clients.event_hubs import sdk
from tests.integration.clients.event_hubs.connection_strings import connection_string
from tests.integration.clients.event_hubs.sdk import producer, read, send
from tests.integration.clusters.cluster import wait_until
from tests.integration.workloads.plain import REDIRECT, STREAMS, Bound, connected
from tests.ports import consecutive_ports, free_ports

blob = pytest.importorskip("azure.eventhub.extensions.checkpointstoreblob", reason="the SDK's store is not installed")

pytestmark = pytest.mark.cluster

UP = "Emulator Service is Successfully Up!"


def hubs(*entities: Any) -> str:
    """A Config.json as the emulator's documentation shows it."""
    space = {"Type": "EventHub", "Name": "emulatorNs1", "Entities": list(entities)}
    return json.dumps({"UserConfig": {"NamespaceConfig": [space], "LoggingConfig": {"Type": "File"}}})


ORDERS = {"Name": "orders", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]}


class Emulator:
    """The command, in a process of its own. `said` is what it wrote so far."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.config, self.directory = directory / "Config.json", directory
        self.amqp = consecutive_ports(3)[0]
        self.store = consecutive_ports(3)[0]
        [self.health] = free_ports(1)
        self.options = options
        self.said: list[str] = []

    def start(self) -> None:
        ports = ("--amqp-port", self.amqp, "--health-port", self.health, "--checkpoint-port", self.store)
        words = ["--hubs", self.config, "--dir", self.directory / "data", *ports, *self.options]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "emulator", *map(str, words)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=os.environ | {"ACCEPT_EULA": "Y", "BLOB_SERVER": "x", "METADATA_SERVER": "x"},
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.said += process.stdout

    def run(self) -> None:
        """Start it, and wait for the line."""
        self.said.clear()
        self.start()
        self.until(UP)

    def until(self, text: str) -> None:
        wait_until(
            lambda: text in "".join(self.said) or self.process.poll() is not None, f"{text!r} is said", sdk.WITHIN_S
        )
        assert text in "".join(self.said), self.said

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(sdk.WITHIN_S)

    def status(self) -> int:
        with contextlib.suppress(urllib.error.URLError):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/health") as answer:
                    assert json.load(answer) == {"status": "healthy", "message": "Service is healthy."}
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code
        return 0

    def text(self, hub: str = "orders") -> str:
        return connection_string(f"localhost:{self.amqp}", hub, "RootManageSharedAccessKey")


@pytest.fixture
def emulator(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Emulator]:
    made = Emulator(tmp_path, *getattr(request, "param", ()))
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait()


def test_it_keeps_the_contract_and_the_events(emulator: Emulator) -> None:
    emulator.config.write_text(hubs(ORDERS), encoding="utf-8-sig")
    emulator.run()
    assert emulator.status() == 200
    with producer(emulator.text()) as sender:
        assert sender.get_partition_ids() == ["0", "1"]
    send(emulator.text(), "0", ["kept"])
    store = blob.BlobCheckpointStore.from_connection_string(
        "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=Zm9v;"
        f"BlobEndpoint=http://127.0.0.1:{emulator.store}/devstoreaccount1;",
        "checkpoints",
    )
    place = {"fully_qualified_namespace": "localhost", "eventhub_name": "orders", "consumer_group": "cg1"}
    store.update_checkpoint({**place, "partition_id": "0", "sequence_number": 0, "offset": "0"})
    # Hubs come and grow while it runs; a mistake changes nothing.
    emulator.config.write_text("{")
    emulator.until("the hubs stay as they are")
    emulator.config.write_text(hubs({**ORDERS, "PartitionCount": 3}, {"Name": "more", "PartitionCount": 1}))
    emulator.until("hub more: made")
    with producer(emulator.text()) as sender:
        assert sender.get_partition_ids() == ["0", "1", "2"]
    assert emulator.stop() == 0 or emulator.process.returncode == 130
    assert emulator.status() == 0
    emulator.run()
    assert [event.body_as_str() for event in read(emulator.text(), 1, "cg1")] == ["kept"]
    assert len(list(store.list_checkpoints("localhost", "orders", "cg1"))) == 1
    emulator.process.kill()  # nothing is left behind even then
    emulator.process.wait()
    wait_until(lambda: emulator.status() == 0 and not _listens(emulator.amqp), "the node ends with it", sdk.WITHIN_S)


def _listens(port: int, host: str = "127.0.0.1") -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5):
        return True
    return False


def test_it_serves_where_it_is_told_and_everybody_there(emulator: Emulator) -> None:
    ports = (emulator.amqp, emulator.store, emulator.health)
    emulator.config.write_text(hubs(ORDERS))
    emulator.run()
    assert [_listens(port, "127.0.0.2") for port in ports] == [False] * 3
    emulator.stop()
    emulator.options = ("--bind", "0.0.0.0")
    emulator.start()
    assert emulator.process.wait(sdk.WITHIN_S) == 2
    wait_until(lambda: "was made with --bind 127.0.0.1" in "".join(emulator.said), "its address is named", 10)
    emulator.directory /= "open"
    emulator.run()
    assert [_listens(port, "127.0.0.2") for port in ports] == [True] * 3
    text = connection_string(f"127.0.0.2:{emulator.amqp}", "orders", "RootManageSharedAccessKey")
    send(text, "0", ["there"])
    assert [event.body_as_str() for event in read(text, 1, "cg1")] == ["there"]


@pytest.mark.parametrize("emulator", [("--kill-leader-every", "3600", "--bind", "0.0.0.0")], indirect=True)
def test_clients_from_elsewhere_are_served_where_they_are(emulator: Emulator) -> None:
    """Of three nodes two do not lead a partition. What they would be sent to is this machine, as they call theirs."""
    emulator.config.write_text(hubs(ORDERS))
    emulator.run()
    for capability in (REDIRECT, STREAMS):
        for node in range(3):
            address = f"127.0.0.2:{emulator.amqp + node}"
            with connected(address, desired_capabilities=[symbol(capability)]) as connection:
                assert list(connection.conn.remote_properties["holdfast:nodes"]) == []
                for partition in ("0", "1"):
                    sender = connection.create_sender("orders", name=partition, options=[Bound(partition)])
                    sender.send(Message(body="from elsewhere"))
    emulator.stop()


@pytest.mark.parametrize("emulator", [("--kill-leader-every", "2")], indirect=True)
def test_leaders_die_and_a_program_does_not_notice(emulator: Emulator) -> None:
    emulator.config.write_text(hubs({**ORDERS, "PartitionCount": 4}))
    emulator.run()
    sent = []
    with producer(emulator.text()) as sender:
        while "".join(emulator.said).count("is killed") < 3:
            batch = sender.create_batch()
            batch.add(sdk.eventhub.EventData(str(len(sent))))
            sender.send_batch(batch)
            sent.append(str(len(sent)))
    reading = sdk.Reading(sdk.consumer(emulator.text()), starting_position="-1")
    reading.until(lambda now: set(sent) <= set(now.bodies) or now.errors).stop()  # one may stand twice
    assert not reading.errors
    emulator.stop()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "cannot be read"),
        ("{}", "UserConfig.NamespaceConfig: is not there"),
        ('{"UserConfig": {"NamespaceConfig": []}}', "name one namespace"),
        (hubs({"PartitionCount": 1}), "Entities[0].Name: a hub needs a name"),
        (hubs(ORDERS, ORDERS), "Entities[1].Name: 'orders' stands twice"),
        (hubs({**ORDERS, "PartitionCount": 0}), "Entities[0].PartitionCount: 0 is no number"),
        (hubs({**ORDERS, "PartitionCount": "many"}), "Entities[0].PartitionCount: 'many' is no number"),
        (hubs({**ORDERS, "Name": "a/b"}), "a/b"),
    ],
    ids=range(8),
)
def test_a_configuration_that_is_wrong_is_refused_by_its_entry(emulator: Emulator, config: str, said: str) -> None:
    emulator.config.write_text(config)
    emulator.start()
    assert emulator.process.wait(sdk.WITHIN_S) in (1, 2)
    wait_until(lambda: said in "".join(emulator.said), "the entry is named", 10)
    assert UP not in "".join(emulator.said)

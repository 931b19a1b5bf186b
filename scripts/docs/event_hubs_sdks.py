"""The page of SDKs of Event Hubs: which version of each, what was tried, and how it bore the death of leaders.

Versions come from the files by which tests install the SDKs. Each cell names the test that is its proof. What a run of
kills measured comes from files that this test writes (`KILLS`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests/integration/clients/event_hubs"
KILLS = TESTS / "kills"

COLUMNS = ("clients", "processor", "rules", "TLS", "WebSocket", "second address", "leaders die")
MEANINGS = (
    "producers, consumers and properties of hub and partition",
    "the SDK's processor with its own Blob checkpoint store: partitions shared out, taken over, gone on with",
    "a closed cluster, by the key of a rule",
    "AMQP in TLS",
    "AMQP in WebSocket",
    "the name of the service has two addresses, and nothing listens at the first",
    "kill -9 of leaders under a producer and a processor: no exception, nothing missing",
)


@dataclass(frozen=True)
class Tried:
    """An SDK, and its proofs. `version`: file, and an expression whose first group it is; `proofs`: test by column."""

    name: str
    package: str
    version: tuple[str, str]
    proofs: dict[str, str] = field(default_factory=dict)
    kills: str = ""  # name of the measurement
    notes: tuple[str, ...] = ()

    def found_version(self) -> str:
        file, expression = self.version
        match = re.search(expression, (ROOT / file).read_text("utf-8"), re.DOTALL)
        assert match is not None, f"{file} has no version of {self.package}"
        return match[1]


_HERE = "tests/integration/clients/event_hubs"
_SHARE = "test_sdk_processors.py::test_two_processors_share_and_a_third_goes_on_where_they_stopped"
_KILL = "test_sdk_processors.py::test_leaders_die_under_a_producer_and_a_processor"

_SECOND = "test_dead_address.py::test_the_second_address_is_tried_where_the_sdk_does_so"

_PYTHON_VERSION = ("requirements.lock", r"\nazure-eventhub==([\d.]+)")
_PYTHON = {
    "rules": "test_sdk_keys.py::test_a_rule_opens_what_it_claims",
    "TLS": "test_sdk_keys.py::test_over_tls_the_node_is_checked",
    "WebSocket": "test_websocket.py::test_one_port_takes_plain_amqp_tls_and_websockets",
}

SDKS = (
    Tried(
        "Python, asyncio",
        "azure-eventhub",
        _PYTHON_VERSION,
        {
            "clients": "test_python_sdk.py::test_the_asynchronous_clients_do_the_same",
            "processor": "test_processors.py::test_the_asyncio_store_of_the_sdk_does_the_same",
            "second address": f"{_SECOND}[python]",
            "leaders die": f"{_KILL}[python]",
        },
        kills="python",
        notes=(
            "A consumer counts its retries over its whole life. Of the connections that it loses, the fourth is told "
            'as an error, and its waits get longer. Give it `retry_total=1000, retry_mode="fixed"`, as the test does.',
            "Both Python stores wait for 15 seconds before they repeat a request, and the partition waits with them. "
            "Give them `initial_backoff=1, increment_base=2, random_jitter_range=1`, as the test does.",
        ),
    ),
    Tried(
        "Python",
        "azure-eventhub",
        _PYTHON_VERSION,
        {
            "clients": "test_python_sdk.py::test_properties_of_hub_and_partition",
            "processor": "test_processors.py::test_two_processors_share_and_the_second_goes_on_where_the_first_stopped",
            **_PYTHON,
            "second address": f"{_SECOND}[python-sync]",
            "leaders die": "test_sdk_kills.py::test_every_node_dies_behind_a_floating_address",
        },
        kills="python-sync",
        notes=(
            "Its loop serves the partitions of a processor one after the other. After a kill each reconnects in its "
            "turn, so one may stay unread for longer than 15 seconds. The asyncio client does not.",
        ),
    ),
    Tried(
        "JavaScript",
        "@azure/event-hubs",
        (f"{_HERE}/javascript/package.json", r'"@azure/event-hubs": "([\d.]+)"'),
        {
            "clients": "test_javascript_sdk.py::test_a_tour_through_the_sdk",
            "processor": f"{_SHARE}[javascript]",
            "TLS": "test_websocket.py::test_the_javascript_sdk_comes_by_websocket",
            "WebSocket": "test_websocket.py::test_the_javascript_sdk_comes_by_websocket",
            "second address": f"{_SECOND}[javascript]",
            "leaders die": f"{_KILL}[javascript]",
        },
        kills="javascript",
        notes=(
            "A producer whose connection dies with an event in flight waits for its timeout, 60 seconds, and then for "
            "its delay, 30 seconds. Give it `retryOptions: { timeoutInMs: 10000, retryDelayInMs: 500 }`, as the test "
            "does.",
            "A processor whose connection dies while it opens a partition reports `Unknown error encountered.`. "
            "It takes that partition anew.",
        ),
    ),
    Tried(
        "Go",
        "azeventhubs/v2",
        (f"{_HERE}/go/go.mod", r"azeventhubs/v2 v([\d.]+)"),
        {
            "clients": "test_go_sdk.py::test_a_tour_through_the_sdk",
            "processor": f"{_SHARE}[go]",
            "second address": f"{_SECOND}[go]",
            "leaders die": f"{_KILL}[go]",
        },
        kills="go",
    ),
    Tried(
        "Java",
        "azure-messaging-eventhubs",
        (f"{_HERE}/java/pom.xml", r"<artifactId>azure-messaging-eventhubs</artifactId>\s*<version>([\d.]+)"),
        {
            "clients": "test_java_sdk.py::test_a_tour_through_the_sdk",
            "processor": f"{_SHARE}[java]",
            "leaders die": f"{_KILL}[java]",
        },
        kills="java",
        notes=(
            "A producer whose connection dies while a link opens may raise `AmqpException` (`maximum message size: 0 "
            "kb`). Nothing was sent. Send again, as the test does.",
            "Of a name with several addresses it takes the first that the JVM finds, again and again. Give it one "
            "address that moves, or a proxy.",
            "A processor that is told to stop may report its own scheduler, which it has disposed of, as an error.",
        ),
    ),
    Tried(
        "Java, by Testcontainers",
        "testcontainers-azure",
        (f"{_HERE}/testcontainers/pom.xml", r"<artifactId>testcontainers-azure</artifactId>\s*<version>([\d.]+)"),
        {"clients": "test_testcontainers.py::test_the_module_starts_our_image_and_the_sdk_finds_it"},
        notes=(
            "Its module for Event Hubs starts our image instead of the emulator's, and the Java SDK takes the "
            "connection string that it gives. With Podman, set `DOCKER_HOST` to the socket of `podman system service`.",
        ),
    ),
    Tried(
        "Rust",
        "azure_messaging_eventhubs",
        (f"{_HERE}/rust/sdk/Cargo.toml", r'azure_messaging_eventhubs = \{ version = "=([\d.]+)"'),
        {
            "clients": "test_rust_sdk.py::test_a_tour_through_the_sdk",
            "processor": "test_rust_sdk.py::test_a_producer_and_a_processor_without_a_store",
        },
        notes=(
            "Its producer may wait for ever when its connection dies with an event in flight. It then has no "
            "connection, and makes none. So it is not under kills here.",
            "It takes neither a port nor `UseDevelopmentEmulator` from a connection string. Name both by its custom "
            'endpoint: `with_custom_endpoint("amqp://127.0.0.1:5672")`, or `amqps://` for TLS.',
        ),
    ),
    Tried(
        "Rust, with its Blob store",
        "azure_messaging_eventhubs",
        (f"{_HERE}/rust/store/Cargo.toml", r'azure_messaging_eventhubs = "=([\d.]+)"'),
        {"processor": f"{_SHARE}[rust]"},
        notes=(
            "When a connection dies, a stream of events may end with the error `Failed to ensure receiver: Connection "
            "dropped`. The application has to open the partition again. So it is not under kills here.",
            "The newest version of its Blob store, 0.9.0, is for this version of the SDK. It cannot be built with the "
            "next.",
            "That store signs nothing by Shared Key, so it needs an open cluster. Its container's URL has no "
            "account: `http://127.0.0.1:10000/checkpoints`.",
        ),
    ),
    Tried(
        ".NET, by its frames",
        "Azure.Messaging.EventHubs",
        (f"{_HERE}/test_dotnet_frames.py", r"Azure\.Messaging\.EventHubs ([\d.]+\d)"),
        {
            "clients": "test_dotnet_frames.py::test_single_events_and_batches_are_accepted",
            "processor": "test_dotnet_frames.py::test_the_checkpoint_store_answers_as_the_processor_expects",
            "WebSocket": "test_websocket.py::test_amqp_begins_behind_the_greeting",
        },
        notes=("It was not run. Tests send what it is known to send, byte by byte, and look at each answer.",),
    ),
)


def page(head: list[str]) -> Iterator[str]:
    """The lines of the page."""
    yield from head
    yield from (
        "[SDKs of Event Hubs](../clients/event-hubs.md) says how they connect. This page says which versions run in",
        "tests, and what the tests try. A number leads to the test at the end of the page.",
        "",
        f"| SDK | version | {' | '.join(COLUMNS)} |",
        f"| --- | --- {'| --- ' * len(COLUMNS)}|",
    )
    tests = list(dict.fromkeys(proof for sdk in SDKS for proof in sdk.proofs.values()))
    for sdk in SDKS:
        cells = (f"yes ({tests.index(sdk.proofs[one]) + 1})" if one in sdk.proofs else "" for one in COLUMNS)
        yield f"| {sdk.name} | `{sdk.package}` {sdk.found_version()} | {' | '.join(cells)} |"
    yield ""
    yield from (f"- *{name}*: {meaning}." for name, meaning in zip(COLUMNS, MEANINGS, strict=True))
    yield from ("", "An empty cell was not tried.", "", "## While leaders die", "")
    yield from killed()
    yield from ("", "## What to know of them", "")
    yield from (f"- **{sdk.name}**: {note}" for sdk in SDKS for note in sdk.notes)
    yield from ("", f"## Tests, in `{_HERE}`", "")
    yield from (f"{number}. `{test}`" for number, test in enumerate(tests, 1))


def killed() -> Iterator[str]:
    """Rows of what a run of kills measured."""
    yield from (
        "A producer sends to four partitions, and a processor reads them, by one address in front of three nodes. A",
        "leader is killed every five seconds, and started again. No program saw an exception but those named below. No",
        "event was missing.",
        "`make soak` measures anew.",
        "",
        "| SDK | seconds | leaders killed | events | longest time until a stored event was read | longest pause of the"
        " producer |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for sdk in SDKS:
        path = KILLS / f"{sdk.kills}.json"
        if sdk.kills and path.exists():
            said = json.loads(path.read_text("utf-8"))
            names = ("seconds", "kills", "events", "waited_s", "paused_s")
            values = [f"{said[name]} s" if name.endswith("_s") else str(said[name]) for name in names]
            yield f"| {sdk.name} | {' | '.join(values)} |"

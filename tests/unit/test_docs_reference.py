"""Pages of the reference that are made from the source are as they would be made now, and whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast.client
from holdfast import protocol
from holdfast.client import AdminClient
from scripts.docs import event_hubs_sdks, reference

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", reference.MADE)
def test_a_page_is_what_the_source_says(page: str) -> None:
    written = (ROOT / page).read_text(encoding="utf-8")
    assert written == reference.render(page), f"{page} is stale: make reference"


def test_the_page_of_the_client_has_all_of_it() -> None:
    page = reference.render("docs/reference/client.md")
    names = [name for name in holdfast.client.__all__ if not name.endswith("Error")]
    assert [name for name in names if f"\n## {name}\n" not in page] == []
    methods = [name for name in dir(AdminClient) if not name.startswith("_")]
    assert len(methods) > 30
    assert [name for name in methods if f"\n### AdminClient.{name}()\n" not in page] == []


def test_each_request_stands_in_the_table_of_the_protocol() -> None:
    column = " ".join(line[4:24].strip() for line in (protocol.__doc__ or "").splitlines())
    named = set(re.findall(r"([\w-]+), +([\w-]+)", column))
    assert sorted(protocol.REQUESTS.keys() - named) == []


def test_each_proof_of_an_sdk_is_a_test() -> None:
    for sdk in event_hubs_sdks.SDKS:
        assert set(sdk.proofs) <= set(event_hubs_sdks.COLUMNS)
        for proof in sdk.proofs.values():
            file, _, name = proof.partition("::")
            function, _, made_of = name.rstrip("]").partition("[")
            text = (event_hubs_sdks.TESTS / file).read_text(encoding="utf-8")
            assert f"def {function}(" in text, proof
            assert not made_of or f'Sdk("{made_of}"' in (event_hubs_sdks.TESTS / "programs.py").read_text("utf-8")


def test_every_error_and_every_command_is_told() -> None:
    errors, commands = reference.render("docs/reference/errors.md"), reference.render("docs/reference/cli.md")
    names = [name for name in holdfast.client.__all__ if name.endswith("Error")]
    assert [name for name in names if f"| `{name}` |" not in errors] == []
    for command in ("produce", "consume", "log create", "node readmit", "txn groups abort", "user add", "whoami"):
        assert f"\n## holdfast {command}\n" in commands


def test_every_key_of_the_configuration_has_a_meaning() -> None:
    page = reference.render("docs/reference/configuration.md")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert [row for row in rows if not row.rstrip(" |").rpartition("|")[2].strip()] == []
    assert '| `durability` | `fsync` or `replicated` | `"fsync"` |' in page


def test_a_metric_has_its_name_as_it_is_scraped() -> None:
    found = {name: (kind, labels) for name, kind, labels, _ in reference.families()}
    assert found["holdfast_syncs_total"] == ("counter", ())
    assert found["holdfast_replica_lag_entries"] == ("gauge", ("log", "partition", "replica"))
    assert found["holdfast_listener_events_in_total"] == ("counter", ("listener",))
    assert found["holdfast_storage_free_bytes"] == ("gauge", ())

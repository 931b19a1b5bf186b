"""A host for Spark jobs beside a cluster of one node. Heavy, and so asked for: `make spark-client-test`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ansible.hosts.network import HostNetwork, NetworkHost
from tests.ansible.playbooks import ControlHost
from tests.ansible.steps import done

pytestmark = pytest.mark.skipif(
    not os.environ.get("HOLDFAST_SPARK_CLIENT"),
    reason="asked for with HOLDFAST_SPARK_CLIENT=1, by make spark-client-test",
)

SMALL_JOB = "/etc/holdfast/spark/small_job.py"
PLACES = "/opt/holdfast-spark /etc/holdfast/spark /var/lib/holdfast-spark /usr/local/bin/holdfast-spark"


def run_bars(client: NetworkHost) -> None:
    """The example: trades of two minutes become two bars, and a picture."""
    made_at = ((60_000, 180), (60_500, 181.5), (120_001, 179.25))
    trades = "".join(f"{ms},IBM,{price},100,P,20002000,0\n" for ms, price in made_at)
    produced = client.ssh(f"holdfast-spark holdfast produce events --key-column 2 <<'END'\n{trades}END\n")
    assert produced.returncode == 0, produced.stderr
    places = "--parquet /tmp/bars/out --checkpoint /tmp/bars/state --picture /tmp/bars.png"
    job = f"holdfast pipeline bars --source events --date 2013-10-07 --available-now {places}"
    run = client.ssh(f"cd /tmp && runuser -u nobody -- holdfast-spark {job}")
    assert run.returncode == 0, run.stderr
    read = "import pandas; bars = pandas.read_parquet('/tmp/bars/out')"
    shown = "print(sorted(map(str, bars.close)), int(bars.volume.sum()))"
    found = client.ssh(f'holdfast-spark python -c "{read}; {shown}"')
    assert found.stdout.strip() == "['179.250000', '181.500000'] 300", found.stderr
    assert client.ssh("test -s /tmp/bars.png && rm -r /tmp/bars /tmp/bars.png").returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_spark_jobs_run_on_a_client_and_reach_the_cluster(
    network: HostNetwork, control: ControlHost, make_bundle: Callable[..., Path]
) -> None:
    node, client, *_ = network.hosts
    control.groups = {"holdfast_nodes": [node.name], "spark_clients": [client.name]}
    control.variables |= {
        "holdfast_node_discovery": "static",
        "holdfast_node_logs": [{"name": "events", "partitions": 2, "replicas": 1}],
        "spark_client_bundle": str(make_bundle("", "--with", "spark")),
        "spark_client_python": control.variables["holdfast_node_python"],
    }
    without_spark = control.play("site", spark_client_bundle=control.variables["holdfast_node_bundle"])
    assert "spark_client_bundle: " in without_spark.text, without_spark.text
    assert without_spark.changed == 0
    done(control.play("site", "--check", "--diff"))
    done(control.play("site"))
    again = done(control.play("site"))
    assert again.changed == 0, again.text

    job = client.ssh(f"cd /tmp && runuser -u nobody -- holdfast-spark spark-submit {SMALL_JOB}")
    assert job.returncode == 0, job.stderr
    assert json.loads(job.stdout.splitlines()[-1])["rows"] == 1000
    listed = client.ssh("holdfast-spark holdfast log list --json")
    assert [log["name"] for log in json.loads(listed.stdout)["logs"]] == ["events"], listed.stderr

    run_bars(client)

    control.variables["spark_client_settings"] = {"spark.sql.shuffle.partitions": 4}
    changed = done(control.play("site"))
    assert changed.recap[client.name]["changed"] == 2, "the settings, and the note that a job ran with them"
    assert changed.recap[node.name]["changed"] == 0

    done(control.play("teardown", teardown_confirmed=control.variables["holdfast_node_cluster"]))
    assert client.ssh(f"ls -d {PLACES}").stdout == ""

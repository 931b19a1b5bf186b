"""Spark on a cluster that lets nobody in without a credential."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.client import AdminClient
from tests.integration.clusters.cluster import Cluster
from tests.integration.spark.conftest import reader
from tests.integration.spark.events import fill, numbered
from tests.integration.spark.test_refusals import refusal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def file_of(directory: Path, password: str) -> str:
    path = directory / f"{password}.txt"
    path.write_text(password + "\n")
    return str(path)


def test_a_user_reads_and_writes_and_nobody_else_does(
    make_cluster: Callable[..., Cluster], spark: Any, tmp_path: Path
) -> None:
    cluster = make_cluster()
    cluster.start()
    for log in ("trades", "copy"):
        cluster.create(log, partitions=2)
    fill(cluster, "trades", numbered(100))
    login = {"user": "root", "passwordFile": file_of(tmp_path, "pencil")}
    wrong = login | {"passwordFile": file_of(tmp_path, "crayon")}

    async def close(admin: AdminClient) -> None:
        await admin.add_user("root", "pencil", roles=["admin"])

    cluster.call(close)
    for given, why in ((wrong, "the credentials are wrong"), ({}, "asks for a login")):
        said = refusal(lambda given=given: reader(spark.read, cluster, "trades", **given).load())
        assert why in said

    frame = reader(spark.read, cluster, "trades", **login).load()
    writer = frame.select("body").write.format("holdfast").mode("append")
    writer.options(servers=",".join(cluster.addresses), log="copy", **login).save()
    copied = reader(spark.read, cluster, "copy", **login).load().select("body").toPandas()["body"]
    assert sorted(map(bytes, copied)) == sorted(b"e%d" % number for number in range(100))

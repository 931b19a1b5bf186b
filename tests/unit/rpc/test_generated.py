"""The committed protobuf code is what its contract compiles to."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("contract", ["cluster/rpc/rpc.proto", "cluster/metadata/metadata.proto"])
def test_generated_code_is_fresh(contract: str, tmp_path: Path) -> None:
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    includes = [f"-I{ROOT / 'proto'}", f"-I{well_known}"]
    assert protoc.main(["protoc", *includes, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", contract]) == 0
    for suffix in ("_pb2.py", "_pb2.pyi"):
        name = contract.replace(".proto", suffix)
        assert (ROOT / name).read_text() == (tmp_path / name).read_text(), (
            f"{name} is stale: python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. proto/{contract}"
        )

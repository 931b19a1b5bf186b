"""Secrets of the cluster, sealed before they are replicated: a disk, a snapshot or a backup gives none of them away.

The key stands in a file that every node has (`security.secrets_file`), one a line: the first seals, all open. So a key
is replaced by putting a new line on top on all nodes, and removed when nothing is sealed with it any more.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12


class CannotOpen(Exception):
    """Raised for a secret that no key of this node opens."""


class SecretBox:
    def __init__(self, keys: list[bytes]) -> None:
        """`keys`: of KEY_BYTES each, at least one."""
        self._boxes = [AESGCM(key) for key in keys]

    def seal(self, secret: str, about: str) -> bytes:
        """Seal a secret. `about`: what it belongs to; it opens for nothing else."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._boxes[0].encrypt(nonce, secret.encode(), about.encode())

    def open(self, sealed: bytes, about: str) -> str:
        """Raises CannotOpen."""
        for box in self._boxes:
            try:
                return box.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about.encode()).decode()
            except (InvalidTag, ValueError):
                continue
        raise CannotOpen(f"the secret of {about} was sealed with a key that is not in security.secrets_file here")


def read_keys(path: Path) -> list[bytes]:
    """Read the keys of a file. Raises ValueError or OSError."""
    keys: list[bytes] = []
    for number, line in enumerate(path.read_text(encoding="ascii").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            key = base64.b64decode(line.strip(), validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise ValueError(
                f"line {number} is not the base64 of {KEY_BYTES} bytes: `openssl rand -base64 {KEY_BYTES}`"
            )
        keys.append(key)
    if not keys:
        raise ValueError(f"it has no key: write the output of `openssl rand -base64 {KEY_BYTES}` into it")
    return keys

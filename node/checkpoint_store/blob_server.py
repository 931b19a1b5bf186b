"""HTTP of the checkpoint store: eight requests of Blob Storage, and nothing more.

Rules: the signature is checked before anything else is looked at, unless the cluster is open; a request has no body to
speak of; connections and the time of each are bounded. Every container exists, since the SDKs make none.

Source: Blob Storage REST, versions from 2015-02-21 on.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast
from urllib.parse import unquote
from xml.sax.saxutils import escape, quoteattr

from aiohttp import web

from node.checkpoint_store.blob_names import BlobName, read_name, read_prefix
from node.checkpoint_store.group_blobs import Blob, BlobRefused, Condition, GroupBlobs
from node.checkpoint_store.shared_key import account_of, is_fresh, is_signed, text_to_sign
from node.config import HostAndPort
from node.security.authorisation import Need
from node.security.shared_access import SharedAccess, SharedAccessKeys
from node.security.tokens import TokenRefused

log = logging.getLogger("holdfast.checkpoints")

NO_LOG: Any = None
"""Of each request: there is none."""

MAX_CONNECTIONS = 1000
MAX_BODY_BYTES = 64 * 1024
"""Bytes of a body. Checkpoints are metadata, and their blobs are empty."""

HEAD_TIMEOUT_S = 20.0
"""Time without a request after which a connection is closed."""

REQUEST_TIMEOUT_S = 30.0
VERSION = "2021-12-02"
META = "x-ms-meta-"
XML = "application/xml"
EMPTY_ETAG = '"0x1"'


class _Connection(web.RequestHandler):
    """Connection whose begin is told, and that reports a client's nonsense in one line."""

    def __init__(self, server: web.Server, watch: Callable[[asyncio.BaseTransport], None]) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, keepalive_timeout=HEAD_TIMEOUT_S, access_log=NO_LOG)
        self.watch = watch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.watch(transport)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        log.info("%s sent what is no request: %s", request.remote, str(message or exc)[:200])
        answer = web.Response(status=status, text="this is no request of HTTP/1.1 that can be read here\n")
        answer.force_close()
        return answer


class BlobServer:
    def __init__(self, blobs: GroupBlobs, keys: SharedAccessKeys, is_open: Callable[[], bool]) -> None:
        """`is_open`: requests need no signature now."""
        self._blobs, self._keys, self._is_open = blobs, keys, is_open
        self._runner: web.ServerRunner | None = None
        self._watched: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}

    async def start(self, address: HostAndPort) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        server = web.Server(self._answer)
        self._runner = web.ServerRunner(server, handle_signals=False)
        await self._runner.setup()
        listening = asyncio.get_running_loop().create_server(
            lambda: _Connection(server, self._watch), address.host, address.port
        )
        self._server = await listening

    async def stop(self) -> None:
        if self._runner is not None:
            self._server.close()
            await self._runner.cleanup()
            self._runner = None

    def _watch(self, transport: asyncio.BaseTransport) -> None:
        """Close a connection that sends no request, and one too many."""
        for gone in [one for one in self._watched if one.is_closing()]:
            self._watched.pop(gone).cancel()
        told = cast(asyncio.Transport, transport)  # uvloop's is one, and no subclass
        if len(self._watched) >= MAX_CONNECTIONS:
            told.abort()
            return
        timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT_S, told.abort)
        self._watched[transport] = timer

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is not None and (timer := self._watched.get(request.transport)) is not None:
            timer.cancel()  # from now on the keep-alive timeout watches it
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self._served(request)
        except BlobRefused as refusal:
            return _refused(request, refusal)
        except TimeoutError:
            return _refused(request, BlobRefused(503, "ServerBusy", "the request took too long; try again"))

    async def _served(self, request: web.BaseRequest) -> web.Response:
        account, access = self._authorised(request)
        await _drain(request)
        path = unquote(request.rel_url.raw_path).lstrip("/")
        if account and (path == account or path.startswith(f"{account}/")):
            path = path[len(account) :].lstrip("/")
        container, _, name = path.partition("/")
        query = request.rel_url.query
        if not container:
            raise BlobRefused(400, "InvalidUri", "the path names no container")
        if not name:
            if query.get("restype") != "container":
                raise BlobRefused(400, "InvalidUri", "the path names no blob")
            if query.get("comp") == "list":
                return await self._list(request, container, query.get("prefix", ""), access)
            return _container(request)
        return await self._blob(request, name, access)

    async def _list(
        self, request: web.BaseRequest, container: str, prefix: str, access: SharedAccess | None
    ) -> web.Response:
        if request.method != "GET":
            raise BlobRefused(405, "UnsupportedHttpVerb", "a list is asked for by GET")
        listed = read_prefix(prefix)
        blobs: list[Blob] = []
        if listed is not None:
            self._require(access, listed.hub, listed.group)
            blobs = await self._blobs.list(listed)
        return _response(request, 200, {"Content-Type": XML}, _listing(container, prefix, blobs))

    async def _blob(self, request: web.BaseRequest, text: str, access: SharedAccess | None) -> web.Response:
        name = read_name(text)
        if name is None:
            if request.method in ("GET", "HEAD"):  # older processors look for blobs of theirs
                raise BlobRefused(404, "BlobNotFound", "The specified blob does not exist.")
            detail = "only NAMESPACE/hub/group/ownership/N and .../checkpoint/N are kept here"
            raise BlobRefused(400, "InvalidResourceName", detail)
        self._require(access, name.hub, name.group)
        answers: Mapping[str, Callable[[web.BaseRequest, BlobName], Awaitable[web.Response]]] = {
            "GET": self._get, "HEAD": self._get, "PUT": self._put, "DELETE": self._delete,
        }  # fmt: skip
        answer = answers.get(request.method)
        if answer is None:
            raise BlobRefused(405, "UnsupportedHttpVerb", f"{request.method} is not for a blob")
        return await answer(request, name)

    async def _get(self, request: web.BaseRequest, name: BlobName) -> web.Response:
        blob = await self._blobs.get(name)
        headers = {f"{META}{key}": value for key, value in blob.metadata.items()}
        headers |= {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream", "Accept-Ranges": "bytes"}
        return _response(request, 200, headers | _stamps(blob))

    async def _put(self, request: web.BaseRequest, name: BlobName) -> web.Response:
        only_metadata = request.rel_url.query.get("comp") == "metadata"
        if not only_metadata and "comp" in request.rel_url.query:
            raise BlobRefused(400, "InvalidQueryParameterValue", "of PUT there are a blob and comp=metadata")
        metadata = {
            key[len(META) :].lower(): value for key, value in request.headers.items() if key.lower().startswith(META)
        }
        blob = await self._blobs.put(name, metadata, _condition(request, present=only_metadata))
        return _response(request, 200 if only_metadata else 201, _stamps(blob))

    async def _delete(self, request: web.BaseRequest, name: BlobName) -> web.Response:
        await self._blobs.delete(name, _condition(request, present=True))
        return _response(request, 202, {})

    # -- access

    def _authorised(self, request: web.BaseRequest) -> tuple[str, SharedAccess | None]:
        """The account of a request, and its right; None: the cluster is open. Raises BlobRefused."""
        shown = account_of(request.headers.get("Authorization", ""))
        if self._is_open():
            return "" if shown is None else shown[0], None
        if shown is None:
            raise BlobRefused(401, "NoAuthenticationInformation", "sign the request with a rule's key, by Shared Key")
        account, signature = shown
        headers = {name.lower(): value for name, value in request.headers.items()}
        path, _, query = request.raw_path.partition("?")
        text = text_to_sign(request.method, headers, account, path, query)
        try:
            access = self._keys.by_signature(account, lambda key: is_signed(key, signature, text))
        except TokenRefused as problem:
            raise BlobRefused(403, "AuthenticationFailed", str(problem)) from None
        if access is None or not is_fresh(headers):
            detail = f"no key of a rule {account[:128]!r} made the signature, or the request's date is not of now"
            raise BlobRefused(403, "AuthenticationFailed", detail)
        return account, access

    def _require(self, access: SharedAccess | None, hub: str, group: str) -> None:
        if access is None:
            return
        log_name = self._blobs.log_of(hub) or hub
        needs = (Need("consume", "log", log_name), Need("consume", "group", group))
        if not all(access.may(need) for need in needs):
            raise BlobRefused(403, "AuthorizationFailure", f"rule {access.rule!r} may not read hub {hub!r}")


async def _drain(request: web.BaseRequest) -> None:
    """Read the body, which nothing needs. Raises BlobRefused if it is one to keep."""
    size = 0
    async for chunk in request.content.iter_any():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise BlobRefused(413, "RequestBodyTooLarge", "checkpoints are metadata: their blobs are empty")


def _condition(request: web.BaseRequest, *, present: bool) -> Condition:
    absent = request.headers.get("If-None-Match", "").strip() == "*"
    etag = request.headers.get("If-Match", "").strip()
    if etag == "*":
        return Condition(absent=absent, present=True)
    return Condition(etag or None, absent, present)


def _container(request: web.BaseRequest) -> web.Response:
    """Every container exists; to make one succeeds, and changes nothing."""
    status = {"PUT": 201, "GET": 200, "HEAD": 200}.get(request.method)
    if status is None:
        raise BlobRefused(405, "UnsupportedHttpVerb", "a container can be made and asked for, not removed")
    return _response(request, status, {"ETag": EMPTY_ETAG, "Last-Modified": email.utils.formatdate(0, usegmt=True)})


def _stamps(blob: Blob) -> dict[str, str]:
    return {"ETag": blob.etag, "Last-Modified": email.utils.formatdate(blob.modified_ms / 1000, usegmt=True)}


def _listing(container: str, prefix: str, blobs: Iterable[Blob]) -> bytes:
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f"<EnumerationResults ContainerName={quoteattr(container)}><Prefix>{escape(prefix)}</Prefix><Blobs>",
    ]
    for blob in blobs:
        stamps = _stamps(blob)
        metadata = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in blob.metadata.items())
        parts.append(
            f"<Blob><Name>{escape(blob.name)}</Name><Properties>"
            f"<Last-Modified>{stamps['Last-Modified']}</Last-Modified><Etag>{blob.etag.strip(chr(34))}</Etag>"
            "<Content-Length>0</Content-Length><Content-Type>application/octet-stream</Content-Type>"
            f"<BlobType>BlockBlob</BlobType></Properties><Metadata>{metadata}</Metadata></Blob>"
        )
    return "".join([*parts, "</Blobs><NextMarker /></EnumerationResults>"]).encode()


def _refused(request: web.BaseRequest, refusal: BlobRefused) -> web.Response:
    text = f"<Error><Code>{refusal.code}</Code><Message>{escape(str(refusal))}</Message></Error>"
    body = f'<?xml version="1.0" encoding="utf-8"?>{text}'.encode()
    return _response(request, refusal.status, {"x-ms-error-code": refusal.code, "Content-Type": XML}, body)


def _response(request: web.BaseRequest, status: int, headers: Mapping[str, str], body: bytes = b"") -> web.Response:
    said = {
        "x-ms-request-id": str(uuid.uuid4()),
        "x-ms-version": request.headers.get("x-ms-version", VERSION)[:32],
        "x-ms-request-server-encrypted": "false",
        "Date": email.utils.formatdate(usegmt=True),
        **headers,
    }
    if client := request.headers.get("x-ms-client-request-id", ""):
        said["x-ms-client-request-id"] = client[:128]
    return web.Response(status=status, headers=said, body=b"" if request.method == "HEAD" else body)

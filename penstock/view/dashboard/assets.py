"""Files that browsers keep: scripts and styles of ours, and the plotly.js of the installed plotly package.

Their addresses hold a digest of what is in them, so that browsers may keep them for ever.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from penstock.runtime.listening import is_loopback

OWN = Path(__file__).parent.parent / "static"
PLOTLY = "plotly.min.js"
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
KEPT = "public, max-age=31536000, immutable"


class Asset:
    """One file, read once; packed only for those who are far away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kind = KINDS[path.suffix]

    @cached_property
    def body(self) -> bytes:
        """The file as it is."""
        return self._path.read_bytes()

    @cached_property
    def packed(self) -> bytes:
        """The file, packed."""
        return gzip.compress(self.body, 6)

    @cached_property
    def digest(self) -> str:
        """A short text that changes with the file."""
        return hashlib.sha256(self.body).hexdigest()[:12]


class Assets:
    """All files by name."""

    def __init__(self, directory: Path = OWN) -> None:
        self._files = {path.name: Asset(path) for path in sorted(directory.iterdir()) if path.suffix in KINDS}
        self._files[PLOTLY] = Asset(_find_plotly())

    def address(self, name: str) -> str:
        """Return the address of a file; a name that is unknown is a defect."""
        return f"/static/{name}?v={self._files[name].digest}"

    def serve(self, request: Request) -> Response:
        """Answer a request for a file."""
        asset = self._files.get(request.path_params["name"])
        if asset is None:
            return PlainTextResponse("there is no such file\n", 404)
        headers = {"cache-control": KEPT, "vary": "accept-encoding"}
        near = request.client is not None and is_loopback(request.client.host)
        if near or "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(asset.body, media_type=asset.kind, headers=headers)
        return Response(asset.packed, media_type=asset.kind, headers={**headers, "content-encoding": "gzip"})


def _find_plotly() -> Path:
    # plotly itself takes half a second to import
    found = find_spec("plotly")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "package_data" / PLOTLY

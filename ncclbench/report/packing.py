"""Packed text: what is large in the page travels as gzip in base85, plotly.js above all.

plotly.js comes from the installed plotly package: 1.84 MB instead of 4.8 MB (base64 would be 1.96 MB).
``templates/unpack.js`` unpacks it with the browser's DecompressionStream.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

# base85's one character that means something inside a script element, and what stands for it.
_UNSAFE, _SAFE = b"<", b","


def packed(text: str, level: int = 6) -> str:
    """Text as gzip in base85: ASCII without ``<``, so safe inside a script element whatever it holds."""
    compressed = gzip.compress(text.encode(), compresslevel=level, mtime=0)
    return base64.b85encode(compressed).replace(_UNSAFE, _SAFE).decode("ascii")


def unpacked(text: str) -> str:
    """Inverse of ``packed``."""
    return gzip.decompress(base64.b85decode(text.encode("ascii").replace(_SAFE, _UNSAFE))).decode()


def packed_plotlyjs() -> str:
    """plotly.js packed, kept in the user's cache folder once per plotly version.

    A cache that cannot be read or written costs half a second, nothing else.
    """
    cached = _cache_file()
    if cached is not None:
        with contextlib.suppress(OSError):
            return cached.read_text("ascii")
    # Imported here: 60 ms that a page with a warm cache does not pay.
    from plotly.offline import get_plotlyjs

    text = packed(get_plotlyjs(), level=9)
    if cached is not None:
        with contextlib.suppress(OSError):
            _write_whole(cached, text)
    return text


def _cache_file() -> Path | None:
    """Where this plotly's text is kept; None where there is no home folder."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(root) if root else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "ncclbench" / f"plotly-{version('plotly')}.js.gz.b85"


def _write_whole(path: Path, text: str) -> None:
    """Write by rename, so that two commands at once, or a full disk, never leave half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=path.parent, delete=False) as stream:
        try:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
            stream.close()
            os.replace(stream.name, path)
        except BaseException:
            os.unlink(stream.name)
            raise

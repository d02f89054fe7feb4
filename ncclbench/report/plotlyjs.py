"""plotly.js as the page carries it: from the installed plotly package, compressed, cached once per version.

The text is gzip in base85 (1.84 MB instead of 4.8 MB; base64 would be 1.96 MB). ``templates/figures.js``
unpacks it with the browser's DecompressionStream.
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


def packed_plotlyjs() -> str:
    """plotly.js compressed: ASCII text without ``<``, safe inside a script element.

    A cache that cannot be read or written costs half a second, nothing else.
    """
    cached = _cache_file()
    if cached is not None:
        with contextlib.suppress(OSError):
            return cached.read_text("ascii")
    # Imported here: 60 ms that a page with a warm cache does not pay.
    from plotly.offline import get_plotlyjs

    compressed = gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)
    packed = base64.b85encode(compressed).replace(_UNSAFE, _SAFE).decode("ascii")
    if cached is not None:
        with contextlib.suppress(OSError):
            _write_whole(cached, packed)
    return packed


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
        except OSError:
            os.unlink(stream.name)
            raise

"""One HTML file from a result: template, style, scripts and data, with a policy that allows no request."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import zlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

_SHARED = ("view.js", "icicle.js", "charts.js", "lines.js", "picking.js", "lanes.js")


def page(title: str, script: str, data: dict[str, Any], text: str, *, connects: bool = False) -> str:
    """Assemble a page.

    Args:
        title: plain text.
        script: the asset that shows ``data``, such as "run.js".
        data: what it shows; plain values.
        text: the same result as plain text, for readers without JavaScript.
        connects: it may ask the server that it came from, and no other.
    """
    style, code = _asset("page.css"), "\n".join(map(_asset, (*_SHARED, script)))
    parts = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; script-src '{_digest(code)}'; style-src '{_digest(style)}'; img-src data:"
        + ("; connect-src 'self'" if connects else ""),
        "style": style,
        "data": packed(data),
        "text": html.escape(text),
        "code": code,
    }
    # The template is taken apart before anything is put in: what a run contains is never taken for a place in it.
    pieces = re.split(r"<!--(\w+)-->", _asset("page.html"))
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def packed(data: dict[str, Any]) -> str:
    """JSON, deflated, in base64: nothing in it can end a script element, and it is a third of the size."""
    text = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def unpacked(text: str) -> Any:
    """What :func:`packed` was given."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def _finite(value: Any) -> Any:
    """The value with null for what JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_finite(one) for one in value]
    return value


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text("utf-8")


def _digest(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()

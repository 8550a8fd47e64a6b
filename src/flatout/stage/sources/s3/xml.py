"""Parses a store's XML without entities, which could read files or never end."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

_NAMESPACE = re.compile(r'\sxmlns="[^"]*"')


def parse(body: bytes) -> ElementTree.Element | None:
    """The document, its elements without a namespace; None if it is not XML or declares types or entities."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return None
    try:
        found = ElementTree.fromstring(_NAMESPACE.sub("", text, count=1))
    except (ElementTree.ParseError, ValueError):
        return None
    return found


def text_of(element: ElementTree.Element, path: str) -> str:
    """The text at a path; empty if there is none."""
    return element.findtext(path) or ""


def error_text(body: bytes) -> str:
    """Code and message of an error as S3 sends it; empty if it is not one. Other fields may hold keys."""
    found = parse(body)
    if found is None or found.tag != "Error":
        return ""
    return ": ".join(text for text in (text_of(found, "Code"), text_of(found, "Message")) if text)

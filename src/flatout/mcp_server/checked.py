"""What clients send and get, checked at one place: arguments by name and type, errors of one short line."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from flatout.terminal_text import one_line

MOST_CHARACTERS = 100_000  # of an argument: Linux takes words of 128 KiB
_MOST_SAID, _MOST_SEEN = 1500, 60
_OWN_LIMIT = {"command", "patch"}
_WORDS = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object of texts",
    "array": "a list of texts",
}


class CheckedServer(MCPServer):
    """A server that says in one line what is wrong with a call."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool, unless its arguments are none of its own.

        Raises:
            ToolError: what the tool or the check says, on one line.
        """
        tool = self._tool_manager.get_tool(name)
        try:
            if tool is None:
                raise ToolError(f"there is no tool {_seen(name)}{_near(name, self._tool_manager.list_tools())}")
            if wrong := mistake(tool, arguments):
                raise ToolError(f"{name}: {wrong}")
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            said = one_line(str(error).removeprefix("Error executing tool "))
            raise ToolError(said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…") from None

    async def read_resource(self, uri: Any, context: Context[Any, Any] | None = None) -> Any:
        """Read a resource; one that is no JSON, where most are, is plain text."""
        found = await super().read_resource(uri, context)
        if not isinstance(found, Iterable):
            return found
        return [_with_type(one) for one in found]


def mistake(tool: Tool, arguments: dict[str, Any]) -> str | None:
    """What is wrong with a call's arguments; None: nothing that their names and types show."""
    known: dict[str, Any] = tool.parameters.get("properties", {})
    for name in arguments:
        if name not in known:
            return f"there is no argument {_seen(name)}{_near(name, known)}"
    for name in tool.parameters.get("required", ()):
        if name not in arguments:
            return f"the argument {name} is missing; it must be {_allowed(known[name])}"
    for name, value in arguments.items():
        if isinstance(value, str) and len(value) > MOST_CHARACTERS and name not in _OWN_LIMIT:
            return f"{name} has {len(value):,} characters; at most {MOST_CHARACTERS:,} are allowed"
        if isinstance(value, bool) and "true or false" not in _allowed(known[name]):
            return _not_allowed(name, value, known[name])
    try:
        tool.fn_metadata.validate_arguments(arguments)
    except ValidationError as error:
        name = str(error.errors(include_url=False)[0]["loc"][0])
        return _not_allowed(name, arguments.get(name), known.get(name, {}))
    return None


def _not_allowed(name: str, value: Any, schema: dict[str, Any]) -> str:
    return f"{name} is {_seen(value)}, but must be {_allowed(schema)}"


def _allowed(schema: dict[str, Any]) -> str:
    """A type of JSON Schema, in words."""
    kinds = [schema, *schema.get("anyOf", ())]
    return " or ".join(_WORDS[kind["type"]] + _range(kind) for kind in kinds if kind.get("type") in _WORDS)


def _range(schema: dict[str, Any]) -> str:
    least = schema.get("minimum", schema.get("minItems"))
    most = schema.get("maximum", schema.get("maxItems"))
    items = " (items)" if "minItems" in schema or "maxItems" in schema else ""
    if least is not None and most is not None:
        return f" from {least:g} to {most:g}{items}"
    if most is not None:
        return f" of at most {most:g}{items}"
    return "" if least is None else f" of at least {least:g}{items}"


def _near(name: str, known: Iterable[Any]) -> str:
    names = [one if isinstance(one, str) else str(one.name) for one in known]
    near = difflib.get_close_matches(name[:_MOST_SEEN], names, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"


def _seen(value: Any) -> str:
    shown = one_line(json.dumps(value, ensure_ascii=False, default=str))
    return shown if len(shown) <= _MOST_SEEN else f"{shown[:_MOST_SEEN]}…"


def _with_type(part: Any) -> Any:
    if part.mime_type != "application/json" or _is_json(part.content):
        return part
    return dataclasses.replace(part, mime_type="text/plain")


def _is_json(content: Any) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True

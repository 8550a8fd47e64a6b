"""``flatout mcp``: the server for coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def mcp(
    root: Annotated[
        Path, typer.Option("--root", metavar="FOLDER", help="Commands of clients run in it, or below.")
    ] = Path(),
    http: Annotated[
        bool, typer.Option("--http", help="Serve on a port of this machine, with a token, not standard streams.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=0, max=65535, help="With --http. Default: a free one.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve these commands to coding agents over MCP.

    The Model Context Protocol: a client starts the server and talks to it over standard streams. Long work is a job:
    the client asks for its state, and can end it; all jobs end with the server. Clients run programs of their choice
    with your rights, as a terminal does.

    Example: flatout mcp --root my-project

    For several clients: flatout mcp --http --port 8765
    """
    from flatout.errors import UsageError
    from flatout.extras import require

    require("mcp")
    if port is not None and not http:
        raise UsageError("--port: belongs to --http")
    if not root.is_dir():
        raise UsageError(f"--root {root}: there is no such folder")
    if http:
        from flatout.mcp_server.port import serve_http

        serve_http(root.resolve(), port or 0)
    else:
        from flatout.mcp_server.streams import serve_standard_streams

        serve_standard_streams(root.resolve())

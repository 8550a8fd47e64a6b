"""Renderings of every result: lines for a terminal, Markdown, JSON."""

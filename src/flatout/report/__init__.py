"""How every result is shown: as lines for a terminal, as Markdown, as JSON."""

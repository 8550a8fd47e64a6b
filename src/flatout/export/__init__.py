"""A recorded run in the formats of other tools: Perfetto, Chrome's trace viewer, speedscope."""

"""``python -m flatout``."""

import sys

from flatout.cli import main

sys.exit(main())

"""`python -m callgate`: the command line, if its script is not in PATH."""

from __future__ import annotations

import sys

from callgate.cli import main

if __name__ == "__main__":
    sys.exit(main())

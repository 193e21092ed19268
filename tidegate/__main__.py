"""The command `tidegate`, also as `python -m tidegate`. An interrupt while it is loaded ends it as one later does."""

from __future__ import annotations

import sys


def main() -> None:
    """See `cli/main.py`."""
    try:
        from tidegate.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

"""The command `tidegate`, also run by `python -m tidegate`. An interrupt during loading ends it like a later one."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command (`cli/main.py`)."""
    try:
        from tidegate.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

"""`python -m tidegate` is the command `tidegate`."""

from tidegate.daemon.cli import main

if __name__ == "__main__":
    main()

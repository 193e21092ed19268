"""Tests of the built image: `make image-check`, which builds it first. Plain `make test` does not collect them."""

from __future__ import annotations

import os

from tests.image.container import IMAGE

if IMAGE not in os.environ:
    collect_ignore_glob = ["test_*.py"]

"""What slots get to know of the pipeline file."""

from __future__ import annotations

import pytest

from tidegate.config.load import parse_pipeline
from tidegate.daemon.services import derive_attempt_settings

FILE = """
version: 1
name: shop
checkpoints: {{directory: "{directory}"}}
{state}
kafka: {{bootstrap.servers: "127.0.0.1:9092"}}
sources: {{orders: {{topic: orders, schema: {{id: bigint}}}}}}
sinks: {{out: {{from: orders, topic: out}}}}
"""


@pytest.mark.parametrize(
    ("directory", "state", "expected"),
    [
        ("file:///mnt/shop", "", 0),
        ("/mnt/shop", "", 0),
        ("s3://bucket/shop", "", 1 << 30),
        ("s3://bucket/shop", "state: {local_copies: never}", 0),
        ("s3://bucket/shop", "state: {local_copies_max: 64MiB}", 64 << 20),
        ("/mnt/shop", "state: {local_copies: always, local_copies_max: 2GiB}", 2 << 30),
    ],
)
def test_copies_of_state_are_kept_where_the_storage_is_far_away(directory: str, state: str, expected: int) -> None:
    settings = parse_pipeline(FILE.format(directory=directory, state=state), "shop.yaml", {}).settings
    assert derive_attempt_settings(settings, 0).slots.local_copies_max_bytes == expected

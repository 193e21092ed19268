"""--bootstrap and --kafka: what they give to clients, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tidegate.dev.topics.cluster import derive_written, resolve_properties


def resolve(*kafka: str, environ: dict[str, str] | None = None) -> dict[str, str]:
    return resolve_properties(derive_written("a:1", kafka), environ or {})


def test_properties_are_given_to_clients() -> None:
    assert resolve("client.id=me=you", "security.protocol=ssl") == {
        "bootstrap.servers": "a:1",
        "client.id": "me=you",
        "security.protocol": "ssl",
    }


def test_variables_and_files_are_replaced(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hidden\n")
    login = ["security.protocol=sasl_ssl", "sasl.mechanism=PLAIN", "sasl.username=${WHO:nobody}"]
    found = resolve(*login, f"sasl.password=${{file:{secret}}}", environ={"WHO": "me"})
    assert (found["sasl.username"], found["sasl.password"]) == ("me", "hidden")


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        ("ssl", "--kafka 'ssl' is not NAME=VALUE, for example --kafka security.protocol=ssl"),
        ("=ssl", "is not NAME=VALUE"),
        (
            "securty.protocol=ssl",
            "librdkafka has no such property; did you mean `security.protocol`?",
        ),
        ("client.id=${NOBODY}", "client.id: the variable `NOBODY` is not set"),
        ("client.id=${file:/nonexistent}", "client.id: the file `/nonexistent` cannot be read"),
        ("isolation.level=read_uncommitted", "isolation.level: belongs to Tidegate"),
        ("sasl.username=me", "sasl.username: has no effect: `security.protocol` is `plaintext`"),
    ],
)
def test_what_is_wrong_is_named_with_a_remedy(kafka: str, message: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        resolve(kafka)
    assert message in refused.value.message

"""The jars: pinned, checked, fetched once, safe between processes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tidegate.dev.broker import ArtifactsUnavailable
from tidegate.dev.broker.artifacts import KAFKA_VERSION, fetch_jars, find_mismatches, read_artifacts


def test_list_is_pinned_sorted_and_has_the_broker() -> None:
    listed = read_artifacts()
    keys = [f"{a.organisation}:{a.name}:{a.revision}" for a in listed]
    assert keys == sorted(set(keys))
    assert f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}" in keys
    assert all(len(a.sha256) == 64 and int(a.sha256, 16) for a in listed)


@pytest.fixture
def copied_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone with all jars in it; its directory of jars."""
    jars = fetch_jars()
    own = tmp_path / f"kafka-{KAFKA_VERSION}"
    shutil.copytree(jars[0].parent, own)
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    return own


@pytest.mark.slow
def test_complete_cache_is_used_without_network(copied_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_MAVEN_REPOSITORY", "file:/nowhere/")
    assert {jar.parent for jar in fetch_jars()} == {copied_cache}


@pytest.mark.slow
def test_flipped_bit_is_found_and_fetched_again_from_the_given_repository(
    copied_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    for a in read_artifacts():
        folder = mirror / a.organisation.replace(".", "/") / a.name / a.revision
        folder.mkdir(parents=True)
        os.link(copied_cache / a.file_name, folder / a.file_name)
    monkeypatch.setenv("TIDEGATE_MAVEN_REPOSITORY", f"file:{mirror}/")
    damaged = copied_cache / read_artifacts()[0].file_name
    content = bytearray(damaged.read_bytes())
    damaged.unlink()
    content[100] ^= 1
    damaged.write_bytes(content)
    assert find_mismatches(copied_cache, read_artifacts()) == [damaged.name]
    fetch_jars()
    assert find_mismatches(copied_cache, read_artifacts()) == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["fetch.lock", copied_cache.name, "mirror"]


@pytest.mark.slow
def test_unreachable_repository_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_MAVEN_REPOSITORY", f"file:{tmp_path}/empty/")
    with pytest.raises(ArtifactsUnavailable, match="TIDEGATE_MAVEN_REPOSITORY"):
        fetch_jars()
    assert [entry.name for entry in tmp_path.iterdir()] == ["fetch.lock"]


@pytest.mark.slow
def test_jar_that_is_not_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for a in read_artifacts():
        folder = tmp_path / "mirror" / a.organisation.replace(".", "/") / a.name / a.revision
        folder.mkdir(parents=True)
        (folder / a.file_name).write_bytes(b"something else")
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TIDEGATE_MAVEN_REPOSITORY", f"file:{tmp_path}/mirror/")
    with pytest.raises(ArtifactsUnavailable, match="not the pinned ones"):
        fetch_jars()
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["fetch.lock"]

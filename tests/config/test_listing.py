"""Settings with their origin, and the text of the file, both without secrets."""

from __future__ import annotations

from pathlib import Path

from tests.testing.pipelines import HEAD
from tidegate.config.listing import find_origin, hide_secrets, list_settings, render_value
from tidegate.config.load import LoadedPipeline, parse_pipeline

TEXT = """\
version: 1
name: orders
kafka:
  bootstrap.servers: ${KAFKA:127.0.0.1:9092}
  security.protocol: sasl_ssl
  sasl.mechanism: PLAIN
  sasl.username: me
  sasl.password: "open\\x73esame"     # was opensesame before, and
  # sasl.password: hunter2
checkpoints: {directory: file:///nowhere, interval: 5s}
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, token: string}, kafka: {ssl.key.password: x1}}
steps:
  - {name: big, from: orders, where: id > 100}
  - name: asked
    from: big
    http: {url: "https://prices.example/{id}", headers: {X-Key: abc, Accept: from}}
    output: {price: double}
sinks:
  out: {from: asked, topic: out}
"""


def load(text: str = TEXT, **environ: str) -> LoadedPipeline:
    loaded = parse_pipeline(text, "some/p.yaml", environ)
    assert loaded.problems == ()
    return loaded


def listed(loaded: LoadedPipeline) -> dict[str, tuple[str, str, str | None, tuple[str, ...]]]:
    return {
        loaded.display(one.path): (render_value(one.value), *find_origin(loaded, one.path))
        for one in list_settings(loaded, steps=True)
    }


def test_every_setting_has_its_value_and_where_it_comes_from(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("checkpoints:\n  interval: 9s\nhttp:\n  port: ${PORT}\n")
    found = listed(load(TIDEGATE_SITE=str(site), PORT="8080"))
    assert found["kafka.bootstrap.servers"] == ("127.0.0.1:9092", "environment", "p.yaml:4", ("KAFKA",))
    assert found["checkpoints.directory"] == ("file:///nowhere", "file", "p.yaml:10", ())
    assert found["checkpoints.interval"] == ("9s", "site", "site.yaml:2", ())
    assert found["http.port"] == ("8080", "environment", "site.yaml:4", ("PORT",))
    assert found["checkpoints.timeout"] == ("10m", "default", None, ())
    assert found["spark.master"] == ("local[2]", "default", None, ())


def test_a_step_has_the_settings_of_its_kind() -> None:
    found = listed(load())
    assert found["steps.big.where"] == ("id > 100", "file", "p.yaml:15", ())
    assert found["steps.asked.http.missing"] == ("null", "default", None, ())
    assert "steps.asked.capacity" in found
    assert "steps.big.capacity" not in found
    assert found["steps.big.from"][0] == "orders"


def test_secrets_are_hidden_in_settings_and_in_the_text() -> None:
    loaded = load()
    found = {name: value for name, (value, *_) in listed(loaded).items()}
    text = hide_secrets(loaded)
    assert found["kafka.sasl.password"] == found["sources.orders.kafka.ssl.key.password"] == "***"
    assert found["steps.asked.http.headers.X-Key"] == "***"
    for secret in ("esame", "hunter2", "x1", "abc"):
        assert secret not in text
        assert not any(secret in value for value in found.values())
    assert text.count("\n") == TEXT.count("\n")
    assert "  sasl.password: ***     # was *** before, and\n  # sasl.password: ***\n" in text
    assert "schema: {id: bigint, token: string}, kafka: {ssl.key.password: ***}}\n" in text
    assert "headers: {X-Key: ***, Accept: ***}}\n" in text


def test_a_secret_that_the_site_overrides_is_hidden_in_the_text(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("kafka: {sasl.password: other}\n")
    text = hide_secrets(load(TIDEGATE_SITE=str(site)))
    assert "esame" not in text
    assert "other" not in text


def test_the_name_of_a_variable_or_file_is_shown_and_a_default_that_is_a_secret_is_not(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("opensesame\n")
    written = '"open\\x73esame"'
    for value, shown in (
        ("${PW}", "${PW}"),
        (f"${{file:{password}}}", f"${{file:{password}}}"),
        ("${PW:opensesame}", "***"),
        ("open${PW}", "***"),
        ("|\n    opensesame", "***"),
    ):
        loaded = load(TEXT.replace(written, value, 1).replace("# was opensesame before, and", ""), PW="hidden-away")
        text = hide_secrets(loaded)
        assert f"  sasl.password: {shown}" in text
        assert "opensesame" not in text
        assert "hidden-away" not in text
    assert find_origin(load(TEXT.replace(written, f"${{file:{password}}}", 1)), ("kafka", "sasl.password")) == (
        "file",
        "p.yaml:8",
        (f"file {password}",),
    )


def test_secrets_are_hidden_in_comments_aliases_and_quoted_values() -> None:
    text = TEXT.replace('"open\\x73esame"     # was opensesame before, and', "&pw first1")
    text = text.replace(
        "checkpoints:", "# kafka: {sasl.username: me, sasl.password: second2, x: y}\n# token=third3\ncheckpoints:"
    )
    text = text.replace("{ssl.key.password: x1}", "{ssl.key.password: 'fourth4, fifth5', sasl.password: *pw}")
    shown = hide_secrets(load(text))
    for secret in ("first1", "second2", "third3", "fourth4", "fifth5"):
        assert secret not in shown
    assert "# kafka: {sasl.username: me, sasl.password: ***\n# token=***\n" in shown
    assert "{ssl.key.password: ***, sasl.password: *pw}}\n" in shown


def test_an_ordinary_comment_is_shown() -> None:
    comment = "# sasl.password: ${file:/etc/tidegate/password}    # never shown: a#b, and the topic is: orders\n"
    assert comment in hide_secrets(load(TEXT + comment))


def test_a_list_and_a_mapping_are_rendered_as_the_file_has_them() -> None:
    text = (
        HEAD
        + "sources: {a: {topics: [x, y], format: raw, start: {0: 17}}}\nsinks: {o: {from: a, topic: z, format: raw}}\n"
    )
    found = {
        name: value for name, (value, *_) in listed(load(text.replace("start: {0: 17}", "start: earliest"))).items()
    }
    assert found["sources.a.topics"] == "x, y"
    text = text.replace("topics: [x, y]", "topic: x")
    assert {name: value for name, (value, *_) in listed(load(text)).items()}["sources.a.start"] == "{0: 17}"

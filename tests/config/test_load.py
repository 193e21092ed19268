"""Loading: places, origins, secrets, and what may be written in which way."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from tidegate.config.document import MappingNode, YamlPosition, derive_tree
from tidegate.config.draft import SAMPLE
from tidegate.config.errors import ConfigErrors, Problem, render_problems
from tidegate.config.fields.types import GiveUpLimit
from tidegate.config.load import LoadedPipeline, parse_pipeline, read_pipeline
from tidegate.config.reference import derive_json_schema, render_reference

ROOT = Path(__file__).resolve().parents[2]


def sample(*changes: tuple[str, str]) -> str:
    text = SAMPLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def load(text: str, **environ: str) -> LoadedPipeline:
    loaded = parse_pipeline(text, "p.yaml", environ)
    assert loaded.problems == ()
    return loaded


def test_the_sample_is_valid(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SAMPLE)
    loaded = read_pipeline(tmp_path / "p.yaml", {})
    assert loaded.problems == ()
    assert loaded.settings.checkpoints.interval_ms == 1000
    assert loaded.settings.spark_master == "local[2]"
    assert [step.name for step in loaded.settings.steps] == ["big", "priced", "per_customer"]


def test_positions_and_origins() -> None:
    loaded = load(SAMPLE, KAFKA_BOOTSTRAP="broker:9092")
    line = SAMPLE.split("\n").index(
        "parallelism: 2                          # slots: Spark tasks that run the whole graph each"
    )
    assert loaded.position(("parallelism",)) == (line + 1, 14)
    assert loaded.origin(("parallelism",)) == f"file line {line + 1}"
    assert loaded.origin(("max_parallelism",)) == "default"
    assert loaded.origin(("kafka", "bootstrap.servers")).endswith("(KAFKA_BOOTSTRAP)")
    assert loaded.display(("steps", 1, "select", "net")) == "steps.priced.select.net"


def test_the_place_of_a_setting_that_is_not_in_the_file_is_its_sections() -> None:
    loaded = load(SAMPLE)
    assert loaded.position(("checkpoints", "timeout")) == loaded.position(("checkpoints",))


def test_defaults() -> None:
    settings = load(SAMPLE).settings
    assert settings.http.port == 9095
    assert settings.checkpoints.transaction_timeout_ms == 15 * 60_000
    assert settings.restart.give_up_after == GiveUpLimit(20, 30 * 60_000)
    assert settings.dead_letters is not None
    assert settings.dead_letters.per_minute_max == 1000


def test_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"\xef\xbb\xbf" + SAMPLE.replace("\n", "\r\n").encode())
    assert read_pipeline(tmp_path / "p.yaml", {}).position(("version",)) == (2, 10)


def test_secrets_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2hunter2\n")
    login = "  security.protocol: sasl_ssl\n  sasl.mechanism: PLAIN\n  sasl.username: me\n"
    password = f"kafka:\n{login}  sasl.password: ${{file:{tmp_path}/password}}\n  ssl.key.password: ${{KEY}}\n"
    loaded = load(sample(("kafka:    ", password + "  #")), KEY="opensesame")
    shown = f"{loaded.settings!r} {loaded.settings.model_dump()} {loaded.secrets!r}"
    assert "hunter2" not in shown
    assert "opensesame" not in shown
    assert loaded.secrets("hunter2hunter2 opensesame") == "*** ***"


def test_secrets_of_digits_keep_them_and_numbers_are_numbers() -> None:
    login = "  security.protocol: sasl_ssl\n  sasl.mechanism: PLAIN\n  sasl.username: 007\n  sasl.password: ${KEY}\n"
    text = sample(("kafka:    ", f"max_parallelism: 010\nsecrets: {{pii: 0123456789012345}}\nkafka:\n{login}  #"))
    settings = load(text, KEY="0042").settings
    password = settings.kafka["sasl.password"]
    assert isinstance(password, SecretStr)
    assert (settings.kafka["sasl.username"], password.get_secret_value()) == ("007", "0042")
    assert settings.secrets["pii"].get_secret_value() == "0123456789012345"
    assert (settings.max_parallelism, type(settings.max_parallelism)) == (10, int)
    (problem,) = parse_pipeline(text, "p.yaml", {"KEY": "True"}).problems
    assert (problem.path, problem.message) == ("kafka.sasl.password", "expected a secret, got a boolean")


@pytest.mark.parametrize(
    "section", ["registry:\n  url: http://registry:8081\n  token: ${KEY}", "secrets:\n  pii: ${KEY}"]
)
def test_a_secret_may_look_like_any_number_and_never_shows(section: str) -> None:
    text = sample(("kafka:    ", f"{section}\nkafka:\n  #"))
    for key in ("7412e88", "12.50", "-.512", ".inf", "0042", "0x1F"):
        loaded = load(text, KEY=key)
        settings = loaded.settings
        secret = settings.secrets.get("pii") if settings.registry is None else settings.registry.token
        assert secret is not None
        assert secret.get_secret_value() == key
        assert key not in loaded.secrets(f"it is {key}")
    (problem,) = parse_pipeline(text, "p.yaml", {"KEY": "True"}).problems
    assert (problem.message, problem.remedy) == ("expected a secret, got a boolean", 'put it in quotes: "..."')


def test_keys_and_headers_of_records_are_as_they_are_written_and_values_are_numbers() -> None:
    records = "{key: 0042, headers: [[a, 007], [b, 0x1F], [c, 42]], value: {n: 0042, x: [1.10]}, timestamp: 0017}"
    (case,) = load(
        sample().split("tests:")[0]
        + f"tests: [{{name: one, given: {{orders: [{records}]}}, expect: {{totals: [{{key: +5}}]}}, late: 00}}]\n"
    ).settings.tests
    (given,), expected = case.given["orders"], case.expect["totals"]
    assert isinstance(expected, list)
    assert (given.key, expected[0].key) == ("0042", "+5")
    assert given.headers == (("a", b"007"), ("b", b"0x1F"), ("c", b"42"))
    assert repr(given.value) == "{'n': 42, 'x': [1.1]}"
    assert {type(one) for one in (given.value["n"], given.timestamp, case.late)} == {int}
    assert type(given.value["x"][0]) is float


def test_a_secret_that_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    text = sample(("kafka:    ", f"kafka:\n  sasl.password: ${{file:{tmp_path}/password}}\n  #"))
    (problem,) = parse_pipeline(text, "p.yaml", {}).problems
    assert problem.message == f"the file `{tmp_path}/password` cannot be used: it is not UTF-8 text"


def test_a_secret_in_a_message_is_redacted() -> None:
    text = sample(
        ("  bootstrap.servers", "  sasl.password: sesame\n  client.id: sesame\n  acks: sesame\n  bootstrap.servers")
    )
    problems = parse_pipeline(text, "p.yaml", {}).problems
    assert problems
    assert "sesame" not in render_problems(problems, "text")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigErrors, match="larger than"):
        read_pipeline(tmp_path / "p.yaml", {})


def test_a_file_of_the_largest_size_is_read_in_seconds() -> None:
    """Each place was looked up from the beginning of the file, which took minutes."""
    text = "x:\n" + "".join(f"  k{number}: {{a: b}}  # {'-' * 64}\n" for number in range(12_000))
    begun = time.process_time()
    tree, problems = derive_tree(text)
    assert time.process_time() - begun < 30
    assert isinstance(tree, MappingNode)
    assert problems == []
    below = tree.entries[0][1]
    assert isinstance(below, MappingNode)
    assert below.entries[-1][0].mark == YamlPosition(12_001, 3, text.rindex("k11999"))


def test_a_file_that_is_not_utf_8_is_refused_at_the_first_wrong_byte(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"version: 1\nname: caf\xe9\n")
    with pytest.raises(ConfigErrors) as caught:
        read_pipeline(tmp_path / "p.yaml", {})
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.message) == (2, 10, "is not UTF-8 text")


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match="cannot be read"):
        read_pipeline(tmp_path, {})


def test_a_remedy_after_sentences_is_another_sentence() -> None:
    assert str(Problem("a.yaml", 3, 4, "x", "it is broken", "mend it")) == "a.yaml:3:4: x: it is broken; mend it"
    sentences = Problem("a.yaml", 3, 4, "x", "It is broken. Mend it or not.", "Say which")
    assert str(sentences) == "a.yaml:3:4: x: It is broken. Mend it or not. Say which"
    assert render_problems([sentences], "github").endswith("x: It is broken. Mend it or not. Say which")


def test_problems_for_machines() -> None:
    problem = Problem("a,b.yaml", 3, 4, "x.y", "50% broken\nreally", "mend it")
    assert json.loads(render_problems([problem], "json")) == [
        {
            "file": "a,b.yaml",
            "line": 3,
            "column": 4,
            "path": "x.y",
            "message": "50% broken\nreally",
            "remedy": "mend it",
            "severity": "error",
        }
    ]
    assert render_problems([problem], "github") == (
        "::error file=a%2Cb.yaml,line=3,col=4::x.y: 50%25 broken%0Areally; mend it"
    )


def test_the_json_schema_has_every_section_and_the_words_of_the_file() -> None:
    schema = derive_json_schema()
    assert schema["additionalProperties"] is False
    assert {"version", "name", "kafka", "checkpoints", "sources", "sinks"} == set(schema["required"])
    assert "interval" in schema["$defs"]["CheckpointSettings"]["properties"]
    assert "transactional.id" not in schema["properties"]["kafka"]["propertyNames"]["enum"]
    json.dumps(schema)


def test_the_reference_is_current() -> None:
    """`python -m tidegate.config.reference` writes it."""
    docs = ROOT / "docs"
    files = [*(docs / "pipeline").glob("*"), *(docs / "formats").glob("*")]
    assert {str(file.relative_to(docs)): file.read_text(encoding="utf-8") for file in files} == render_reference()


def test_a_page_of_the_reference_is_short() -> None:
    assert {name: len(page) for name, page in render_reference().items() if len(page.encode()) > 25_000} == {}


def test_the_reference_has_the_bounds_of_every_duration_and_size() -> None:
    page = "\n".join(render_reference().values())
    assert "| `checkpoints.interval` | 10ms to 1h | `1s` |" in page
    assert "| `state.local_copies_max` | 1MiB to 100TiB | `1GiB` |" in page
    assert "| duration |" not in page
    assert "| size |" not in page

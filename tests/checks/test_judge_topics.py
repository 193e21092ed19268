"""What is said of topics, one change of a sound deployment at a time."""

from __future__ import annotations

import msgspec
import pytest

from tests.checks.deployments import COMMANDS, SOUND, bad, keyed, of_topics, only
from tests.daemon.small_pipeline import pipeline
from tidegate.checks.facts import MIN_IN_SYNC, UNCLEAN, SeenTopic, derive_unattended_ms
from tidegate.checks.findings import CHECKS, Severity
from tidegate.config.load import parse_pipeline

UNKNOWN, WARNING, PROBLEM = Severity.UNKNOWN, Severity.WARNING, Severity.PROBLEM
UNATTENDED_MS = derive_unattended_ms(pipeline().settings)


def topic(copies: int = 3, least: int | None = 2, *, unclean: bool | None = False) -> SeenTopic:
    """`least` and `unclean` are None where these settings are hidden."""
    settings = {name: value for name, value in SOUND.settings.items() if name not in (MIN_IN_SYNC, UNCLEAN)}
    settings |= {} if least is None else {MIN_IN_SYNC: str(least)}
    settings |= {} if unclean is None else {UNCLEAN: str(unclean).lower()}
    return msgspec.structs.replace(SOUND, copies=copies, settings=settings)


def test_a_sound_deployment_has_nothing_but_ok_for_every_check() -> None:
    findings = of_topics({}, {})
    assert bad(findings) == []
    checks = {"copies", "min-in-sync", "unclean-election", "retention", "cleanup", "record-size"}
    assert {one.check for one in findings} == checks <= CHECKS.keys()
    assert {one.subject for one in findings} == {"in", "out", "__transaction_state"}


@pytest.mark.parametrize(
    ("seen", "check", "level", "words", "setting"),
    [
        (topic(1, 1), "copies", PROBLEM, "1", ""),
        (topic(2, 1), "min-in-sync", PROBLEM, "one copy acknowledges", "min.insync.replicas=2"),
        (topic(3, 1), "min-in-sync", PROBLEM, "one copy acknowledges", "min.insync.replicas=2"),
        (topic(3, 4), "min-in-sync", PROBLEM, "nothing can be written", "min.insync.replicas=2"),
        (topic(3, 3), "min-in-sync", WARNING, "while one broker is down", ""),
        (topic(3, None), "min-in-sync", UNKNOWN, "hidden", ""),
        (topic(unclean=True), "unclean-election", PROBLEM, "can become the leader", f"{UNCLEAN}=false"),
    ],
)
def test_each_weakness_of_acknowledgements_is_found(
    seen: SeenTopic, check: str, level: Severity, words: str, setting: str
) -> None:
    one = next(one for one in bad(of_topics({}, {}, seen=seen)) if one.check == check)
    assert (one.severity, one.subject, one.place) == (level, "out", ("sinks", "out", "topic"))
    assert words in one.value
    assert one.remedy == (COMMANDS.alter_topic("out", setting) if setting else one.remedy)
    assert setting in one.remedy


def test_X21_a_weakness_says_what_can_be_lost_with_acknowledged_records() -> None:
    weak = topic(3, 1)
    (output,) = bad(of_topics({}, {}, seen=weak))
    assert "output that was committed can be lost" in output.value
    (log,) = bad(of_topics({}, {}, log=weak))
    assert "decisions about transactions can be lost" in log.value
    assert (log.subject, log.place) == ("__transaction_state", ("kafka", "bootstrap.servers"))
    assert not output.prevents_start, "nothing here stops a pipeline"


def test_two_copies_are_a_warning_and_one_broker_says_nothing_about_copies() -> None:
    assert [one.check for one in bad(of_topics({}, {}, seen=topic(2, 2)))] == ["copies", "min-in-sync"]
    assert bad(of_topics({}, {}, seen=topic(1, 1), brokers=1)) == []
    assert only(of_topics({}, {}, seen=topic(1, 2), brokers=1)).check == "min-in-sync"
    assert only(of_topics({}, {}, seen=topic(1, 1, unclean=True), brokers=1)).severity is WARNING


@pytest.mark.parametrize(
    ("milliseconds", "level"),
    [
        (UNATTENDED_MS, PROBLEM),
        (UNATTENDED_MS + 1, WARNING),
        (3 * 86_400_000 - 1, WARNING),
        (3 * 86_400_000, Severity.OK),
        (-1, Severity.OK),
    ],
)
@pytest.mark.parametrize("side", ["in", "out"])
def test_retention_is_compared_with_outages_to_the_millisecond(milliseconds: int, level: Severity, side: str) -> None:
    changes = {"retention.ms": str(milliseconds)}
    findings = of_topics(changes, {}) if side == "in" else of_topics({}, changes)
    (one,) = [one for one in findings if one.check == "retention" and one.subject == side]
    assert one.severity is level
    assert ("retention.ms=604800000" in one.remedy) is (level is not Severity.OK)


def test_retention_by_size_is_a_warning_hidden_settings_are_unknown_and_compaction_alone_is_neither() -> None:
    assert "whatever their age" in only(of_topics({"retention.bytes": "1000"}, {})).value
    hidden = {(one.check, one.severity) for one in bad(of_topics(None, None))}
    assert hidden == {("retention", UNKNOWN), ("min-in-sync", UNKNOWN)}
    assert bad(of_topics({}, {"cleanup.policy": "compact", "retention.ms": "1"}, loaded=keyed()))[0].check == "cleanup"


def test_at_least_once_reads_nothing_back_so_the_retention_of_outputs_is_of_no_concern() -> None:
    text = pipeline().source.replace("transaction_timeout: 15m", "mode: at-least-once")
    assert bad(of_topics({}, {"retention.ms": "1"}, loaded=parse_pipeline(text, "p.yaml", {}))) == []


@pytest.mark.parametrize(
    ("changes", "level", "words", "setting"),
    [
        ({"cleanup.policy": "compact"}, PROBLEM, "its records need keys", "cleanup.policy=delete"),
        ({"cleanup.policy": "compact,delete"}, PROBLEM, "its records need keys", "cleanup.policy=delete"),
    ],
)
def test_a_compacted_output_takes_no_records_without_keys(
    changes: dict[str, str], level: Severity, words: str, setting: str
) -> None:
    one = only(of_topics({}, changes))
    assert (one.check, one.severity, one.prevents_start) == ("cleanup", level, True)
    assert words in one.value
    assert setting in one.remedy


def test_tombstones_want_a_compacted_topic_that_waits_for_the_end_of_an_outage() -> None:
    one = only(of_topics({}, {}, loaded=keyed()))
    assert (one.check, one.severity) == ("cleanup", WARNING)
    assert "tombstones delete nothing" in one.value
    early = only(of_topics({}, {"cleanup.policy": "compact"}, loaded=keyed()))
    assert "min.compaction.lag.ms=86400000" in early.remedy
    late = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(UNATTENDED_MS)}
    assert bad(of_topics({}, late, loaded=keyed())) == []


def test_a_compacted_input_is_a_warning_unless_its_source_reads_tombstones() -> None:
    compacted = {"cleanup.policy": "compact"}
    one = only(of_topics(compacted, {}))
    assert (one.check, one.severity, one.subject) == ("cleanup", WARNING, "in")
    text = pipeline().source.replace("start: earliest", "start: earliest, on_null: tombstone")
    loaded = parse_pipeline(text, "p.yaml", {})
    assert loaded.problems == ()
    assert bad(of_topics(compacted, {}, loaded=loaded)) == []


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type=CreateTime"),
        ({"message.timestamp.before.max.ms": "86399999"}, "message.timestamp.before.max.ms=9223372036854775807"),
        ({"message.timestamp.after.max.ms": "3599999"}, "message.timestamp.after.max.ms=3600000"),
        (
            {"message.timestamp.difference.max.ms": "86399999"},
            "message.timestamp.difference.max.ms=9223372036854775807",
        ),
    ],
)
def test_limits_on_timestamps_matter_to_a_sink_that_sets_them(changes: dict[str, str], setting: str) -> None:
    compacted = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(UNATTENDED_MS)}
    one = only(of_topics({}, {**compacted, **changes}, loaded=keyed()))
    assert (one.check, one.severity) == ("timestamps", WARNING)
    assert setting in one.remedy
    assert bad(of_topics({}, changes)) == [], "this sink writes the time of writing"


def test_timestamps_that_a_sink_sets_make_records_old_where_the_input_keeps_them_for_longer() -> None:
    both = {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": str(UNATTENDED_MS)}
    one = only(of_topics({"retention.ms": "-1"}, both, loaded=keyed()))
    assert (one.check, one.severity) == ("retention", WARNING)
    assert "an input keeps older ones" in one.value


def test_event_time_of_records_that_are_stamped_on_arrival() -> None:
    text = pipeline().source.replace("start: earliest", "start: earliest, watermark: {delay: 5s}")
    step = "{name: minute, from: orders, key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}}"
    text = text.replace("sinks:", f"steps: [{step}]\nsinks:").replace(
        "from: orders, topic: out", "from: minute, topic: out"
    )
    loaded = parse_pipeline(text, "p.yaml", {})
    assert loaded.problems == ()
    stamped = {"message.timestamp.type": "LogAppendTime"}
    one = only(of_topics(stamped, {}, loaded=loaded))
    assert (one.check, one.subject) == ("timestamps", "in")
    assert bad(of_topics(stamped, {})) == [], "nobody asks for event time"


def test_records_that_can_be_read_and_not_written() -> None:
    one = only(of_topics({"max.message.bytes": "2000000"}, {}))
    assert (one.check, one.severity) == ("record-size", WARNING)
    assert "max.message.bytes=2000000" in one.remedy
    wide = {"max.message.bytes": "2000000"}
    assert "message.max.bytes: 2000000" in only(of_topics(wide, wide)).remedy
    assert bad(of_topics({}, {"max.message.bytes": "1000000"})) == [], "a little less is no concern"

"""`tidegate run FILE`: the command around the daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tidegate import __version__
from tidegate.cli.options import PIPELINE_FILE, start_options
from tidegate.cli.output import reporting
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId

if TYPE_CHECKING:
    from tidegate.cli.progress import TerminalLines
    from tidegate.config.load import LoadedPipeline
    from tidegate.config.models import PipelineSettings
    from tidegate.daemon.http.server import HttpServer
    from tidegate.daemon.metrics import PipelineMetrics
    from tidegate.daemon.restore_point import StartOptions
    from tidegate.daemon.taps import TapService
    from tidegate.plan.graph import Plan
    from tidegate.process.logs import LogSetup
    from tidegate.spark.gateway import EarlyServer

logger = logging.getLogger(__name__)

_ACCEPT_GONE = (
    "Treat output of this checkpoint as committed if Kafka no longer knows its transactions. The message of the "
    "refused start has the number."
)


@click.command()
@PIPELINE_FILE
@start_options
@click.option("--accept-gone", metavar="CHECKPOINT", type=click.IntRange(min=1), help=_ACCEPT_GONE)
def run(file: Path, options: StartOptions, accept_gone: int | None) -> None:
    """Run the pipeline of FILE until its input ends, or until SIGTERM, SIGINT or SIGHUP.

    The run continues from the newest checkpoint. Exit codes: see `tidegate docs operations/running`.
    """
    from tidegate.process.limits import collect_rarely
    from tidegate.spark.gateway import early_server

    collect_rarely()
    if accept_gone is not None:
        options = msgspec.structs.replace(options, accept_gone=CheckpointId(accept_gone))
    with early_server() as server:
        code = run_pipeline(file, options, _keep_exit_code, server)
    sys.exit(code)


def _keep_exit_code() -> None:
    """Ignores signals after the daemon has ended: a late second signal must not look like the reason for the exit."""
    from tidegate.process.limits import ending_signals

    for number in ending_signals():
        signal.signal(number, signal.SIG_IGN)


def _configure_logging(loaded: LoadedPipeline, terminal: TerminalLines | None) -> LogSetup:
    from tidegate.daemon.tracing import find_header_secrets
    from tidegate.process.logs import configure_logging, set_secrets

    settings = loaded.settings
    set_secrets([*loaded.secrets.values, *find_header_secrets(os.environ)])
    level = getattr(logging, settings.logging.level.upper())
    return configure_logging(settings.name, level, settings.logging.format, terminal=terminal)


def _make_metrics(settings: PipelineSettings, plan: Plan) -> PipelineMetrics:
    from tidegate.daemon.metrics import PipelineMetrics
    from tidegate.daemon.operator_accounts import OperatorAccounts, derive_kinds, derive_remedies, derive_waits
    from tidegate.plan.clusters import derive_sink_clusters, derive_source_clusters

    checkpoints = settings.checkpoints
    metrics = PipelineMetrics(
        settings.name,
        __version__,
        operators=OperatorAccounts(derive_kinds(plan), derive_remedies(plan), derive_waits(plan)),
        guarantee=checkpoints.mode,
        clusters=derive_source_clusters(plan) | derive_sink_clusters(plan),
    )
    metrics.limits(checkpoints.interval_ms, checkpoints.min_pause_ms, checkpoints.transaction_timeout_ms)
    return metrics


def _make_http(loaded: LoadedPipeline, plan: Plan, metrics: PipelineMetrics, taps: TapService) -> HttpServer:
    from tidegate.daemon.control_token import provide_read_token
    from tidegate.daemon.http.server import HttpServer
    from tidegate.daemon.resources import make_resources

    settings = loaded.settings.http
    resources = make_resources(loaded, plan, metrics, taps)
    http = HttpServer(settings.host, settings.port, metrics, tls=settings.tls, resources=resources)
    http.read_token = provide_read_token(settings.read_token_file)
    return http


def run_pipeline(
    file: Path,
    options: StartOptions | None = None,
    on_ended: Callable[[], None] = lambda: None,
    early_server: EarlyServer | None = None,
) -> int:
    """Runs the daemon and returns its exit code. Errors are reported once, without a traceback.

    `on_ended` is called when the daemon has ended and no longer handles signals.
    """
    from tidegate.checks.findings import StartRefused
    from tidegate.checks.pipeline_file import plan_file
    from tidegate.checks.registry import Ask
    from tidegate.config.errors import ConfigErrors

    try:
        loaded, plan = plan_file(file, os.environ, Ask.EITHER, _import_daemon)
    except ConfigErrors as errors:
        return _report_problems([str(problem) for problem in errors.problems], errors.exit_code)
    from tidegate.cli.progress import ProgressDisplay, TerminalLines, open_console
    from tidegate.daemon.http.redaction import redact_status
    from tidegate.daemon.restore_point import StartOptions
    from tidegate.daemon.service import Daemon
    from tidegate.daemon.taps import TapService
    from tidegate.daemon.tracing import start_tracing
    from tidegate.plan.upgrade_directives import give_up_columns
    from tidegate.process.limits import raise_descriptor_limit

    plan = give_up_columns(plan, options.command_line.columns if options is not None else ())
    settings = loaded.settings
    console = open_console()
    logs = _configure_logging(loaded, TerminalLines(console) if console is not None else None)
    raise_descriptor_limit()
    metrics = _make_metrics(settings, plan)
    http: HttpServer | None = None
    display = ProgressDisplay(console, lambda: redact_status(metrics.snapshot()))
    tracing = start_tracing(settings.name, lambda: metrics.checkpoints, os.environ)
    try:
        taps = TapService(plan, settings.http.redact)
        http = _make_http(loaded, plan, metrics, taps)
        http.start()
        logger.info("tidegate %s, pipeline %s: metrics and probes on %s", __version__, settings.name, http.address)
        display.start()
        serving = http
        begin = options or StartOptions()
        asyncio.run(_serve(lambda: Daemon(loaded, plan, metrics, serving, logs.context, begin, taps, early_server)))
    except StartRefused as refused:
        for text, cause in refused.findings:
            logger.error("%s", text, extra={"error": cause or refused})  # noqa: TRY400 - as below
        return refused.exit_code
    except TidegateError as error:
        logger.error("%s", error.message, extra={"error": error})  # noqa: TRY400 - reported once, without a traceback
        return error.exit_code
    except Exception:
        logger.exception("internal error: the daemon ends")
        return 1
    finally:
        on_ended()
        display.stop()
        for part in (http, tracing):
            if part is not None:
                part.stop()
        logs.close()
    return 0


def _import_daemon() -> None:
    """Imports the rest of the daemon."""
    import tidegate.daemon.resources
    import tidegate.daemon.service  # noqa: F401 - used later


def _report_problems(problems: list[str], exit_code: int) -> int:
    with reporting():
        for problem in problems:
            click.echo(problem, err=True)
    return exit_code


async def _serve(make_daemon: object) -> None:
    """Creates the daemon inside the event loop, because it owns asyncio events, and runs it."""
    assert callable(make_daemon)
    await make_daemon().run()

"""The command `tidegate`: loads only the module of the subcommand and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class

from tidegate import __version__
from tidegate.cli.output import open_streams, printing, reporting
from tidegate.errors import TidegateError


class LazyCommand(NamedTuple):
    """The location of a command and its summary in the overview."""

    module: str
    attribute: str
    summary: str
    extra: str = ""
    """The extra of the distribution that installs the command, if it is not part of every installation."""


COMMANDS: Mapping[str, LazyCommand] = {
    "run": LazyCommand("tidegate.cli.run", "run", "Run a pipeline until it is stopped or its input ends."),
    "status": LazyCommand("tidegate.cli.daemon_commands", "status", "Show how a running pipeline is doing."),
    "tap": LazyCommand("tidegate.cli.daemon_commands", "tap", "Show rows that leave a step of a running pipeline."),
    "checkpoint": LazyCommand(
        "tidegate.cli.daemon_commands", "checkpoint", "Take a checkpoint of a running pipeline now."
    ),
    "savepoint": LazyCommand("tidegate.cli.savepoints", "savepoint", "Take, list, verify and delete savepoints."),
    "stop": LazyCommand("tidegate.cli.daemon_commands", "stop", "Stop a running pipeline after a final checkpoint."),
    "token": LazyCommand(
        "tidegate.cli.daemon_commands", "token", "Print the token that authorizes commands to a pipeline."
    ),
    "checkpoints": LazyCommand(
        "tidegate.cli.daemon_commands", "checkpoints", "List retained checkpoints and savepoints."
    ),
    "upgrade": LazyCommand("tidegate.cli.upgrade", "upgrade", "Show how a changed file affects existing state."),
    "state": LazyCommand("tidegate.cli.state", "state", "Read or write the state in checkpoints and savepoints."),
    "dead-letters": LazyCommand(
        "tidegate.cli.dead_letters", "dead_letters", "List, show and replay records that could not be processed."
    ),
    "validate": LazyCommand(
        "tidegate.cli.config", "validate", "Check a pipeline file, and with --connect the deployment."
    ),
    "doctor": LazyCommand(
        "tidegate.cli.doctor", "doctor", "Check whether a deployment can keep its guarantee, and how to fix it."
    ),
    "explain": LazyCommand("tidegate.cli.config", "explain", "Show the graph, state and settings of a pipeline file."),
    "test": LazyCommand("tidegate.cli.testing", "test", "Run the tests in a pipeline file, without Kafka and Spark."),
    "preview": LazyCommand("tidegate.cli.testing", "preview", "Run a pipeline over a file and print its output."),
    "init": LazyCommand("tidegate.dev.init", "init", "Write a commented pipeline file; --topic infers its schema."),
    "schema": LazyCommand("tidegate.cli.config", "schema", "Print the JSON Schema of the pipeline file for editors."),
    "topic": LazyCommand("tidegate.dev.topics.command", "topic", "Create, list, fill and read topics."),
    "broker": LazyCommand("tidegate.dev.broker.command", "broker", "Run a development broker."),
    "demo": LazyCommand(
        "tidegate.dev.demo", "demo", "Run the example on a real broker, kill a worker, verify the output."
    ),
    "docs": LazyCommand("tidegate.cli.docs", "docs", "Print the documentation of this version."),
    "completion": LazyCommand("tidegate.cli.main", "completion", "Print the completion of commands for a shell."),
    "prepare": LazyCommand("tidegate.dev.prepare", "prepare", "Make Spark start in half the CPU time on this machine."),
    "simulate": LazyCommand(
        "tidegate.simulation.command",
        "simulate",
        "Try to break the protocol with planned faults, without Kafka.",
        "simulation",
    ),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Returns the names in the order of the overview."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Returns the command, or None for an unknown name, which click reports to the user."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(_import(cmd_name, entry), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.attribute} is not a command")
        return command

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        """Parses the arguments; click prints help and version here."""
        with printing():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command and flushes its output. Raises UsageError if Python has been told to leave assertions out.

        The Kafka client reads part of each answer in an assertion. Without it, no broker seemed to answer.
        """
        if sys.flags.optimize:
            raise click.UsageError(
                "Python runs without assertions, which the Kafka client needs: unset PYTHONOPTIMIZE, or leave out -O"
            )
        with printing():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes command names with their summaries, and options, without importing any command."""
        found = [
            CompletionItem(name, help=entry.summary) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Writes the overview without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


def _import(name: str, entry: LazyCommand) -> ModuleType:
    try:
        return importlib.import_module(entry.module)
    except ModuleNotFoundError as error:
        if not entry.extra or error.name not in (entry.module, entry.module.rpartition(".")[0]):
            raise
        raise click.UsageError(
            f"the command {name!r} is not installed; install it with `pip install "
            f"'tidegate[{entry.extra}]=={__version__}'`"
        ) from error


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidegate")
def tidegate() -> None:
    """Moves data from Kafka to Kafka exactly once, on Spark executors."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command and exits the process: 0 on success, 2 for wrong usage or configuration, else the error's exit
    code.
    """
    open_streams()
    sys.exit(run_command(arguments))


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. A user's mistake is reported without a traceback."""
    try:
        result = tidegate.main(arguments, prog_name="tidegate", standalone_mode=False)
    except click.ClickException as error:
        with reporting():
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except TidegateError as error:
        with reporting():
            click.echo(error.message if error.exit_code == 2 else f"tidegate: {error.code}: {error.message}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0


SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "tidegate"
VARIABLE: Final = "_TIDEGATE_COMPLETE"
"""The environment variable through which the shell requests completions."""
HELP: Final = """Print the completion of commands and options for SHELL.

\b
bash:  eval "$(tidegate completion bash)"             in ~/.bashrc
zsh:   eval "$(tidegate completion zsh)"              in ~/.zshrc
fish:  tidegate completion fish > ~/.config/fish/completions/tidegate.fish
"""
"""Contains click's mark, a backspace, before lines that click must not rewrap."""


@click.command(help=HELP)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion of commands and options for SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of them"
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())

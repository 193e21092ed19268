"""The examples of the cookbook: pipelines that each do one task, with their tests and the files that they read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from tidegate.cli.docs import find_shipped
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.errors import TidegateError

SUFFIX: Final = ".yaml"


class ExampleMissing(TidegateError):
    """The cookbook has no example of that name."""

    code = "example-missing"
    exit_code = 2
    retriable = False


@dataclass(frozen=True)
class Example:
    """A pipeline file, and the files with the same stem that it reads: modules and schemas."""

    name: str
    pipeline: Traversable
    others: Sequence[Traversable]

    @property
    def question(self) -> str:
        """The question that it answers: the first line of the file, a comment."""
        return self.pipeline.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def find_examples(folder: Traversable | None = None) -> Mapping[str, Example]:
    """Find all examples by name. Raises ExampleMissing if this installation has none."""
    folder = find_shipped("cookbook", "examples/cookbook") if folder is None else folder
    found = sorted(folder.iterdir(), key=lambda one: one.name) if folder.is_dir() else []
    examples = {}
    for pipeline in (one for one in found if one.name.endswith(SUFFIX)):
        stem = pipeline.name.removesuffix(SUFFIX)
        others = [one for one in found if one.name.startswith(f"{stem}.") and one.name != pipeline.name]
        examples[stem] = Example(stem, pipeline, others)
    if not examples:
        raise ExampleMissing("this installation has no cookbook; reinstall the wheel of this version")
    return examples


def choose_example(name: str, examples: Mapping[str, Example]) -> Example:
    """Resolve an example by its name. Raises ExampleMissing with the most similar one."""
    if name in examples:
        return examples[name]
    hint = derive_suggestion(name, examples, otherwise="`tidegate init --example` lists all examples")
    raise ExampleMissing(f"there is no example {name}; {hint}", example=name)


def write_example(example: Example, file: Path) -> None:
    """Write an example to `file`, and the files that it reads next to it. Nothing is written if one of them exists."""
    texts = {file: example.pipeline} | {file.with_name(one.name): one for one in example.others}
    write_files({target: source.read_text(encoding="utf-8") for target, source in texts.items()})
    click.echo(f"{', '.join(map(str, texts))} written: `tidegate test {file}` runs the cases in it")


def write_files(texts: Mapping[Path, str]) -> None:
    """Write new files, all of them or none."""
    for file in texts:
        require_new(file)
    written = []
    for file, text in texts.items():
        try:
            with file.open("x", encoding="utf-8") as stream:
                written.append(file)
                stream.write(text)
        except OSError as error:
            for one in written:
                with contextlib.suppress(OSError):
                    one.unlink()
            raise click.ClickException(
                f"{file} cannot be written: {error.strerror or error}; choose another name"
            ) from error


def require_new(file: Path) -> None:
    """Refuse a file that exists, also a link that leads nowhere."""
    if os.path.lexists(file):
        raise click.ClickException(f"{file} exists; choose another name, or remove it")


def print_examples(examples: Mapping[str, Example]) -> None:
    """Print the names of all examples with the questions that they answer."""
    width = max(map(len, examples))
    for example in examples.values():
        click.echo(f"{example.name:<{width}}  {example.question}")
    click.echo("\n`tidegate init --example NAME` writes one to NAME.yaml, `tidegate docs cookbook` explains them")


def complete_example(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Complete the name of an example, with its question."""
    return [
        CompletionItem(name, help=one.question) for name, one in find_examples().items() if name.startswith(incomplete)
    ]

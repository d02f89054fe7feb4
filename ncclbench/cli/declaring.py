"""How a command declares its options: each once, under a heading of the help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from ncclbench.cli.values import Parse

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Decorated], Decorated]
# One option, to be listed under a heading.
Choice = Callable[[str], Decorator[Any]]


class SectionOption(click.Option):
    """An option that stands under a heading of its command's help."""

    def __init__(self, *args: Any, section: str, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                sections.setdefault(getattr(parameter, "section", "Other"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class SeveralCommand(SectionedCommand):
    """A command some of whose options take all words up to the next option.

    Attributes:
        several: these options, by their long names.
    """

    several: tuple[str, ...] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_repeated(args, self.several)))


def _repeated(args: Sequence[str], several: Sequence[str]) -> Iterator[str]:
    """``--base A B`` as click takes it: ``--base A --base B``."""
    name, taken = None, 0
    for word in args:
        if word.startswith("-") and len(word) > 1:
            option_name, equals, _ = word.partition("=")
            name, taken = (option_name, int(bool(equals))) if option_name in several else (None, 0)
            yield word
        elif name is None:
            yield word
        else:
            # The first word belongs to the option that stands before it.
            yield from ([word] if taken == 0 else [name, word])
            taken += 1


def several_option(name: str, section: str, metavar: str, help: str, word: Parse) -> Decorator[Any]:
    """An option of a SeveralCommand, which may be repeated too.

    Args:
        word: parses each of its words.
    """
    return click.option(
        name,
        cls=SectionOption,
        section=section,
        metavar=metavar,
        multiple=True,
        help=help,
        callback=lambda ctx, parameter, words: [word(each, name) for each in words],
    )


def option(
    *names: str,
    help: str,
    metavar: str | None = None,
    default: str | None = None,
    otherwise: str | None = None,
    parse: Parse | None = None,
    flag: bool = False,
    hidden: bool = False,
) -> Choice:
    """One option, still without its heading.

    Args:
        names: as ``click.option`` takes them.
        help: one sentence.
        metavar: what the value is.
        default: the value where it is not given.
        otherwise: what the help says the default is, where it depends on the rest.
        parse: makes the value of the text.
        flag: takes no value.
        hidden: left out of the help; for developers.
    """

    def value(ctx: click.Context, parameter: click.Parameter, typed: Any) -> Any:
        return typed if parse is None or typed is None else parse(typed, "/".join(parameter.opts))

    shown = otherwise or default
    text = f"{help}  [default: {shown}]" if shown else help

    def placed(section: str) -> Decorator[Any]:
        return click.option(
            *names,
            cls=SectionOption,
            section=section,
            help=text,
            metavar=metavar,
            default=False if flag else default,
            callback=value,
            is_flag=flag,
            hidden=hidden,
        )

    return placed


def under(section: str, *options: Choice) -> Decorator[Any]:
    """A decorator that gives a command the options, listed under one heading in this order."""

    def add(function: Decorated) -> Decorated:
        for entry in reversed(options):
            function = entry(section)(function)
        return function

    return add


def typed_options(ctx: click.Context) -> list[str]:
    """The options that stood on the command line, as ``--long-name``, in the order of the help."""
    typed = click.core.ParameterSource.COMMANDLINE
    return [
        max(parameter.opts, key=len)
        for parameter in ctx.command.params
        if parameter.name is not None and ctx.get_parameter_source(parameter.name) is typed
    ]

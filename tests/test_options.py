"""The shared options: what their values become, what they refuse, and how help shows them."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

import click
import pytest
from click.testing import CliRunner

from ncclbench.cli import declaring, options, values
from ncclbench.errors import RequestError
from ncclbench.plan.arms import parse_arms
from ncclbench.plan.build import Method, Selection
from ncclbench.plan.sizes import parse_sizes
from ncclbench.tables.collectives import COLLECTIVES
from ncclbench.tables.dtypes import DTYPES
from ncclbench.tables.redops import REDOPS


@click.command("measure", cls=declaring.SectionedCommand)
@options.selection_options
@options.arm_options
@options.method_options
@options.launch_options
@options.run_options
@options.json_option
@options.exit_zero_option
@click.pass_context
def measure(ctx: click.Context, /, **params: Any) -> dict[str, Any]:
    """A command with every shared option."""
    return {**params, "typed": declaring.typed_options(ctx)}


def parse(line: str = "") -> dict[str, Any]:
    result = CliRunner().invoke(measure, shlex.split(line), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    params: dict[str, Any] = result.return_value
    return params


def selection(line: str = "") -> Selection:
    return options.selection_from(parse(line))


def method(line: str = "") -> Method:
    params = parse(line)
    return options.method_from(params, parse_arms(params["backends"], params["arms"], "cpu"))


def test_without_options_everything_has_its_documented_default() -> None:
    assert selection() == Selection(sizes=parse_sizes())
    assert method() == Method(base_arm="gloo")


def test_short_forms_are_those_of_nccl_tests() -> None:
    line = "-b 4 -e 1K -f 4 -d half -o max -r 1 -n 30 -w 2 -c 0"
    assert selection(line) == Selection(
        sizes=(4, 16, 64, 256, 1024), dtypes=("float16",), redops=("max",), roots=(1,)
    )
    assert method(line) == Method(base_arm="gloo", iters=30, warmup_iters=2, check=0)


def test_all_stands_for_the_whole_table() -> None:
    chosen = selection("--ops all --dtypes all --redops all --root all")
    assert (chosen.ops, chosen.dtypes, chosen.redops) == (tuple(COLLECTIVES), tuple(DTYPES), tuple(REDOPS))
    assert chosen.roots is None


def test_lists_keep_their_order_and_aliases_become_torch_names() -> None:
    chosen = selection("--ops 'broadcast, all_reduce' -d bf16,float --async yes,no")
    assert chosen.ops == ("broadcast", "all_reduce")
    assert chosen.dtypes == ("bfloat16", "float32")
    assert chosen.async_op == (True, False)
    assert chosen.in_place is None
    assert selection("--in-place no,yes").in_place == (False, True)


def test_method_options_reach_the_method() -> None:
    line = "--backends gloo,gloo --base gloo#2 --epochs 9 --epoch-kind process --statistic p75 --margin 5%"
    line += " --time-budget 90s --timeout 2m --share-gpu --seed 7"
    assert method(line) == Method(
        base_arm="gloo#2",
        epochs=9,
        epoch_kind="process",
        statistic="p75",
        margin_ratio=0.05,
        margin_us=0.0,
        time_budget_s=90.0,
        timeout_s=120.0,
        share_gpu=True,
        seed=7,
    )


@pytest.mark.parametrize(
    ("text", "margin"), [("3%,1us", (0.03, 1.0)), ("2ms,10%", (0.1, 2000.0)), ("4us", (0.0, 4.0))]
)
def test_margin_is_a_fraction_a_time_or_both(text: str, margin: tuple[float, float]) -> None:
    assert values.margin(text, "--margin") == pytest.approx(margin)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--ops all_redcue", "unknown collective 'all_redcue': did you mean 'all_reduce'?"),
        ("--ops allgather", "did you mean 'all_gather"),
        ("--ops all_reduce,,barrier", "--ops 'all_reduce,,barrier' has an empty entry"),
        ("--ops barrier,barrier", "--ops names barrier twice"),
        ("-d float23", "unknown dtype 'float23': did you mean 'float32'?"),
        ("-d half,float16", "-d/--dtypes names float16 twice"),
        ("-o summ", "unknown reduction operator 'summ': did you mean 'sum'?"),
        ("-r -1", "'-1' is not a rank"),
        ("-r first", "'first' is not a rank"),
        ("-r 0,0", "names 0 twice"),
        ("--modes back2back", "unknown mode 'back2back': did you mean 'back-to-back'?"),
        ("--topologies mesh:dp", "write it like mesh:dp=2,tp=4"),
        ("--topologies wrld", "did you mean 'world'"),
        ("--async maybe", "unknown --async value 'maybe'"),
        ("--in-place ye", "did you mean 'yes'"),
        ("-n 0", "-n/--iters 0 is out of range: take 1 to"),
        ("-n -5", "-n/--iters -5 is out of range"),
        ("-n ten", "'ten' is not a whole number"),
        ("-n 1e3", "'1e3' is not a whole number"),
        ("-n 99999999999999999999999", "is not a whole number"),
        ("-n 1000001", "out of range"),
        ("-w -1", "out of range: take 0 to"),
        ("-c -1", "out of range: take 0 to"),
        ("--epochs 0", "out of range: take 1 to 10,000"),
        ("--epoch-kind proces", "unknown --epoch-kind value 'proces': did you mean 'process'?"),
        ("--statistic mean", "unknown --statistic value 'mean'"),
        ("--margin 3", "'3' is not a margin"),
        ("--margin 3%,4%", "is not a margin"),
        ("--margin 0%", "out of range"),
        ("--time-budget soon", "--time-budget 'soon' is not a duration"),
        ("--timeout 0", "above zero"),
        ("--precision two", "--precision 'two' is not a percentage"),
        ("--nproc-per-node 0", "--nproc-per-node 0 is out of range"),
        ("--seed -1", "out of range"),
    ],
)
def test_bad_values_are_refused_in_one_line(line: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_base_must_be_one_of_the_arms() -> None:
    with pytest.raises(RequestError, match="unknown arm 'nccl2'"):
        method("--base nccl2")


def test_typed_options_are_those_on_the_command_line() -> None:
    assert parse("--resume x --json")["typed"] == ["--resume", "--json"]
    assert parse("-b 8 --ops all_reduce")["typed"] == ["--ops", "--min-bytes"]


def test_help_lists_every_option_under_a_heading_with_its_default() -> None:
    text = CliRunner().invoke(measure, ["--help"], terminal_width=110).output
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "What is measured:",
        "What is compared:",
        "How it is measured:",
        "Where it runs:",
        "What is kept:",
        "How it answers:",
        "Other:",
    ]
    for parameter in measure.params:
        assert getattr(parameter, "hidden", False) or any(name in text for name in parameter.opts)
    words = " ".join(text.split())
    for default in (
        "all_reduce",
        "64M",
        "isolated,back-to-back",
        "p25 on CPU, median on CUDA",
        "60s",
        "3%,1us",
    ):
        assert f"[default: {default}]" in words


class TestFolderName:
    CREATED = datetime(2026, 11, 29, 15, 51, 4)

    @pytest.mark.parametrize(
        ("label", "name"),
        [
            (None, "20261129-155104"),
            ("", "20261129-155104"),
            ("hopper", "20261129-155104-hopper"),
            ("H100 vs. B200 (new driver)", "20261129-155104-H100-vs.-B200-new-driver"),
            ("../../etc/passwd", "20261129-155104-etc-passwd"),
            ("..", "20261129-155104"),
            ("a\x00b\nc\x1b[31m", "20261129-155104-a-b-c-31m"),
            ("größe", "20261129-155104-gr-e"),
            ("-rf", "20261129-155104-rf"),
        ],
    )
    def test_holds_what_a_file_name_can(self, label: str | None, name: str) -> None:
        assert options.folder_name(self.CREATED, label) == name

    def test_is_short_however_long_the_label(self) -> None:
        name = options.folder_name(self.CREATED, "x" * 5000)
        assert name == "20261129-155104-" + "x" * 60

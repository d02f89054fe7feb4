"""`make bench`: what scripts tell of their bars becomes one table, nothing that fails left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bars  # noqa: E402
from _bar import Told, heard, heard_in, inside, tell  # noqa: E402


def bench(code: str, *asked: str) -> bars.Bench:
    return bars.Bench(
        ("-c", f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n{code}"), dict.fromkeys(asked, "x")
    )


def rows_of(one: bars.Bench, limit_s: float = 30.0) -> dict[str, tuple[str, str]]:
    result = bars.Result()
    bars.run(one, one.words, limit_s, result)
    return {name: (measured, word) for name, _, measured, word in bars.lines_of(one, result)}


def test_what_is_told_is_heard_in_the_midst_of_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    print("bars of chocolate")
    tell("overhead 8", '1.00 [0.99, 1.01] "µs"', True)
    text = capsys.readouterr().out
    assert list(heard_in(text)) == [Told("overhead 8", '1.00 [0.99, 1.01] "µs"', True)]
    assert heard("bars of chocolate\n") is None


def test_no_figure_is_not_told() -> None:
    with pytest.raises(ValueError, match="nothing was measured of drills"):
        tell("drills", "", False)


@pytest.mark.parametrize(
    ("low", "high", "met"), [(0.99, 1.01, True), (0.97, 1.01, None), (1.03, 1.05, False), (0.9, 0.97, False)]
)
def test_an_interval_over_the_edge_of_a_bar_shows_nothing(low: float, high: float, met: bool | None) -> None:
    assert inside(low, high, 0.98, 1.02) is met


def test_every_figure_has_its_word_and_what_was_not_told_is_named() -> None:
    told = bench(
        "from _bar import tell\ntell('a', '1 s', True); tell('b', '9 s', False); tell('c', '?', None)",
        *"abcd",
    )
    assert rows_of(told) == {
        "a": ("1 s", "met"),
        "b": ("9 s", "MISSED"),
        "c": ("?", "not shown"),
        "d": ("the command did not tell", "NOT MEASURED"),
    }


def test_a_script_that_fails_keeps_what_it_told() -> None:
    told = bench("from _bar import tell\ntell('a', '1 s', True)\nsys.exit(7)", "a", "b")
    assert rows_of(told) == {"a": ("1 s", "met"), "b": ("ended with 7", "NOT MEASURED")}


def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    hanging = bench(
        f"import subprocess, pathlib\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\nchild.wait()",
        "a",
    )
    begun = time.monotonic()
    assert rows_of(hanging, 3.0) == {"a": ("not done in 3 s", "NOT MEASURED")}
    assert time.monotonic() - begun < 20
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("what the script started is still there")


def test_what_has_left_the_session_of_a_script_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the script's output still open."""
    monkeypatch.setattr(bars, "READ_S", 0.5)
    leaving = bench(
        f"import subprocess, pathlib\nfrom _bar import tell\n"
        f"child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid)); tell('a', '1 s', True)",
        "a",
    )
    try:
        assert rows_of(leaving) == {"a": ("1 s", "met")}
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_test_is_a_bar_by_how_it_ends() -> None:
    assert rows_of(bars.Bench(("-m", "json.tool", "--help"), {"a": "x"})) == {"a": ("all passed", "met")}
    assert rows_of(bars.Bench(("-m", "json.tool", "/dev/null"), {"a": "x"}))["a"][1] == "MISSED"


def test_every_bar_names_a_script_that_tells_of_it() -> None:
    """Read from the sources: the first word of a bar's name stands in the script."""
    told: list[str] = []
    for one in bars.BENCHES:
        for words in filter(None, (one.words, one.quick)):
            path = Path(words[0])
            if path.suffix != ".py":
                assert words[1] == "pytest"
                continue
            text = path.read_text("utf-8")
            assert "tell(" in text
            for name in one.bars:
                assert name in text or name.split()[0] in text, f"{path.name} does not tell of {name}"
        told += one.bars
    assert len(told) == len(set(told))


def test_a_command_lists_the_bars_and_refuses_what_names_none() -> None:
    def bars_py(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(BENCHMARKS / "bars.py"), *words], capture_output=True, text=True, timeout=60
        )

    listed = bars_py("--list")
    assert len(listed.stdout.splitlines()) == sum(len(one.bars) for one in bars.BENCHES)
    nothing = bars_py("--only", "bananas")
    assert nothing.returncode == 2
    assert nothing.stderr == "bars.py: no bar has 'bananas' in its name: see --list\n"


def test_ctrl_c_keeps_what_was_told(tmp_path: Path) -> None:
    """A script that tells and goes on; the person ends it."""
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"""import sys
sys.path[:0] = [{str(BENCHMARKS)!r}]
import bars
code = "import sys, time; sys.path[:0] = [{str(BENCHMARKS)!r}]\\n"
code += "from _bar import tell; tell('a', '1 s', True); time.sleep(60)"
bars.BENCHES = (bars.Bench(("-c", code), {{"a": "x", "b": "y"}}),)
sys.argv[1:] = []
bars.main()
"""
    )
    person = subprocess.Popen(
        [sys.executable, str(driver)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert person.stderr is not None
    for line in person.stderr:
        if "a: 1 s: met" in line:
            break
    person.send_signal(signal.SIGINT)
    out, _ = person.communicate(timeout=30)
    assert person.returncode == 130
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["a", "b"]
    assert "NOT MEASURED" in out


@pytest.mark.full
def test_two_bars_are_measured_and_written(tmp_path: Path) -> None:
    """For real, with few rounds: the bars may be missed on a busy machine, and must be measured."""
    table = tmp_path / "bars.md"
    done = subprocess.run(
        [
            sys.executable,
            str(BENCHMARKS / "bars.py"),
            "--quick",
            "--only",
            "help,plan",
            "--markdown",
            str(table),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stderr
    rows = table.read_text("utf-8")
    assert {"| help |", "| plan |", "| sweep |", "| store |"} <= {
        f"|{row.split('|')[1]}|" for row in rows.splitlines() if row.startswith("|")
    }
    assert "--quick" in rows
    assert "NOT MEASURED" not in rows.split("| 16,384 ranks read")[0]

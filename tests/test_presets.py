"""Presets as files and options: what is refused and how, what wins, and what the answers come to."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclbench.cli import stepping
from ncclbench.cli.app import run
from ncclbench.cli.preset import load_preset, merged
from ncclbench.cli.steps import Steps, former_steps
from ncclbench.cli.sweep import command as sweep_command
from ncclbench.errors import RequestError
from ncclbench.plan import preset as preset_module
from ncclbench.plan.preset import World, find_preset, preset_names
from ncclbench.store.files import disk_error
from ncclbench.store.folder import RunFolder
from ncclbench.store.preset import PRESET_SCHEMA, StoredPreset, StoredStep, read_preset, write_preset

HEAD = 'name = "mine"\ntitle = "of mine"\n'
STEP = '[[steps]]\nname = "first"\ncommand = "sweep"\n'
CPU = World(2, 2, "cpu", 4)
GPUS = World(16, 8, "cuda", 8, launched=True)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


BAD = {
    "no TOML": (HEAD + "[[steps", "mine.toml is no TOML: "),
    "no steps": (HEAD, "missing required field `steps`"),
    "empty steps": (HEAD + "steps = []", "steps: Expected `array` of length >= 1"),
    "no title": ('name = "mine"\n' + STEP, "missing required field `title`"),
    "unknown key": (HEAD + 'colour = "red"\n' + STEP, "unknown field `colour`"),
    "unknown decision": (
        HEAD + 'decision = "maybe"\n' + STEP,
        "decision: unknown decision 'maybe': known: acceptance, migration",
    ),
    "unknown key of a step": (HEAD + STEP + "optoins = {}", "step 'first': Object contains unknown field"),
    "unknown command": (
        HEAD + STEP.replace("sweep", "swep"),
        "step 'first': command: unknown command 'swep'",
    ),
    "a command that measures nothing": (HEAD + STEP.replace("sweep", "report"), "unknown command 'report'"),
    "unknown option": (
        HEAD + STEP + '[steps.cpu]\nsise = "8"',
        "step 'first': unknown option of sweep 'sise': did you mean",
    ),
    "bad value": (HEAD + STEP + '[steps.cuda]\nops = "all_reduc"', "unknown collective 'all_reduc'"),
    "fewer iterations than epochs": (
        HEAD + STEP + "[steps.options]\niters = 3\nepochs = 8",
        "step 'first': -n/--iters 3 is fewer than --epochs 8",
    ),
    "bad list": (HEAD + STEP + "[steps.options]\nsizes = []", "sizes is []"),
    "a word for a flag": (HEAD + STEP + '[steps.options]\nshare-gpu = "yes"', "write true or false"),
    "a flag for a word": (HEAD + STEP + "[steps.options]\nsizes = true", "sizes is True"),
    "an option of the whole": (HEAD + STEP + '[steps.options]\nout = "x"', "out cannot be in a preset"),
    "a program": (HEAD + STEP + '[steps.options]\narm-env = "x=/bin/sh"', "arm-env cannot be in a preset"),
    "unknown need": (HEAD + STEP + 'needs = "luck"', "step 'first': needs: unknown need 'luck'"),
    "bad deadline": (HEAD + STEP + 'deadline = "soon"', "step 'first': deadline 'soon' is not a duration"),
    "two of a name": (HEAD + STEP + STEP, "step 'first': name stands twice"),
    "control characters": (HEAD + STEP + '[steps.options]\nlabel = "\\u001b[2J"', "options.label holds"),
    **{
        f"name {name!r}": (HEAD + STEP.replace("first", name), "name is that of a folder")
        for name in ("../x", "/etc", "", ".", "a/b", "a" * 61, "-rf", "new\\nline", "x\\n")
    },
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_wrong_file_is_one_line_that_names_it(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, text)
    assert run(["sweep", "--preset", path, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"ncclbench: error: {path}")
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_what_is_typed_may_not_contradict_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = STEP + "[steps.options]\niters = 3\n" + STEP.replace("first", "second")
    path = written(tmp_path, HEAD + two)
    assert run(["sweep", "--preset", path, "--epochs", "4", "--out", str(tmp_path / "run")]) == 2
    assert f"error: {path}: step 'first': -n/--iters 3 is fewer than --epochs 4" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--preset", "migratoin"], "unknown preset 'migratoin': did you mean 'migration'"),
        (["--preset", "none.toml"], "none.toml is not there: name a TOML file, or one of quick, "),
        (["--preset", "."], "unknown preset '.'"),
        (["--preset", "/"], "/ is no file"),
        (["--preset", "training", "--ops", "all_reduce"], "--ops is for one sweep, and preset training has"),
        (["--preset", "quick", "--resume", "x"], "leave --preset away"),
        (["--preset", "quick", "--plan", "x"], "leave --preset away"),
        (["--preset", "quick", "--ops", "nothing"], "unknown collective 'nothing'"),
    ],
)
def test_a_wrong_request_is_one_line(typed: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *typed]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", preset_names())
def test_presets_of_the_package_hold_what_their_commands_take(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = load_preset(name)
    assert preset.name == name
    machine = tmp_path / "gpus.toml"
    machine.write_text('device = "cuda"\nranks_per_host = 8\ngpu_memory = "80G"\nmemory = "1T"\n')
    for where in (["--machine", str(machine), "--world-size", "16"], ["--nproc-per-node", "4"]):
        assert run(["plan", "--preset", name, "--json", *where]) == 0
        document = json.loads(capsys.readouterr().out)
        measured = [step for step in document.get("steps", ()) if step["command"] == "sweep"]
        on_gpus = "--machine" in where
        for step in measured:
            absent = preset.steps[[each.name for each in preset.steps].index(step["name"])].why_not(
                World(16, 8, "cuda", 8, True) if on_gpus else World(4, 4, "cpu", 4)
            )
            assert step["planned"] == (absent is None), step["reason"]
        assert any(row["status"] == "planned" for row in document["rows"])
    assert [step.why_not(GPUS) for step in preset.steps if step.command == "sweep"].count(None)


def test_acceptance_plans_8_gib_and_skips_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "small.toml"
    machine.write_text('device = "cuda"\nranks_per_host = 8\ngpu_memory = "16G"\nmemory = "1T"\n')
    assert run(["plan", "--preset", "acceptance", "--json", "--machine", str(machine)]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["op"] == "all_reduce"]
    by_size = {row["nbytes"]: row["status"] for row in rows}
    assert by_size[1 << 20] == "planned"
    assert by_size[8 << 30] == "skipped"
    assert len(by_size) == 14


def test_what_is_typed_wins_and_takes_the_place_of_what_cannot_stand_beside_it() -> None:
    step = find_preset("acceptance").steps[1]

    def chosen(*typed: str) -> dict[str, Any]:
        return merged(sweep_command.make_context("sweep", list(typed)), step, CPU)

    assert chosen()["max_bytes"] == "16M"
    assert chosen()["modes"] == ("back-to-back",)
    assert chosen("-e", "4M", "--epochs", "2") | {"ops": None} == chosen() | {
        "max_bytes": "4M",
        "epochs": 2,
        "ops": None,
    }
    only = chosen("--sizes", "8")
    assert (only["sizes"], only["min_bytes"], only["max_bytes"], only["step_factor"]) == (
        "8",
        None,
        None,
        None,
    )
    stepped = chosen("--step-bytes", "1M")
    assert (stepped["step_factor"], stepped["min_bytes"]) == (None, "1M")
    pair = find_preset("migration").steps[0]
    arms = merged(sweep_command.make_context("sweep", ["--arms", "gloo; gloo hierarchical"]), pair, CPU)
    assert (arms["backends"], arms["base"]) == (None, None)


def test_one_sweep_that_needs_what_is_not_here_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, HEAD + STEP + 'needs = ["cuda"]\n')
    assert run(["plan", "--preset", path, "--nproc-per-node", "2"]) == 2
    assert "step first of the preset takes GPUs, there are none" in capsys.readouterr().err


def test_a_plan_of_several_steps_writes_no_file_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    assert run(["plan", "--preset", "acceptance", "--nproc-per-node", "2", "--out", str(out)]) == 2
    assert "--out writes the plan of one sweep, and preset acceptance has" in capsys.readouterr().err
    assert not out.exists()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_a_file_holds_it_is_a_preset_or_one_line(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Words of a real file in another order and number, other characters among them."""
    words = re.split(
        r"(\s+)", (Path(preset_module.__file__).parent / "presets" / "migration.toml").read_text()
    )
    cut = data.draw(st.integers(0, len(words)))
    more = data.draw(st.lists(st.one_of(st.sampled_from(words), st.text(max_size=8)), max_size=6))
    path = tmp_path_factory.mktemp("fuzz") / "some.toml"
    path.write_text("".join([*words[:cut], *more, *words[cut + data.draw(st.integers(0, 3)) :]]), "utf-8")
    said = ""
    try:
        load_preset(str(path))
    except RequestError as error:
        said = str(error)
    assert said.isprintable(), "one line"


def test_a_mesh_is_as_wide_as_a_host_allows() -> None:
    assert World(16, 8, "cuda", 8).mesh == (2, 8)
    assert World(8, 8, "cuda", 8).mesh == (2, 4)
    assert World(6, 6, "cpu", 6).mesh == (3, 2)
    assert [World(n, n, "cpu", 4).mesh for n in (1, 2, 3)] == [None] * 3
    mesh = next(step for step in find_preset("training").steps if step.name == "mesh")
    assert mesh.options_for(GPUS)["topologies"] == "mesh:dp=2,tp=8"


# The folder of a preset.


def stored(*steps: StoredStep, **more: Any) -> StoredPreset:
    whole = {"ncclbench": "0", "preset": "mine", "decision": None, "command": ["ncclbench"]}
    return StoredPreset(
        **{**whole, "schema": PRESET_SCHEMA, "nranks": 2, "local_ranks": 2, "steps": list(steps), **more}
    )


def one(name: str = "a", *options: str, **more: Any) -> StoredStep:
    return StoredStep(name=name, command=["ncclbench", "env", *options], folder=name, **more)


def changed(folder: Path, **changes: Any) -> None:
    path = folder / "preset.json"
    document = json.loads(path.read_text())
    step = changes.pop("step", {})
    document["steps"][0] |= step
    path.write_text(json.dumps(document | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 9}, "schema 9"),
        ({"steps": []}, "steps"),
        ({"nranks": 0}, "nranks"),
        ({"step": {"name": "../x"}}, "steps[0].name"),
        ({"step": {"folder": "/etc"}}, "steps[0].folder"),
        ({"step": {"folder": "b"}}, "share names or folders"),
        ({"step": {"status": "fine"}}, "status"),
        ({"step": {"exit_code": -1}}, "exit_code"),
    ],
)
def test_a_broken_preset_json_is_one_line(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_preset(tmp_path, stored(one()))
    assert read_preset(tmp_path).steps[0].name == "a"
    changed(tmp_path, **changes)
    with pytest.raises(RequestError, match=r"preset\.json") as refused:
        read_preset(tmp_path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "true"],
        ["ncclbench"],
        ["ncclbench", "report", "x"],
        ["ncclbench", "sweep", "--arm-env=x=/bin/sh"],
        ["ncclbench", "sweep", "--out=/tmp/elsewhere"],
        ["ncclbench", "env", "--nothing=1"],
        ["ncclbench", "env", "-h"],
    ],
)
def test_a_folder_from_elsewhere_runs_no_other_command(command: list[str], tmp_path: Path) -> None:
    write_preset(tmp_path, stored(one()))
    changed(tmp_path, step={"command": command})
    context = sweep_command.make_context("sweep", ["--resume", str(tmp_path)])
    with pytest.raises(RequestError, match="step 'a'"):
        former_steps(context, None)


def test_a_folder_is_resumed_with_as_many_ranks_and_no_other_options(tmp_path: Path) -> None:
    write_preset(tmp_path, stored(one(), local_ranks=1))
    context = sweep_command.make_context("sweep", ["--resume", str(tmp_path)])
    with pytest.raises(RequestError, match="several hosts: resume it under the same launcher"):
        former_steps(context, None)
    context = sweep_command.make_context("sweep", ["--resume", str(tmp_path), "--sizes", "8"])
    with pytest.raises(RequestError, match="leave --sizes away"):
        former_steps(context, None)


def test_a_question_that_nobody_answers_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    write_preset(tmp_path, stored(one(), decision="nonsense"))
    context = sweep_command.make_context("sweep", ["--resume", str(tmp_path)])
    with pytest.raises(RequestError, match=r"preset\.json: decision: .*nonsense"):
        former_steps(context, None)


def test_a_preset_whose_page_does_not_fit_on_the_disk_says_how_to_go_on(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "give the command again" in str(disk_error(tmp_path / "report.html", full))
    write_preset(tmp_path, stored(one()))
    refused = disk_error(tmp_path / "report.html", full)
    assert str(refused).endswith(f"go on with ncclbench sweep --resume {tmp_path}")
    assert refused.run == tmp_path


DONE, BAD_STEP = one(status="done", exit_code=0), one("b", status="bad", exit_code=0)
WRONG = one("b", status="bad", exit_code=1)
GOOD = stepping.Answer(True, False, "it is fit", ["fit: it is fit"], {"ok": True})
UNCLEAR = stepping.Answer(None, False, "nobody knows", [], {"ok": None})
UNFIT = stepping.Answer(False, True, "wrong data", [], {"ok": False})


@pytest.mark.parametrize(
    ("steps", "answer", "more", "code", "ok"),
    [
        ([DONE], None, {}, 0, True),
        ([DONE, one("b", reason="takes GPUs, there are none")], None, {}, 0, True),
        ([DONE, WRONG], None, {}, 1, False),
        ([DONE, BAD_STEP], None, {"exit_zero": True}, 0, False),
        ([DONE, WRONG], None, {"exit_zero": True}, 1, False),
        ([DONE], GOOD, {}, 0, True),
        ([DONE], UNCLEAR, {}, 1, False),
        ([DONE], UNCLEAR, {"unclear": "pass"}, 0, True),
        ([DONE], UNFIT, {"exit_zero": True}, 1, False),
        ([WRONG, one(status="failed", exit_code=3)], GOOD, {"exit_zero": True}, 3, False),
        ([DONE, one("b", status="wrong request", exit_code=2)], None, {}, 3, False),
    ],
)
def test_a_failure_counts_more_than_a_bad_answer(
    steps: list[StoredStep],
    answer: stepping.Answer | None,
    more: dict[str, Any],
    code: int,
    ok: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every step here is over or not to be run, so that nothing is started."""
    monkeypatch.setattr(stepping, "answer_of", lambda whole, folder: answer)
    monkeypatch.setattr(stepping, "_run", lambda work, step, *others: step)
    params = {"as_json": True, "exit_zero": False, "unclear": "fail", **more}
    work = Steps(RunFolder.create(tmp_path / "run"), stored(*steps), params, None)
    assert stepping.run_alone(work) == code
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is ok
    assert document["decision"] == (None if answer is None else answer.document)
    assert [step["name"] for step in document["steps"]] == [step.name for step in steps]
    assert read_preset(tmp_path / "run").steps == steps


def test_resuming_what_is_whole_says_that_nothing_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, params = stored(DONE), {"as_json": False, "exit_zero": False, "unclear": "fail"}
    assert stepping.run_alone(Steps(RunFolder.create(tmp_path / "new"), whole, params, None)) == 0
    assert "nothing is missing" not in capsys.readouterr().out
    params["resume"] = str(tmp_path / "old")
    assert stepping.run_alone(Steps(RunFolder.create(tmp_path / "old"), whole, params, None)) == 0
    assert f"# nothing is missing in {tmp_path / 'old'}: " in capsys.readouterr().out


def test_the_plan_of_a_preset_ends_with_the_command_that_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "--preset", "acceptance"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 of 4 steps planned; all of them are run by ncclbench sweep --preset acceptance"

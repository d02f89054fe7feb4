"""Names of hosts for ranks, as launchers and Slurm write them."""

from __future__ import annotations

import time

import pytest

from ncclbench.errors import RequestError
from ncclbench.flight.hosts import expand, parse_hosts, place_ranks


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu[001-004,7],login1", ["gpu001", "gpu002", "gpu003", "gpu004", "gpu7", "login1"]),
        ("rack[1-2]node[08-10]", [f"rack{r}node{n}" for r in (1, 2) for n in ("08", "09", "10")]),
        ("a[1-2]-ib,b[3]", ["a1-ib", "a2-ib", "b3"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("host.example.org,10.0.0.7", ["host.example.org", "10.0.0.7"]),
        ("n[3-3,1]", ["n3", "n1"]),
        ("[1-2]", ["1", "2"]),
    ],
)
def test_lists_of_slurm(text: str, names: list[str]) -> None:
    assert expand(text) == names
    assert list(parse_hosts(text, 1).values()) == names


def test_ranks_are_placed_host_by_host() -> None:
    hosts = parse_hosts("gpu[01-02]", 4)
    assert hosts == {rank: "gpu01" if rank < 4 else "gpu02" for rank in range(8)}


@pytest.mark.parametrize(
    "text",
    [
        "a slots=2\nb slots=2\n",
        "# machines\n\n  a   slots = 2 max_slots=4  # the old one\r\nb slots=2",
        "a:2\nb:2",
        "a:2,b:2",
        "a slots=8\nb slots=2",
        "a,b",
        "a\nb\n",
    ],
)
def test_hostfiles(text: str) -> None:
    assert parse_hosts(text, 2) == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_hosts_with_fewer_slots_hold_fewer_ranks() -> None:
    assert list(parse_hosts("a slots=1\nb slots=3\nc slots=0\nd", 2).values()) == ["a", "b", "b", "d", "d"]


def test_a_name_on_several_lines_is_one_rank_each() -> None:
    assert list(parse_hosts("a\na\nb\nb\nb\n", 8).values()) == ["a", "a", "b", "b", "b"]
    assert list(parse_hosts("b\na\nb\na\n", 2).values()) == ["b", "a", "b", "a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no host"),
        ("# only a comment\n", "no host"),
        ("a slots=0", "no host in it with any slot"),
        ("gpu[1-", "bracket"),
        ("gpu]1[", "no name|no range"),
        ("gpu[4-1]", "no range"),
        ("gpu[a-b]", "no name|no range"),
        ("gpu[1-2-3]", "no range"),
        ("gpu[]", "no range"),
        ("gpu[1[2]]", "no name|no range|bracket"),
        ("n[1-999999999]", "too long"),
        ("n[1-400][1-400][1-400]", "too long"),
        ("n[1-999999999999999999]m[1-999999999999999999]", "too long"),
        ("a b c", "neither a comment"),
        ("a; rm -rf /", "neither a comment|no name"),
        ("a slots=2,b slots=2", "neither a comment"),
        ("<script>", "no name"),
        ("x" * 300, "no name"),
        ("ä", "no name"),
    ],
)
def test_what_is_no_list_is_refused(text: str, words: str) -> None:
    began = time.perf_counter()
    with pytest.raises(RequestError, match=words) as refused:
        parse_hosts(text, 8)
    assert time.perf_counter() - began < 2
    assert "\n" not in str(refused.value)


def test_more_ranks_than_any_machine_has_are_refused() -> None:
    with pytest.raises(RequestError, match="more than 1,048,576 ranks"):
        parse_hosts("n[1-100000]", 1000)
    with pytest.raises(RequestError, match="at least one rank"):
        parse_hosts("a", 0)


def test_a_long_hostfile_is_read_quickly() -> None:
    text = "\n".join(f"node{number:05d} slots=8 # rack {number // 16}" for number in range(16_384))
    began = time.perf_counter()
    hosts = parse_hosts(text, 8)
    assert len(hosts) == 8 * 16_384
    assert hosts[8 * 16_384 - 1] == "node16383"
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("a slots=3\nb slots=1", "aaab"),
        ("a slots=1\nb slots=1\na slots=2", "abaa"),
        ("a slots=3\nb", "aaab"),
        ("a:1,b:3", "abbb"),
        ("a,b", "aabb"),
        ("a,b,c,d,e", "abcd"),
        ("a\na\nb\na\nb", "aaba"),
    ],
)
def test_ranks_are_placed_without_a_number(text: str, placed: str) -> None:
    assert "".join(place_ranks(text, None, 4)[rank] for rank in range(4)) == placed


@pytest.mark.parametrize("text", ["a slots=3\nb slots=3", "a:1\nb:1", "a slots=4\nb", "a\na\nb", "a,b,c"])
def test_hosts_that_do_not_hold_the_ranks_are_not_guessed(text: str) -> None:
    with pytest.raises(RequestError, match="--ranks-per-host"):
        place_ranks(text, None, 4)


def test_slots_stand_where_the_number_of_ranks_is_not_known() -> None:
    assert "".join(place_ranks("a slots=2\nb", None, None).values()) == "aab"

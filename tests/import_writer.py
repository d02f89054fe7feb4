"""A small printer of nccl-tests' tables, written from its printf formats and not from the reader."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

SIZES = {"int8": 1, "half": 2, "bfloat16": 2, "float": 4, "int32": 4, "double": 8, "uint64": 8, "f8e4m3": 1}
FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
    "hypercube": lambda n: 1.0,
}
PARTS = {"all_gather", "reduce_scatter", "alltoall", "scatter", "gather", "hypercube"}
REDUCING = {"all_reduce", "reduce_scatter", "reduce", "sendrecv"}
ROOTED = {"broadcast", "reduce", "scatter", "gather"}
UNCHECKED_IN_PLACE = {"alltoall", "sendrecv"}


@dataclass
class Shape:
    """Which version prints, and with what options."""

    version: str = "2.13"  # 1.0, 2.0 (up to 2.11), 2.13, 2.17.4
    timestamps: bool = False
    cpu_time: bool = False
    per_iteration: bool = False
    one_half: bool = False
    algorithms: bool = False
    checked: bool = True


@dataclass
class Expected:
    """What a reader must give back: figures as floats of the text that was printed."""

    nbytes: int
    count: int
    dtype: str
    in_place: bool
    time_us: float
    algbw: float
    busbw: float
    wrong: float | None


@dataclass
class Printer:
    """One invocation: ``lines`` of its output and the rows that stand in it."""

    op: str
    nranks: int
    shape: Shape
    rng: random.Random
    dtype: str = "float"
    redop: str = "sum"
    root: int = 0
    lines: list[str] = field(default_factory=list)
    rows: list[Expected] = field(default_factory=list)

    def float_str(self, value: float, width: int) -> str:
        """getFloatStr of 2.17.4 and later."""
        for digits in (2, 1, 0):
            text = f"{value:{width}.{digits}f}"
            if len(text) <= width:
                return text
        return f"{value:{width}.1e}" if width >= 7 else f"{value:{width}.0e}"

    def time_str(self, time_us: float) -> str:
        if self.shape.version == "1.0":
            return f"{time_us / 1e3:7.3f}"
        if self.shape.version == "2.17.4":
            return self.float_str(time_us, 7)
        digits = 0 if time_us >= 10_000 else 1 if time_us >= 100 else 2
        return f"{time_us:7.{digits}f}"

    def bandwidth_str(self, value: float) -> str:
        if self.shape.version == "1.0":
            return f"{value:5.2f}"
        return self.float_str(value, 6) if self.shape.version == "2.17.4" else f"{value:6.2f}"

    def wrong_str(self, in_place: bool) -> str:
        modern = self.shape.version >= "2.13"
        if not self.shape.checked or (modern and in_place and self.op in UNCHECKED_IN_PLACE):
            return "N/A"
        return f"{self.rng.choice([0] * 9 + [17]):g}" if modern else f"{self.rng.choice([0, 5e-7, 1e-6]):.0e}"

    def leading(self, nbytes: int, count: int) -> str:
        redop = self.redop if self.op in REDUCING else "" if self.op == "hypercube" else "none"
        root = self.root if self.op in ROOTED else -1
        if self.shape.version >= "2.13":
            return f"{nbytes:12d}  {count:12d}  {self.dtype:>8}  {redop:>6}  {root:6d}"
        text = f"{nbytes:12d}  {count:12d}  {self.dtype:>6}"
        if self.op in {"all_reduce", "reduce_scatter", "reduce"}:
            text += f"  {redop:>6}"
        if self.op == "alltoall":
            text += f"  {'':6}"
        return text + (f"  {root:6d}" if self.op in ROOTED else "")

    def header(self) -> None:
        old, modern = self.shape.version == "1.0", self.shape.version >= "2.13"
        names = ["bytes", "N", "type"] if old else ["size", "count", "type"]
        if modern or self.op in {"all_reduce", "reduce_scatter", "reduce", "alltoall"}:
            names.append("op" if old else "redop")
        if modern or self.op in ROOTED:
            names.append("root")
        half = ["cputime" if self.shape.cpu_time else "time", "algbw", "busbw"]
        half.append("#wrong" if modern else "res" if old else "error")
        if self.shape.per_iteration:
            half += ["i_min", "i_max", "i_p99", "i_cv%"]
        halves = 1 if self.shape.one_half else 2
        places = "in-place" if self.shape.one_half else "out-of-place                       in-place"
        self.lines.append("#" + " " * 60 + places)
        more = ["timestamp"] if self.shape.timestamps else []
        more += ["algo", "proto", "nchannels"] if self.shape.algorithms else []
        self.lines.append("# " + "  ".join(f"{name:>7}" for name in [*names, *half * halves, *more]))
        if not old:
            self.lines.append(
                "#        (B)    (elements)          (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
            )

    def row(self, base: int) -> None:
        itemsize = SIZES[self.dtype]
        parts = self.nranks if self.op in PARTS else 1
        count = base // itemsize // parts
        nbytes = count * itemsize * parts
        text = self.leading(nbytes, count)
        for in_place in (True,) if self.shape.one_half else (False, True):
            time_us = (self.rng.uniform(5, 60) + nbytes / self.rng.uniform(1e3, 4e5)) if nbytes else 0.25
            algbw = nbytes / time_us / 1e3
            if self.op == "hypercube" or (self.shape.version == "1.0" and self.op in PARTS):
                algbw *= (self.nranks - 1) / self.nranks
                busbw = algbw
            else:
                busbw = algbw * FACTORS[self.op](self.nranks)
            shown = time_us * self.rng.uniform(0.1, 0.5) if self.shape.cpu_time else time_us
            cells = [
                self.time_str(shown),
                self.bandwidth_str(algbw),
                self.bandwidth_str(busbw),
                self.wrong_str(in_place),
            ]
            text += "  " + "  ".join(cells)
            if self.shape.per_iteration:
                text += "".join(f"  {self.float_str(time_us * f, 7)}" for f in (0.9, 1.4, 1.3)) + "     3.21"
            unit = 1e3 if self.shape.version == "1.0" else 1.0
            wrong = None if cells[3] == "N/A" else float(cells[3])
            self.rows.append(
                Expected(
                    nbytes,
                    count,
                    self.dtype,
                    in_place,
                    float(cells[0]) * unit,
                    float(cells[1]),
                    float(cells[2]),
                    wrong,
                )
            )
        if self.shape.timestamps:
            text += "  2026-01-31 12:34:56"
        if self.shape.algorithms:
            text += "  RING  LL128  24"
        self.lines.append(text)

    def whole(self, sizes: list[int], *, devices: bool = True, banner: bool = True) -> str:
        """All of it, with whatever parts are asked for."""
        if banner:
            self.lines.append("# nccl-tests version 2.17.9 nccl-headers=22903 nccl-library=22903")
            self.lines.append(f"# Collective test starting: {self.op}_perf")
        self.lines.append(
            f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) "
            "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0"
        )
        self.lines.append("#")
        if devices:
            self.lines.append("# Using devices")
            for rank in range(self.nranks):
                host = f"host-{rank // 8}"
                self.lines.append(
                    f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device {rank % 8:2d} "
                    f"[0000:{16 + rank % 8:02x}:00] NVIDIA H100 80GB HBM3"
                )
        self.lines.append("#")
        self.header()
        for size in sizes:
            self.row(size)
        mean = math.fsum(row.busbw for row in self.rows) / len(self.rows)
        wrong = sum(1 for row in self.rows if row.wrong) if self.shape.version >= "2.13" else 0
        self.lines.append(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
        self.lines.append(f"# Avg bus bandwidth    : {mean:g} ")
        self.lines.append("#")
        if banner:
            self.lines.append(f"# Collective test concluded: {self.op}_perf")
        return "\n".join(self.lines) + "\n"

"""``make fuzz``: coverage-guided attacks on every entry of PARSERS; what breaks one is written to a file.

Each entry gets a process of its own, FUZZ_SECONDS long; without arguments all of them, else those whose names
hold one of the arguments. What is found belongs into ``tests/parsers_found.py``.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = int(os.environ.get("FUZZ_SECONDS", "20"))
FOUND = Path(os.environ.get("FUZZ_FOUND", "fuzz-found"))
LONGEST_INPUT = 1 << 14
# Of one input. libFuzzer takes the whole process down after it.
PATIENCE_S = 20


def attack(name: str, corpus: Path) -> None:
    """Try inputs on one entry until the time is over or one breaks it; does not return.

    Args:
        corpus: an empty folder, where inputs that reach something new are kept meanwhile.
    """
    import atheris

    with atheris.instrument_imports(include=["ncclbench"], enable_loader_override=False):
        from mutating import damaged
        from parsers import PARSERS
    parser = PARSERS[name]
    for number, seed in enumerate(parser.seeds):
        (corpus / str(number)).write_bytes(seed)

    def one(content: bytes) -> None:
        try:
            parser.refusal(content)
        except BaseException:
            FOUND.mkdir(exist_ok=True)
            digest = hashlib.sha256(content).hexdigest()[:10]
            file = FOUND / f"{name.replace(' ', '-').replace('/', '-')}-{digest}"
            file.write_bytes(content)
            print(f"{name}: broken by {file}", flush=True)
            raise

    def mutated(content: bytes, most: int, seed: int) -> bytes:
        """Half of them as libFuzzer does it, half as our own tests do."""
        if seed % 2:
            return bytes(atheris.Mutate(content, most))
        return damaged(random.Random(seed), content)[:most]

    options = [
        f"-max_total_time={SECONDS}",
        f"-max_len={LONGEST_INPUT}",
        f"-timeout={PATIENCE_S}",
        "-rss_limit_mb=4096",
        "-print_final_stats=1",
        f"-artifact_prefix={corpus}/",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one, custom_mutator=mutated)
    atheris.Fuzz()


def attack_apart(name: str) -> bool:
    """``attack`` in a process of its own; whether the entry held."""
    limit_s = SECONDS + 4 * PATIENCE_S + 60
    # libFuzzer ends its process as it likes: the folder is removed here.
    with tempfile.TemporaryDirectory(prefix="fuzz-corpus-") as corpus:
        words = [sys.executable, __file__, "--entry", name, corpus]
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=limit_s)
        except subprocess.TimeoutExpired:
            print(f"{name}: did not end", flush=True)
            return False
    counts = [line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    if done.returncode:
        print(f"{name}: BROKEN\n{done.stdout[-4000:]}{done.stderr[-3000:]}", flush=True)
    else:
        print(f"{name}: {counts[0] if counts else '?'} inputs, held", flush=True)
    return not done.returncode


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--entry"]:
        attack(arguments[1], Path(arguments[2]))
        return 0
    from parsers import PARSERS

    names = [name for name in PARSERS if not arguments or any(word in name for word in arguments)]
    held = [attack_apart(name) for name in names]
    print(f"{sum(held)} of {len(held)} parsers held" + ("" if all(held) else f"; see {FOUND}/"))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What is recorded of variables and command lines: what changes how collectives run, and no secrets."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from ncclbench.environ import variables

HIDDEN = "(not recorded)"

# All variables that begin so are settings of one library, and there are hundreds.
_PREFIXES = (
    "NCCL_",
    "RCCL_",
    "TORCH_NCCL_",
    "TORCH_DIST",
    "TORCH_GLOO_",
    "TORCH_SHOW_CPP_",
    "TORCH_CPP_LOG_",
    "TORCH_FR_",
    "TORCH_SYMM_",
    "GLOO_",
    "UCX_",
    "UCC_",
    "FI_",
    "NVSHMEM_",
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
)
# Many things begin so: of the others than these only numbers and switches are recorded.
_BROAD_PREFIXES = ("TORCH_", "PYTORCH_", "CUDA_")
_BROAD_NAMES = frozenset(
    (
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_MODULE_LOADING",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
        "CUDA_HOME",
        "CUDA_PATH",
        "CUDA_VERSION",
        "CUDA_CACHE_PATH",
        "CUDA_FORCE_PTX_JIT",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
        "TORCH_LOGS",
        "TORCH_CUDA_ARCH_LIST",
    )
)
_PLAIN_VALUE = re.compile(r"[+-]?[\d.]{1,20}\s?[kmgt]?i?b?|true|false|yes|no|on|off|y|n|", re.IGNORECASE)
# No setting is longer; what is, is a certificate or a document.
_LONGEST_VALUE = 8192
# Of launchers only what is the same for all ranks of a job: who is which rank is known anyway.
_NAMES = frozenset(
    (
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "NVIDIA_VISIBLE_DEVICES",
        "TP_SOCKET_IFNAME",
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_USE_AGENT_STORE",
        "SLURM_JOB_ID",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_NUM_NODES",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_CPU_BIND",
        "SLURM_GPUS_PER_TASK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_SIZE",
        "MPI_LOCALNRANKS",
    )
)

# Of keys, an InfiniBand partition key (NCCL_IB_PKEY, UCX_IB_PKEY) is a number and no secret.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|PWD|CREDENTIAL|AUTH|BEARER|COOKIE|PRIVATE|SIGNATURE|CERT|(?<!_P)KEY"
    r"|LOGIN|WEBHOOK|LICEN[CS]E|SALT|_(?:PASS|PSK|PIN|OTP|DSN|SAS)(?:_|$)"
)
_TELLING_WORDS = (
    r"(?:[\w-]{0,40}(?:token|secret|passw\w*|passphrase|credential|signature)s?|(?:api|access|account|private)[_-]?key"
    r"|pwd|sig|auth(?:orization)?)"
)
_SECRET_VALUE = re.compile(
    r"://[^/\s]*@"  # a URL with a user in it
    r"|\beyJ[\w-]+\.[\w-]+"  # a JSON web token
    r"|-----BEGIN|\b(?:bearer|basic)\s+\S{8}"
    r"|\b(?:hf|ghp|gho|ghu|ghs|ghr|github_pat|sk|pk|rk|pypi|npm|glpat|xox[a-z]|dop_v1|wandb)[_-]\w"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12}"
    r"|\bhooks\.slack\.com/"
    rf"|(?<![a-z]){_TELLING_WORDS}[\"']?\s*[=:]\s*[\"']?[^\s\"',;)]"  # token=x, "password": "x"
    rf"|(?:^|\s)--?{_TELLING_WORDS}\s+[^\s-]",  # --password x
    re.IGNORECASE,
)
# A secret key of AWS: 40 characters of base64, slashes among them, and no path begins so.
_BASE64_KEY = re.compile(r"(?<![\w+/.-])[A-Za-z0-9+][A-Za-z0-9+/]{39}(?![\w+/=.-])")
_OPTION_OF_SECRET = re.compile(rf"--?{_TELLING_WORDS}", re.IGNORECASE)
_GPU_UUID = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
# What stands between blanks, or between what joins settings and paths: a URL keeps its two slashes.
_WORD = re.compile(r"[^\s:,;='\"]+")
# What base64, hexadecimal and most key formats have between separators.
_RUN = re.compile(r"[A-Za-z0-9+]{20,}")
# With separators of base64url inside. File names look alike, but for how often capitals, small letters and
# digits take turns: of random ones at 62 % of all places, of names like Standard_ND96isr_H100_v5 at 26 %.
_LONG_RUN = re.compile(r"[A-Za-z0-9+_-]{32,}")
_MOST_TURNS = 0.30
_TURN = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[a-z0-9])|(?<=[0-9])(?=[A-Za-z])")
_RUN_BITS = 3.0
_LONG_RUN_BITS = 4.0


def recorded_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that matter for communication, by name; what looks like a secret reads "(not recorded)"."""
    everything = variables() if environ is None else environ
    return {
        name: HIDDEN if is_secret(name, everything[name]) else everything[name]
        for name in sorted(everything)
        if name.startswith((*_PREFIXES, *_BROAD_PREFIXES)) or name in _NAMES
    }


def is_secret(name: str, value: str) -> bool:
    """Whether a variable must not be recorded, by its name or by its value. Rather once too often."""
    is_known = name.startswith(_PREFIXES) or name in _BROAD_NAMES
    if name.startswith(_BROAD_PREFIXES) and not is_known and not _PLAIN_VALUE.fullmatch(value):
        return True
    return _SECRET_NAME.search(name.upper()) is not None or looks_secret(value)


def looks_secret(text: str) -> bool:
    """Whether a text looks as if it held a password, a token or a key."""
    if len(text) > _LONGEST_VALUE or _SECRET_VALUE.search(text):
        return True
    if any(_is_random(match, _LONG_RUN_BITS) for match in _BASE64_KEY.findall(text)):
        return True
    return any(_holds_random(word) for word in _WORD.findall(_GPU_UUID.sub("", text)))


def without_secrets(words: Sequence[str]) -> list[str]:
    """A command line of which the arguments that look like secrets read "(not recorded)"."""
    shown: list[str] = []
    for index, word in enumerate(words):
        named, equals, _ = word.partition("=") if word.startswith("-") else ("", "", "")
        if index and _OPTION_OF_SECRET.fullmatch(words[index - 1]) and not word.startswith("-"):
            shown.append(HIDDEN)
        elif looks_secret(word):
            shown.append(f"{named}{equals}{HIDDEN}" if equals and not looks_secret(named) else HIDDEN)
        else:
            shown.append(word)
    return shown


def _holds_random(word: str) -> bool:
    """Whether a word holds what only chance makes; hashes of packages and containers are usual in paths."""
    is_path = "/" in word and not word.startswith("//")
    if any(_is_random(run, _RUN_BITS) and not (is_path and run.islower()) for run in _RUN.findall(word)):
        return True
    return any(_is_random(run, _LONG_RUN_BITS) and _takes_turns(run) for run in _LONG_RUN.findall(word))


def _takes_turns(run: str) -> bool:
    """Capital letters, small ones and digits change more often than names would have it."""
    places = sum(len(piece) - 1 for piece in re.findall(r"[A-Za-z0-9]+", run))
    return not run.islower() and len(_TURN.findall(run)) > _MOST_TURNS * places


def _is_random(run: str, bits: float) -> bool:
    """Letters and digits mixed, and more than ``bits`` of entropy per character."""
    if run.isalpha() or not any(char.isalpha() for char in run):
        return False
    counts = Counter(run).values()
    return -sum(n / len(run) * math.log2(n / len(run)) for n in counts) > bits

"""What is recorded of variables and command lines: an allow-list of names, and no secret values."""

from __future__ import annotations

import random
import string

import pytest

from ncclbench.environment.variables import HIDDEN, looks_secret, recorded_variables, without_secrets


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # A broad prefix that anything may begin with: only known names and plain values.
        ("CUDA_REGISTRY", "nvcr.io/acme"),
        ("TORCH_DB", "hunter2"),
        ("PYTORCH_BUILD_USER", "jroe"),
        ("TORCH_HUB_MIRROR", "mirror.acme.example.com"),
        # Names that speak of a secret.
        ("NCCL_LOGIN", "jroe"),
        ("NCCL_PROXY_PASS", "x"),
        ("UCX_LICENSE", "x"),
        ("NCCL_WEBHOOK", "x"),
        ("NCCL_NET_DSN", "x"),
        # Values that do.
        ("NCCL_X", '{"password": "hunter2"}'),
        ("NCCL_X", "password: hunter2"),
        ("NCCL_X", "--password hunter2"),
        ("NCCL_X", "pwd=hunter2"),
        ("NCCL_X", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("NCCL_X", "https://hooks.slack.com/services/T0/B0/x"),
        ("NCCL_X", "-----BEGIN CERTIFICATE-----"),
        ("NCCL_X", "a" * 10_000),
    ],
)
def test_value_is_left_out(name: str, value: str) -> None:
    assert recorded_variables({name: value}) == {name: HIDDEN}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_LAUNCH_BLOCKING", "1"),
        ("CUDA_SOMETHING_NEW", "512M"),
        ("TORCH_SOMETHING_NEW", "true"),
        ("CUDA_MODULE_LOADING", "LAZY"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"),
        ("PYTORCH_ALLOC_CONF", "expandable_segments:True"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/nccl_trace_rank_"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        ("TORCH_DIST_USE_NCCL2", "0"),
        ("TORCH_CPP_LOG_LEVEL", "INFO"),
        ("NCCL_ALGO", "allreduce:ring,tree;broadcast:ring"),
        ("NCCL_PROTO", "^LL128"),
        ("NCCL_TUNER_PLUGIN", "/opt/aws/libnccl-tuner-ofi.so"),
        ("FI_PROVIDER", "efa"),
        ("OMP_PLACES", "{0:4}:4:4"),
    ],
)
def test_setting_is_recorded(name: str, value: str) -> None:
    assert recorded_variables({name: value}) == {name: value}


@pytest.mark.parametrize(
    "text",
    [
        "/etc/nccl/ndv5-topo-Standard_ND96isr_H100_v5.xml",
        "results/2026-07-09-Blackwell_GB200_nvl72_driver580",
        "2026-07-09-Blackwell_GB200_nvl72_driver580",
        "/opt/spack/linux-ubuntu22.04-zen4/gcc-12.3.0/nccl-2.27.5-1-7rv3nyk6f5kxq2h3lm5ypqzj4hgvt2wb/lib",
        "/usr/lib:/nix/store/7rv3nyk6f5kxq2h3lm5ypqzj4hgvt2wb-nccl-2.27/lib",
        "/var/lib/docker/overlay2/4f2c8b1e9d7a6053c1e8f24b7d903a6e5c8b1f0d2a4e6c8b0d2f4a6c8e0b1d3f/merged",
        "/usr/lib/x86_64-linux-gnu/libnccl-net-Azure_NDv5_H100x8.so",
        "/scratch/Project_LLM70B_Pretrain2026_RunA17/topo.xml",
    ],
)
def test_ordinary_paths_are_no_secrets(text: str) -> None:
    assert recorded_variables({"NCCL_TOPO_FILE": text}) == {"NCCL_TOPO_FILE": text}
    assert without_secrets(["sweep", f"--out={text}"]) == ["sweep", f"--out={text}"]


@pytest.mark.parametrize(
    "text",
    [
        "dGhpc-19pc19hX3NlY3JldF90b2tlbl9mb3JfdGVzdHM",
        "q7Xk2-Vt9LpZ_3mN8wR-yB5cJ6dH1sF_4gT0uQ",
        "/run/keys/Zx8Kq2Vt9LpR3mN8wYbB5cJ6",
        "//user/Zx8Kq2Vt9LpR3mN8wYbB5cJ6",
        "https://files.example.com/4f2c8b1e9d7a6053c1e8f24b7d903a6e",
        "4f2c8b1e9d7a6053c1e8f24b7d903a6e",
        "7rv3nyk6f5kxq2h3lm5ypqzj4hgvt2wb",
    ],
)
def test_what_only_chance_makes_is_a_secret_also_in_a_path(text: str) -> None:
    assert recorded_variables({"NCCL_X": text}) == {"NCCL_X": HIDDEN}
    assert without_secrets(["sweep", "--label", text]) == ["sweep", "--label", HIDDEN]


@pytest.mark.parametrize("alphabet", ["-_", "", "+"])
def test_random_tokens_are_found_whatever_their_letters_happen_to_be(alphabet: str) -> None:
    generator = random.Random(7)
    letters = string.ascii_letters + string.digits + alphabet
    tokens = ["".join(generator.choices(letters, k=length)) for length in (32, 43, 64) for _ in range(300)]
    assert sum(map(looks_secret, tokens)) >= 0.99 * len(tokens)


@pytest.mark.parametrize(
    "name", ["HOME", "USER", "HOSTNAME", "SSH_CLIENT", "AWS_SECRET_ACCESS_KEY", "PATH", "cuda_x"]
)
def test_other_variables_are_never_recorded(name: str) -> None:
    assert recorded_variables({name: "1"}) == {}


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (["sweep", "--label", "token=abc123"], ["sweep", "--label", HIDDEN]),
        (["sweep", "--label=token=abc123"], ["sweep", f"--label={HIDDEN}"]),
        (["sweep", "--password=hunter2"], ["sweep", f"--password={HIDDEN}"]),
        (["sweep", "--token", "hunter2", "-b", "8"], ["sweep", "--token", HIDDEN, "-b", "8"]),
        (["import", "https://me:hunter2@host/log"], ["import", HIDDEN]),
        (
            [
                "sweep",
                "--ops",
                "all_reduce,broadcast",
                "-b",
                "8",
                "--margin",
                "3%,1us",
                "--label",
                "after repair",
            ],
            [
                "sweep",
                "--ops",
                "all_reduce,broadcast",
                "-b",
                "8",
                "--margin",
                "3%,1us",
                "--label",
                "after repair",
            ],
        ),
        (
            ["compare", "results/20261129-155000-hopper", "b:gloo"],
            ["compare", "results/20261129-155000-hopper", "b:gloo"],
        ),
    ],
)
def test_command_line_is_kept_without_secrets(typed: list[str], kept: list[str]) -> None:
    assert without_secrets(typed) == kept


@pytest.mark.parametrize("char", ["a", "a-", "token", "a1B", "--", "/", "=", "eyJ", ":"])
def test_no_value_takes_quadratic_time(char: str) -> None:
    assert looks_secret(char * 3000) in (True, False)

"""What is recorded of variables and command lines: an allow-list of names, and no secret values."""

from __future__ import annotations

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

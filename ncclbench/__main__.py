"""``python -m ncclbench``: the same command line as the ``ncclbench`` script."""

from ncclbench.cli import main

if __name__ == "__main__":
    main()

"""`python -m pipeline load|verify|demo`."""

from __future__ import annotations

from pipeline.cli import main
from pipeline.demo import demo_command

main.add_command(demo_command)

if __name__ == "__main__":
    main()

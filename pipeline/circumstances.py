"""When, where and by which versions a run is made: part of its config.json."""

from __future__ import annotations

import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pyspark


def circumstances() -> dict[str, Any]:
    return {
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": {"machine": platform.machine(), "system": platform.platform()},
        "versions": {
            "git": _git_commit(),
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "confluent_kafka": confluent_kafka.__version__,
            "librdkafka": confluent_kafka.libversion()[0],
        },
    }


def _git_commit() -> str | None:
    """The commit of the checkout that this runs from; None where it is not a checkout."""
    try:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None

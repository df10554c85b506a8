"""`python -m pipeline COMMAND`.

Exit codes: 0 all well; 1 records not acknowledged, or a check failed; 2 the job could not be done; 130 Ctrl-C.
"""

from __future__ import annotations

import click

from pipeline.benchmark.command import list_command, run_command
from pipeline.doctor import doctor_command
from pipeline.lab.command import lab_command
from pipeline.lab.tune_command import tune_command
from pipeline.load.command import load_command
from pipeline.report.command import report_command
from pipeline.streaming.command import stream_command
from pipeline.trials.demo import demo_command
from pipeline.trials.fault_test import fault_test_command
from pipeline.verify.command import verify_command

# Spark and its friends take a second to import: only the functions that need them do.


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Load a Kafka-protocol cluster from Spark, and prove what it kept."""


for command in (
    load_command,
    run_command,
    list_command,
    verify_command,
    demo_command,
    fault_test_command,
    lab_command,
    tune_command,
    stream_command,
    report_command,
    doctor_command,
):
    main.add_command(command)

if __name__ == "__main__":
    main()

"""`python -m pipeline load|verify|demo|fault-test|doctor|report`."""

from __future__ import annotations

from pipeline.cli import main
from pipeline.demo import demo_command
from pipeline.doctor import doctor_command
from pipeline.fault_test import fault_test_command
from pipeline.report.command import report_command

main.add_command(demo_command)
main.add_command(fault_test_command)
main.add_command(doctor_command)
main.add_command(report_command)

if __name__ == "__main__":
    main()

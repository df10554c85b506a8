"""Everything that can go wrong, by name; one area a file.

A fault does one thing to a cluster and sees to its own end: what it broke it mends after some virtual time
(`SimulatedCluster.after`), that and nothing else, or `SimulatedCluster.heal` does. What it does is drawn from the given
`Random` and from nowhere else.
"""

from __future__ import annotations

from tests.simulator.faults import busy, clocks, disks, leaders, membership, network, processes, quotas
from tests.simulator.faults.kind import Fault

FAULTS: dict[str, Fault] = {
    **processes.FAULTS,
    **network.FAULTS,
    **leaders.FAULTS,
    **clocks.FAULTS,
    **disks.FAULTS,
    **membership.FAULTS,
    **quotas.FAULTS,
    **busy.FAULTS,
}

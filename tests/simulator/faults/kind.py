"""What a fault is."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulator.cluster import SimulatedCluster

Fault = Callable[[SimulatedCluster, random.Random], None]

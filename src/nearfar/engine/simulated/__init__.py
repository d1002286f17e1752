"""Workers and server on a virtual clock: clusters that are not there, with gradients that are."""

from nearfar.engine.simulated.cluster import Costs, Death, Pause, SimulatedCluster, Stragglers
from nearfar.engine.simulated.run import SimulatedEngine

__all__ = ["Costs", "Death", "Pause", "SimulatedCluster", "SimulatedEngine", "Stragglers"]

"""Tools in other processes: a pool of workers with sessions, and deadlines that stop what runs.

Tool modules and calls come in, results go out. A worker is a fresh Python process, on this machine or on one of a cluster;
when a call has run out of time it is killed with everything that it started, and replaced.
"""

from callgate import host
from callgate.workers.cluster import RayCluster
from callgate.workers.job import Affinity, WorkerLimits
from callgate.workers.pool import WorkerPool

__all__ = ["Affinity", "RayCluster", "WorkerLimits", "WorkerPool", "host"]

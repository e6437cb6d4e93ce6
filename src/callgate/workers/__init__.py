"""Tools in other processes: a pool of workers with sessions, and deadlines that stop what runs.

Tool modules and calls come in, results go out. A worker is a fresh Python process; when a call has run out of time it is
killed with everything that it started, and replaced.
"""

from callgate.workers.job import Affinity, WorkerLimits
from callgate.workers.pool import WorkerPool

__all__ = ["Affinity", "WorkerLimits", "WorkerPool"]

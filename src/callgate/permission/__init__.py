"""Before a call: may it run, must somebody be asked, or is it refused? Around it: how often, and what is written down.

A definition and a checked call come in, a `Decision` goes out. This package runs no tool and asks nobody itself: asking is
done by whoever was given to the gate as `approve`.
"""

from __future__ import annotations

from callgate.permission.approval import Approval, Approve
from callgate.permission.policy import MODES, Explanation, Mode, Policy
from callgate.permission.rules import Rule
from callgate.permission.sensitive import SENSITIVE

__all__ = ["MODES", "SENSITIVE", "Approval", "Approve", "Explanation", "Mode", "Policy", "Rule"]

"""Before a call: may it run, does it need approval, or is it denied? Around it: how often, and what is written down.

A definition and a checked call come in, a `Decision` goes out. This package runs no tool and asks nobody itself: asking is
done by the callback that the gate was given as `approve`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.lazy_names import lazy_names

if TYPE_CHECKING:
    from callgate.permission.approval import Answered, Approval, Approve
    from callgate.permission.audit import AuditLog
    from callgate.permission.cache import ResultCache
    from callgate.permission.hooks import Hook
    from callgate.permission.policy import Explanation, Policy
    from callgate.permission.rates import Rate, RateLimits, Remaining
    from callgate.permission.rules import MODES, Mode, Rule
    from callgate.permission.sensitive import SENSITIVE

__all__ = [
    "MODES", "SENSITIVE", "Answered", "Approval", "Approve", "AuditLog", "Explanation", "Hook", "Mode", "Policy", "Rate",
    "RateLimits", "Remaining", "ResultCache", "Rule",
]  # fmt: skip

__getattr__ = lazy_names(__name__, {
    "approval": ("Answered", "Approval", "Approve"),
    "audit": ("AuditLog",),
    "cache": ("ResultCache",),
    "hooks": ("Hook",),
    "policy": ("Explanation", "Policy"),
    "rates": ("Rate", "RateLimits", "Remaining"),
    "rules": ("MODES", "Mode", "Rule"),
    "sensitive": ("SENSITIVE",),
})  # fmt: skip

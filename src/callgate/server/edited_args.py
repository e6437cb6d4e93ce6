"""Edited arguments in answers: checked against the tool's schema before an answer counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from callgate.permission import Answered, Approval
from callgate.run.gate import guard_of
from callgate.server.errors import HttpError
from callgate.types import FunctionCall

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["check_answers", "check_edit"]

PROBLEM_CHARS = 1000


def check_edit(service: Service, call: FunctionCall, approval: Approval) -> None:
    """Refuse other arguments that do not fit the tool, and a yes that is not confirmed, before the answer counts.

    Raises:
        HttpError: they do not.
        NotConfirmedError: it is not.
    """
    if isinstance(approval, Answered) and approval.args is not None:
        checked = service.gate.tools.check(replace(call, args=approval.args), author="user")
        if checked.problems:
            raise HttpError(422, "invalid_arguments", checked.problems[0][:PROBLEM_CHARS])
    if call.name in service.gate.tools:
        guard_of(service.gate).require_confirmation(call, approval)


async def check_answers(service: Service, session: str, answers: Mapping[str, Approval]) -> None:
    """Refuse answers to calls of a paused session whose arguments do not fit the tool.

    Raises:
        HttpError: they do not.
    """
    if any(isinstance(approval, Answered) and approval.args is not None for approval in answers.values()):
        calls = {record.call.id: record.call for record in (await service.session_state(session)).reply.approvals}
        for call_id, approval in answers.items():
            if call_id in calls:
                check_edit(service, calls[call_id], approval)

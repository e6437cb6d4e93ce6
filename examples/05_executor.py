"""A loop of your own: one request at a time, and an executor that runs the calls with deadlines."""

import asyncio
import time

from callgate import Conversation, Executor, Gate, ScriptedModel, to_function_response, tool
from callgate.testing import call, text


def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(timeout_s=0.2)
def sleep(seconds: float) -> None:
    """Sleep for some seconds."""
    time.sleep(seconds)


async def main() -> None:
    model = ScriptedModel([[call("sleep", seconds=5), call("double", number=21)], text("It is 42.")])
    gate = Gate(model, tools=[double, sleep])
    executor = Executor([double, sleep])
    talk = Conversation()
    talk.add_user("Double 21, and take your time.")
    while (answer := await gate.step(talk.contents)).calls:
        talk.add_model(answer.content)
        results = await executor.execute_all(answer.calls)
        for result in results:
            print(result.status, result.value or result.error)
        talk.add_responses([to_function_response(c, r) for c, r in zip(answer.calls, results, strict=True)])
    print(answer.text)


asyncio.run(main())

# Output:
# timed_out The call did not finish within 0.2 s. Its code may still be running. Whether it had its effect is not known.
# finished 42
# It is 42.

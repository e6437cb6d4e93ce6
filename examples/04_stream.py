"""Streaming: the events of a run as they happen."""

import asyncio

from callgate import Gate, ScriptedModel
from callgate.events import CallFinished, CallStarted, TextDelta
from callgate.testing import call, text


async def weather(city: str) -> str:
    """Return the weather in a city."""
    return {"Oslo": "snow", "Rome": "sun"}[city]


async def main() -> None:
    model = ScriptedModel([[call("weather", city="Oslo"), call("weather", city="Rome")], text("Snow in Oslo, sun in Rome.")])
    async for event in Gate(model, tools=[weather]).stream("Oslo and Rome?"):
        match event:
            case CallStarted(call=started):
                print("started ", started.args["city"])
            case CallFinished(call=finished, result=result):
                print("finished", finished.args["city"], result.value)
            case TextDelta(text=piece):
                print("text    ", repr(piece))


asyncio.run(main())

# Output:
# started  Oslo
# started  Rome
# finished Oslo snow
# finished Rome sun
# text     'Snow in '
# text     'Oslo, su'
# text     'n in Rom'
# text     'e.'

"""A real model. With GEMINI_API_KEY set, Gemini answers; without a key, a fake Gemini server on this machine does."""

import atexit
import os

from callgate.testing import FakeGemini
from callgate.testing.fake_gemini import call, text

if not (os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY")):
    fake = FakeGemini.in_thread([call("get_weather", city="Oslo"), text("It is snowing in Oslo, at -3 degrees.")])
    os.environ |= {"GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": fake.__enter__().base_url}
    atexit.register(fake.__exit__, None, None, None)

# The rest is the program of the README.
from callgate import Gate


def get_weather(city: str) -> dict:
    """Get the current weather in a city."""
    return {"city": city, "celsius": -3, "sky": "snow"}


with Gate("gemini-3.8-flash", tools=[get_weather]) as gate:
    reply = gate.run_sync("What is the weather in Oslo?")

print(reply.text)
for record in reply.calls:
    print(record.call.name, dict(record.call.args), "->", record.state)

# Output:
# It is snowing in Oslo, at -3 degrees.
# get_weather {'city': 'Oslo'} -> finished

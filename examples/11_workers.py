"""Tools in Python worker processes, as in gemini_ex and snakepit: the whole flow step by step."""

import asyncio
import json

from callgate import Conversation, Gate, ScriptedModel, WorkerPool, convert, to_function_response, tool
from callgate.testing import call, text


# 1. A function in a Python worker. This file is what the workers import.
@tool(read_only=True)
def get_current_weather(location: str, unit: str = "celsius") -> dict[str, str]:
    """Get the current weather for a given location."""
    return {"temperature": "22", "unit": unit, "forecast": "windy", "location": location}


async def main() -> None:
    session, prompt = "user_123", "What's the weather like in Boston?"

    # 2. The workers register what they have. On a cluster the same line says cluster="ray://head:10001".
    async with WorkerPool([__file__], size=2, affinity="own") as pool:
        definitions = await pool.list_tools(session)
        print("registered:", ", ".join(definition.name for definition in definitions))

        # 3. Their definitions become Gemini's declarations; so does a tool list in snakepit's own shape.
        spec = convert(definitions[0], target="snakepit", kind="tool").value
        declaration = convert(spec, source="snakepit", target="gemini", kind="tool").value
        print("declared:", json.dumps(declaration["parametersJsonSchema"]["properties"]))

        # 4. The model is asked, with the tools declared.
        model = ScriptedModel([call("get_current_weather", location="Boston, MA"), text("22°C and windy in Boston.")])
        gate = Gate(model, tools=[pool])
        talk = Conversation()
        talk.add_user(prompt)
        answer = await gate.step(talk.contents)

        # 5. It answers with a function call.
        wanted = answer.calls[0]
        print("called:", wanted.name, json.dumps(wanted.args))

        # 6. The call runs in the worker of this session, and is killed there if it does not end in time.
        result = await pool.execute(session, wanted.name, wanted.args, timeout_s=10)
        print("result:", result.status, json.dumps(result.value))

        # 7. The result goes back, and the model puts it into words.
        talk.add_model(answer.content)
        talk.add_responses([to_function_response(wanted, result)])
        print("answer:", (await gate.step(talk.contents)).text)


if __name__ == "__main__":  # Workers import this file too.
    asyncio.run(main())

# Output:
# registered: get_current_weather
# declared: {"location": {"type": "string"}, "unit": {"type": "string", "description": "(default \"celsius\")"}}
# called: get_current_weather {"location": "Boston, MA"}
# result: finished {"temperature": "22", "unit": "celsius", "forecast": "windy", "location": "Boston, MA"}
# answer: 22°C and windy in Boston.

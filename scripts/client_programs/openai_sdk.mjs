// The openai SDK for Node.js, by chat completions and by Responses.
import OpenAI from "openai";
import { all, BASE, first, MODEL, run, TOKEN, UNKNOWN, WEATHER, weather } from "./report.mjs";

const client = new OpenAI({ apiKey: TOKEN, baseURL: `${BASE}/v1`, maxRetries: 0 });
const user = (content) => [{ role: "user", content }];

async function* chatPieces(stream) {
  for await (const chunk of stream) yield chunk.choices[0]?.delta.content;
}

async function* responsePieces(stream) {
  for await (const event of stream) if (event.type === "response.output_text.delta") yield event.delta;
}

const chat = {
  text: async (prompt) =>
    (await client.chat.completions.create({ model: MODEL, messages: user(prompt) })).choices[0].message.content,
  stream: async (prompt) =>
    all(chatPieces(await client.chat.completions.create({ model: MODEL, messages: user(prompt), stream: true }))),
  its: async (prompt) => {
    const fn = { name: "weather", description: "Tells it.", parameters: WEATHER, function: weather, parse: JSON.parse };
    const runner = client.chat.completions.runTools({
      model: MODEL, messages: user(prompt), tools: [{ type: "function", function: fn }],
    });
    return runner.finalContent();
  },
  error: (prompt) => client.chat.completions.create({ model: UNKNOWN, messages: user(prompt) }),
  abort: async (prompt) => {
    const stream = await client.chat.completions.create({ model: MODEL, messages: user(prompt), stream: true });
    return first(chatPieces(stream), () => stream.controller.abort());
  },
};
const responses = {
  text: async (prompt) => (await client.responses.create({ model: MODEL, input: prompt })).output_text,
  stream: async (prompt) => all(responsePieces(await client.responses.create({ model: MODEL, input: prompt, stream: true }))),
  its: async (prompt) => {
    const tools = [{ type: "function", name: "weather", parameters: WEATHER, strict: false }];
    let said = await client.responses.create({ model: MODEL, input: prompt, tools });
    for (;;) {
      const calls = said.output.filter((item) => item.type === "function_call");
      if (!calls.length) return said.output_text;
      const input = calls.map((call) => ({
        type: "function_call_output", call_id: call.call_id, output: weather(JSON.parse(call.arguments)),
      }));
      said = await client.responses.create({ model: MODEL, input, tools, previous_response_id: said.id });
    }
  },
  error: (prompt) => client.responses.create({ model: UNKNOWN, input: prompt }),
  abort: async (prompt) => {
    const stream = await client.responses.create({ model: MODEL, input: prompt, stream: true });
    return first(responsePieces(stream), () => stream.controller.abort());
  },
};
for (const way of [chat, responses]) Object.assign(way, { ours: way.text, parallel: way.its });
await run({ "chat completions": chat, Responses: responses });

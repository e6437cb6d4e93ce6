// The anthropic SDK for Node.js.
import Anthropic from "@anthropic-ai/sdk";
import { all, BASE, first, MODEL, run, TOKEN, UNKNOWN, WEATHER, weather } from "./report.mjs";

const client = new Anthropic({ apiKey: TOKEN, baseURL: BASE, maxRetries: 0 });
const given = (messages, others) => ({
  model: MODEL, max_tokens: 1000, messages: typeof messages === "string" ? [{ role: "user", content: messages }] : messages, ...others,
});

async function* pieces(stream) {
  for await (const event of stream) if (event.delta?.type === "text_delta") yield event.delta.text;
}

const messages = {
  text: async (prompt) => (await client.messages.create(given(prompt))).content.at(-1).text,
  stream: async (prompt) => all(pieces(client.messages.stream(given(prompt)))),
  its: async (prompt) => {
    const tools = [{ name: "weather", description: "Tells it.", input_schema: WEATHER }];
    const history = [{ role: "user", content: prompt }];
    for (;;) {
      const said = await client.messages.create(given(history, { tools }));
      const calls = said.content.filter((block) => block.type === "tool_use");
      if (!calls.length) return said.content.at(-1).text;
      const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: weather(call.input) }));
      history.push({ role: "assistant", content: said.content }, { role: "user", content: results });
    }
  },
  error: (prompt) => client.messages.create(given(prompt, { model: UNKNOWN })),
  abort: async (prompt) => {
    const stream = client.messages.stream(given(prompt));
    return first(pieces(stream), () => stream.abort());
  },
};
await run({ Messages: { ...messages, ours: messages.text, parallel: messages.its } });

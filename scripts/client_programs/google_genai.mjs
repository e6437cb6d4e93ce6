// The @google/genai SDK for Node.js, by generateContent and by Interactions.
import { GoogleGenAI } from "@google/genai";
import { all, BASE, first, MODEL, run, TOKEN, UNKNOWN, WEATHER, weather } from "./report.mjs";

const client = new GoogleGenAI({ apiKey: TOKEN, httpOptions: { baseUrl: BASE } });

async function* pieces(stream) {
  for await (const chunk of stream) yield chunk.text;
}

async function* steps(stream) {
  for await (const event of stream) if (event.event_type === "step.delta" && event.delta.type === "text") yield event.delta.text;
}

const generate = {
  text: async (contents) => (await client.models.generateContent({ model: MODEL, contents })).text,
  stream: async (contents) => all(pieces(await client.models.generateContentStream({ model: MODEL, contents }))),
  its: async (prompt) => {
    const declared = { name: "weather", description: "Tells it.", parametersJsonSchema: WEATHER };
    const contents = [{ role: "user", parts: [{ text: prompt }] }];
    for (;;) {
      const config = { tools: [{ functionDeclarations: [declared] }] };
      const said = await client.models.generateContent({ model: MODEL, contents, config });
      if (!said.functionCalls?.length) return said.text;
      const parts = said.functionCalls.map((call) => ({
        functionResponse: { id: call.id, name: call.name, response: { result: weather(call.args) } },
      }));
      contents.push(said.candidates[0].content, { role: "user", parts });
    }
  },
  error: (contents) => client.models.generateContent({ model: UNKNOWN, contents }),
  abort: async (contents) => {
    const stop = new AbortController();
    const config = { abortSignal: stop.signal };
    const stream = await client.models.generateContentStream({ model: MODEL, contents, config });
    return first(pieces(stream), () => stop.abort());
  },
};
const textOf = (said) =>
  said.steps.filter((step) => step.type === "model_output").flatMap((step) => step.content).map((part) => part.text ?? "").join("");
const interactions = {
  text: async (input) => textOf(await client.interactions.create({ model: MODEL, input })),
  stream: async (input) => all(steps(await client.interactions.create({ model: MODEL, input, stream: true }))),
  its: async (prompt) => {
    const tools = [{ type: "function", name: "weather", description: "Tells it.", parameters: WEATHER }];
    let said = await client.interactions.create({ model: MODEL, input: prompt, tools });
    for (;;) {
      const calls = said.steps.filter((step) => step.type === "function_call");
      if (!calls.length) return textOf(said);
      const input = calls.map((call) => ({
        type: "function_result", call_id: call.id, name: call.name, result: weather(call.arguments),
      }));
      said = await client.interactions.create({ model: MODEL, input, tools, previous_interaction_id: said.id });
    }
  },
  error: (input) => client.interactions.create({ model: UNKNOWN, input }),
  abort: async (input) => {
    const stop = new AbortController();
    const stream = await client.interactions.create({ model: MODEL, input, stream: true }, { signal: stop.signal });
    return first(steps(stream), () => stop.abort());
  },
};
for (const way of [generate, interactions]) Object.assign(way, { ours: way.text, parallel: way.its });
await run({ generateContent: generate, Interactions: interactions });

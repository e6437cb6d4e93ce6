// The AI SDK, with each of its providers whose API the service speaks.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { all, BASE, first, MODEL, run, TOKEN, UNKNOWN, weather } from "./report.mjs";

const tools = {
  weather: tool({ description: "Tells it.", inputSchema: z.object({ city: z.string() }), execute: async (given) => weather(given) }),
};
const steps = (isStepCount ?? stepCountIs)(5);

function way(model) {
  const text = async (prompt) => (await generateText({ model: model(MODEL), prompt, maxRetries: 0 })).text;
  const its = async (prompt) => (await generateText({ model: model(MODEL), prompt, tools, stopWhen: steps, maxRetries: 0 })).text;
  return {
    text, ours: text, its, parallel: its,
    stream: (prompt) => all(streamText({ model: model(MODEL), prompt, maxRetries: 0 }).textStream),
    error: (prompt) => generateText({ model: model(UNKNOWN), prompt, maxRetries: 0 }),
    abort: async (prompt) => {
      const stop = new AbortController();
      const result = streamText({ model: model(MODEL), prompt, abortSignal: stop.signal, maxRetries: 0 });
      return first(result.textStream, () => stop.abort());
    },
  };
}

const openai = createOpenAI({ apiKey: TOKEN, baseURL: `${BASE}/v1` });
await run({
  "`@ai-sdk/openai` (Responses)": way((name) => openai(name)),
  "`@ai-sdk/openai` `.chat()`": way((name) => openai.chat(name)),
  "`@ai-sdk/openai-compatible`": way(createOpenAICompatible({ name: "callgate", apiKey: TOKEN, baseURL: `${BASE}/v1` })),
  "`@ai-sdk/anthropic`": way(createAnthropic({ apiKey: TOKEN, baseURL: `${BASE}/v1` })),
  "`@ai-sdk/google`": way(createGoogleGenerativeAI({ apiKey: TOKEN, baseURL: `${BASE}/v1beta` })),
});

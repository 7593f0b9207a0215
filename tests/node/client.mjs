// What @ai-sdk/openai-compatible makes of a server, as one line of JSON.
//
//     node client.mjs URL TOOL_SCHEMA
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const [url, schema] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "streamglm",
  baseURL: `${url}/v1`,
  apiKey: "k1",
  includeUsage: true,
});
const model = provider("tiny");
const tools = {
  add: tool({
    description: "sum",
    inputSchema: jsonSchema(JSON.parse(schema)),
    execute: ({ a, b }) => String(a + b),
  }),
};

const whole = await generateText({ model, prompt: "hi", maxRetries: 0 });
const stream = streamText({ model, prompt: "hi", maxRetries: 0 });
const kinds = new Set();
for await (const part of stream.fullStream) kinds.add(part.type);

// two steps: the model calls, the result goes back, and the model answers
const steps = { model, tools, prompt: "4+9?", maxRetries: 0, stopWhen: stepCountIs(2) };
const called = await generateText(steps);
const streamed = streamText(steps);
await streamed.consumeStream();

const told = async (reply) => ({
  text: await reply.text,
  calls: (await reply.steps).flatMap((step) =>
    step.toolCalls.map((call) => [call.toolName, call.input]),
  ),
  results: (await reply.steps).flatMap((step) => step.toolResults.map((one) => one.output)),
  finish: (await reply.steps).map((step) => step.finishReason),
});
console.log(
  JSON.stringify({
    whole: whole.text,
    reasoning: whole.reasoningText,
    usage: whole.usage,
    streamed: await stream.text,
    streamedReasoning: await stream.reasoningText,
    streamedUsage: await stream.usage,
    kinds: [...kinds],
    steps: [await told(called), await told(streamed)],
  }),
);

// A reply as it grows: chunks of a streamed chat in, one plain object out. Knows no page.

export function blank() {
  return { reasoning: "", content: "", calls: [], finish: null, usage: null, figures: null, error: null };
}

/** `reply` with one chunk more. A chunk has text, parts of tool calls, an end, figures or an error. */
export function take(reply, chunk) {
  if (chunk.error) return { ...reply, error: chunk.error.message };
  const grown = { ...reply };
  if (chunk.usage) grown.usage = chunk.usage;
  if (chunk.streamglm) grown.figures = chunk.streamglm;
  for (const choice of chunk.choices ?? []) {
    const delta = choice.delta ?? {};
    grown.reasoning += delta.reasoning_content ?? "";
    grown.content += delta.content ?? "";
    if (delta.tool_calls) grown.calls = delta.tool_calls.reduce(withPart, grown.calls);
    if (choice.finish_reason) grown.finish = choice.finish_reason;
  }
  return grown;
}

function withPart(calls, part) {
  const at = part.index ?? calls.length;
  const before = calls[at] ?? { id: "", name: "", arguments: "" };
  const call = {
    id: part.id || before.id,
    name: part.function?.name || before.name,
    arguments: before.arguments + (part.function?.arguments ?? ""),
  };
  return Object.assign([...calls], { [at]: call });
}

/** The reply as the assistant's message of the next request. */
export function message(reply) {
  const said = { role: "assistant", content: reply.content };
  if (reply.reasoning) said.reasoning_content = reply.reasoning;
  if (reply.calls.length) {
    said.tool_calls = reply.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  }
  return said;
}

const ENDS = {
  length: "cut at its length",
  tool_calls: "ends in a call",
  stopped: "stopped",
};

/** The line below a reply. */
export function facts(reply) {
  const found = [];
  if (ENDS[reply.finish]) found.push(ENDS[reply.finish]);
  if (reply.usage) {
    found.push(`${reply.usage.completion_tokens.toLocaleString("en")} tokens`);
    const seconds = reply.figures?.decode_seconds;
    if (seconds > 0) found.push(`${(reply.usage.completion_tokens / seconds).toFixed(0)} a second`);
    const cached = reply.usage.prompt_tokens_details?.cached_tokens ?? 0;
    if (cached) found.push(`${cached.toLocaleString("en")} of ${reply.usage.prompt_tokens.toLocaleString("en")} prompt tokens cached`);
  }
  if (reply.figures) found.push(`seed ${reply.figures.seed}`, `hash ${reply.figures.token_sha.slice(0, 12)}`);
  return found.join(" · ");
}

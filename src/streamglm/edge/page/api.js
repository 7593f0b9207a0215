// The server's routes, with the key of this tab. Knows no page; `onKey` is asked for a key.

import { Events } from "./events.js";

const PLACE = "streamglm.key";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Api {
  /** `onKey(wrong)` resolves to a key that a person gave; `wrong` says that one was refused. */
  constructor(store, onKey) {
    this.store = store;
    this.onKey = onKey;
    this.asking = null;
  }

  async get(path) {
    return (await this.#call(path, {})).json();
  }

  async remove(path) {
    await this.#call(path, { method: "DELETE" });
  }

  /** The objects of a streamed reply, as they come. */
  async *stream(path, body, signal) {
    const answer = await this.#call(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    const events = new Events();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const found = events.feed(value).filter((data) => data !== "[DONE]");
      if (found.length) yield found.map((data) => JSON.parse(data));
    }
  }

  async #call(path, options) {
    for (;;) {
      const key = this.store.getItem(PLACE);
      const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
      const answer = await fetch(path, { ...options, headers });
      if (answer.ok) return answer;
      const said = await problem(answer);
      if (answer.status !== 401) throw new ApiError(answer.status, said);
      if (key === this.store.getItem(PLACE)) await this.#ask(key !== null);
    }
  }

  /** One question at a time, however many requests were refused. */
  async #ask(wrong) {
    this.asking ??= this.onKey(wrong).then((key) => {
      this.store.setItem(PLACE, key);
      this.asking = null;
    });
    await this.asking;
  }
}

async function problem(answer) {
  try {
    const { error } = await answer.json();
    const after = answer.headers.get("retry-after");
    return after ? `${error.message} Try again in ${after} s.` : error.message;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}

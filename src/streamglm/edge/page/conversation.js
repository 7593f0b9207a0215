// The turns of one chat, kept in this tab. Knows no page and no network.
//
// A turn is {text, reply}: what was asked, and the reply to it or null while there is none.

import { message } from "./reply.js";

const PLACE = "streamglm.turns";

export class Conversation {
  constructor(store) {
    this.store = store;
    this.turns = restored(store);
  }

  /** A new question; its place. */
  ask(text) {
    this.turns.push({ text, reply: null });
    return this.turns.length - 1;
  }

  /** The question at `place` is another one: its reply and all that followed are gone. */
  edit(place, text) {
    this.turns.splice(place, Infinity, { text, reply: null });
  }

  /** The reply at `place` is wanted again: it and all that followed are gone. */
  again(place) {
    this.edit(place, this.turns[place].text);
  }

  /** `turn` has its reply, if it is still one of the chat. */
  answered(turn, reply) {
    if (!this.turns.includes(turn)) return;
    turn.reply = reply;
    this.#save();
  }

  clear() {
    this.turns = [];
    this.#save();
  }

  /** The messages of a request for the reply at `place`. */
  messages(place) {
    const before = this.turns.slice(0, place).flatMap((turn) => [
      { role: "user", content: turn.text },
      ...(turn.reply && !turn.reply.error ? [message(turn.reply)] : []),
    ]);
    return [...before, { role: "user", content: this.turns[place].text }];
  }

  #save() {
    try {
      this.store.setItem(PLACE, JSON.stringify(this.turns.filter((turn) => turn.reply)));
    } catch {
      // a full store loses the copy for a reload, and nothing else
    }
  }
}

function restored(store) {
  try {
    const turns = JSON.parse(store.getItem(PLACE) ?? "[]");
    return turns.filter((turn) => typeof turn.text === "string" && turn.reply?.calls);
  } catch {
    return [];
  }
}

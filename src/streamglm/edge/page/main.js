// Where the parts meet: the form, the keys, the reply that is being written.

import { Api } from "./api.js";
import { Conversation } from "./conversation.js";
import { blank, take } from "./reply.js";
import { Side } from "./side.js";
import { Turns } from "./turns.js";

const find = (id) => document.getElementById(id);
const api = new Api(sessionStorage, askKey);
const conversation = new Conversation(sessionStorage);
const turns = new Turns(find("turns"), { edit: (place, text) => edit(place, text), again: (place) => again(place) });

let running = null; // {stop(), place}

function draw() {
  turns.draw(conversation.turns, running?.place ?? -1);
  find("empty").hidden = conversation.turns.length > 0;
  find("turns").hidden = conversation.turns.length === 0;
  find("send").textContent = running ? "Stop" : "Send";
  find("send").classList.toggle("stop", Boolean(running));
}

function say(text) {
  find("status").textContent = text;
}

function options() {
  const found = {};
  for (const [id, name] of [["max-tokens", "max_tokens"], ["temperature", "temperature"], ["seed", "seed"]]) {
    if (find(id).value !== "") found[name] = Number(find(id).value);
  }
  if (!find("thinking").checked) found.chat_template_kwargs = { enable_thinking: false };
  return found;
}

async function answer(place) {
  const leaving = new AbortController();
  const turn = conversation.turns[place];
  const mine = { place, stop: () => leaving.abort() };
  let reply = blank();
  running = mine;
  draw();
  find("turns").parentElement.scrollTop = find("turns").parentElement.scrollHeight;
  say("The reply begins.");
  const frame = painter(() => running === mine && turns.update(place, reply, true));
  try {
    const body = { messages: conversation.messages(place), stream: true, stream_options: { include_usage: true }, ...options() };
    for await (const chunks of api.stream("v1/chat/completions", body, leaving.signal)) {
      reply = chunks.reduce(take, reply);
      frame();
    }
    if (!reply.finish && !reply.error) reply = { ...reply, error: "The connection ended before the reply did." };
  } catch (error) {
    if (leaving.signal.aborted) reply = { ...reply, finish: "stopped" };
    else reply = { ...reply, error: error instanceof TypeError ? "The server does not answer." : error.message };
  }
  conversation.answered(turn, reply);
  if (running !== mine) return;
  running = null;
  draw();
  say(reply.error ?? (reply.content ? `Reply: ${reply.content.slice(0, 400)}` : "The reply is complete."));
}

/** Calls `paint` at most once a frame, however often it is asked to. */
function painter(paint) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      paint();
    });
  };
}

function edit(place, text) {
  conversation.edit(place, text);
  answer(place);
  find("ask").focus();
}

function again(place) {
  conversation.again(place);
  answer(place);
  find("ask").focus();
}

function askKey(wrong) {
  const dialog = find("key-dialog");
  const line = find("key-line");
  line.classList.toggle("wrong", wrong);
  if (wrong) line.textContent = "That key is not valid here. It stays in this tab only.";
  find("key").value = "";
  return new Promise((done) => {
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    find("key-form").onsubmit = () => done(find("key").value.trim());
    dialog.showModal();
    find("key").focus();
  });
}

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return running.stop();
  const text = find("ask").value.trim();
  if (!text) return find("ask").focus();
  find("ask").value = "";
  answer(conversation.ask(text));
});

find("ask").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) find("composer").requestSubmit();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) running.stop();
});

find("new").addEventListener("click", () => {
  running?.stop();
  running = null;
  conversation.clear();
  draw();
  find("ask").focus();
});

find("show-side").addEventListener("click", () => {
  const shown = document.body.classList.toggle("side");
  find("show-side").setAttribute("aria-expanded", String(shown));
  find("show-side").textContent = shown ? "Chat" : "Server";
});

draw();
api.get("v1/models").then(
  ({ data: [model] }) => {
    find("model").textContent = `${model.id} · window ${model.context_length.toLocaleString("en")} tokens`;
    document.title = `${model.id} · streamglm`;
  },
  (error) => (find("model").textContent = error.message),
);
new Side(api, document).run();
find("ask").focus();

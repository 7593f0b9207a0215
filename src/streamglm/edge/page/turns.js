// The conversation on the page. Knows what a turn looks like; what its buttons do is handed in.

import { facts } from "./reply.js";
import { element, show } from "./text.js";

export class Turns {
  /** `does`: {edit(place, text), again(place)}. */
  constructor(list, does) {
    this.list = list;
    this.does = does;
  }

  /** Everything anew. `live` is the place whose reply is being written, or -1. */
  draw(turns, live) {
    this.list.replaceChildren(
      ...turns.flatMap((turn, place) => [this.#question(turn, place, live), replyItem(turn, place === live)]),
    );
    if (live < 0) turns.forEach((turn, place) => this.#foot(place));
    turns.forEach((turn, place) => turn.reply && this.update(place, turn.reply, place === live));
  }

  /** The reply at `place` has grown. */
  update(place, reply, live) {
    const item = this.list.children[2 * place + 1];
    const scroller = this.list.parentElement;
    const low = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
    item.classList.toggle("live", live);
    fillReasoning(item.querySelector(".reasoning"), reply, live);
    show(item.querySelector(".words"), reply.content);
    fillCalls(item.querySelector(".calls"), reply.calls);
    item.querySelector(".wait").hidden = !live || Boolean(reply.reasoning || reply.content || reply.calls.length);
    item.querySelector(".fault").textContent = reply.error ?? "";
    item.querySelector(".facts").textContent = live ? "" : facts(reply);
    if (low) scroller.scrollTop = scroller.scrollHeight;
  }

  #question(turn, place, live) {
    const item = element("li", "", "turn user");
    item.append(element("p", "You", "who"), element("div", turn.text, "words"));
    if (live < 0) {
      const foot = element("div", "", "foot");
      foot.append(button("Edit", `Edit message ${place + 1}`, () => this.#editor(item, turn, place)));
      item.append(foot);
    }
    return item;
  }

  #foot(place) {
    const foot = this.list.children[2 * place + 1].querySelector(".foot");
    foot.prepend(button("Regenerate", `Regenerate reply ${place + 1}`, () => this.does.again(place)));
  }

  #editor(item, turn, place) {
    const area = element("textarea");
    area.value = turn.text;
    area.setAttribute("aria-label", `Message ${place + 1}`);
    const before = [...item.children];
    const leave = () => {
      item.replaceChildren(...before);
      item.querySelector("button").focus();
    };
    const send = () => area.value.trim() && this.does.edit(place, area.value.trim());
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    const row = element("div", "", "row");
    const go = element("button", "Send");
    go.type = "button";
    go.addEventListener("click", send);
    row.append(go, button("Cancel", "Cancel the edit", leave));
    item.replaceChildren(before[0], area, row);
    area.focus();
  }
}

function replyItem(turn, live) {
  const item = element("li", "", "turn assistant");
  const reasoning = element("details", "", "reasoning");
  reasoning.append(element("summary", "Thinking"), element("div", "", "thought"));
  reasoning.hidden = true;
  const wait = element("p", "Waiting for the first token …", "wait");
  wait.hidden = !live;
  const foot = element("div", "", "foot");
  foot.append(element("span", "", "facts"));
  item.append(
    element("p", "Reply", "who"),
    wait,
    reasoning,
    element("div", "", "words"),
    element("div", "", "calls"),
    element("p", "", "fault"),
    foot,
  );
  return item;
}

function fillReasoning(node, reply, live) {
  node.hidden = !reply.reasoning;
  const thinks = live && !reply.content && !reply.calls.length;
  node.querySelector("summary").textContent = thinks ? "Thinking …" : "Thinking";
  const thought = node.querySelector(".thought");
  if (thought.textContent !== reply.reasoning) thought.textContent = reply.reasoning;
}

function fillCalls(node, calls) {
  while (node.children.length < calls.length) {
    const call = element("div", "", "call");
    call.append(element("span", "", "name"), element("pre"));
    node.append(call);
  }
  calls.forEach((call, place) => {
    node.children[place].querySelector(".name").textContent = call.name;
    node.children[place].querySelector("pre").textContent = pretty(call.arguments);
  });
}

/** JSON with an indent once it is whole; until then as it comes. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function button(text, label, act) {
  const made = element("button", text, "text");
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

// The server beside the chat: figures, map, learned conversations. Asks once a second while it is seen.

import { ApiError } from "./api.js";
import { PageMap } from "./map.js";
import { colour, legend, owned, Rate, sentence } from "./pool.js";
import { element } from "./text.js";

const EACH = 1000; // milliseconds
const CELLS = 2048;
const LEARNED_EACH = 10; // of those

export class Side {
  constructor(api, root) {
    this.api = api;
    this.find = (id) => root.getElementById(id);
    this.rate = new Rate();
    this.maps = [];
    this.turns = 0;
    this.learns = true;
    this.find("learned-list").addEventListener("click", (event) => this.#forget(event));
  }

  async run() {
    for (;;) {
      if (!document.hidden) await this.#once();
      await new Promise((done) => setTimeout(done, EACH));
    }
  }

  async #once() {
    try {
      this.#show(await this.api.get(`v1/pool?cells=${CELLS}`), performance.now() / 1000);
      if (this.learns && this.turns++ % LEARNED_EACH === 0) await this.#learned().catch(() => {});
    } catch (error) {
      this.find("pool-line").textContent =
        error instanceof ApiError ? error.message : "The server does not answer.";
    }
  }

  #show(pool, seconds) {
    const { now } = pool;
    const rate = this.rate.add(now.generated_tokens, seconds);
    this.find("rate").textContent = rate === null ? "–" : rate.toFixed(0);
    this.find("running").textContent = `${now.running} of ${now.lanes}`;
    const waiting = Object.entries(now.waiting).filter(([, count]) => count);
    this.find("waiting").textContent = waiting.reduce((sum, [, count]) => sum + count, 0);
    this.find("waiting").title = waiting.map(([reason, count]) => `${count} for ${reason}`).join(", ");
    this.find("trend").firstElementChild.setAttribute("d", this.rate.path(240, 36));
    this.find("pool-line").textContent = sentence(pool);
    this.#maps(pool);
    this.#legend(pool);
  }

  #maps(pool) {
    const { classes, pages_per_cell: each } = pool.map;
    while (this.maps.length < classes.length) {
      const made = new PageMap((text) => (this.find("cell").textContent = text));
      this.maps.push(made);
      this.find("maps").append(made.node);
    }
    classes.forEach((own, place) => {
      const title = classes.length > 1 ? `Rank ${place}` : "";
      const part = { ...pool, pages: [pool.pages[place]] };
      const { node } = this.maps[place];
      node.classList.toggle("owned", classes.length > 1);
      node.style.setProperty("--owner", `var(${owned(place)})`);
      this.maps[place].show(title, `${title} ${sentence(part)}`.trim(), own, each, pool.lanes);
    });
  }

  #legend(pool) {
    this.find("legend").replaceChildren(
      ...legend(pool).map((line) => {
        const item = element("li");
        const swatch = element("span", "", "swatch");
        swatch.style.setProperty("--swatch", `var(${colour(line.holder)})`);
        item.append(swatch, element("span", line.what, "what"), element("span", line.pages.toLocaleString("en"), "count"));
        return item;
      }),
    );
  }

  async #learned() {
    try {
      const { data } = await this.api.get("v1/conversations");
      this.find("learned").hidden = false;
      this.#list(data);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
      this.learns = false; // this server learns nothing
      this.find("learned").hidden = true;
    }
  }

  #list(entries) {
    this.find("learned-line").textContent = entries.length ? "" : "None yet.";
    this.find("learned-list").replaceChildren(
      ...entries.map((entry) => {
        const item = element("li");
        const remove = element("button", "Delete", "text");
        remove.type = "button";
        remove.dataset.id = entry.id;
        remove.setAttribute("aria-label", `Delete conversation ${entry.id}`);
        item.append(element("span", entry.id, "name"), remove, element("span", described(entry), "facts"));
        return item;
      }),
    );
  }

  async #forget(event) {
    const { id } = event.target.dataset;
    if (!id) return;
    event.target.disabled = true;
    try {
      await this.api.remove(`v1/conversations/${encodeURIComponent(id)}`);
      await this.#learned();
    } catch (error) {
      event.target.disabled = false;
      this.find("learned-line").textContent = error.message;
    }
  }
}

function described(entry) {
  const found = [];
  if (Number.isFinite(entry.tokens)) found.push(`${entry.tokens.toLocaleString("en")} tokens`);
  if (Number.isFinite(entry.bytes)) found.push(`${(entry.bytes / 2 ** 20).toFixed(1)} MiB`);
  return found.join(" · ");
}

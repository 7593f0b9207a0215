// One map of pages on a canvas, one cell a page or a few. Pointer and arrow keys name a cell.

import { cells, colour, columns, named, span } from "./pool.js";
import { element } from "./text.js";

export class PageMap {
  /** `say(text)` shows what a cell is. */
  constructor(say) {
    this.say = say;
    this.node = element("figure", "", "map");
    this.caption = element("figcaption");
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.node.append(this.caption, this.canvas);
    this.at = -1;
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#choose(-1));
    this.canvas.addEventListener("keydown", (event) => this.#step(event));
    this.canvas.addEventListener("blur", () => this.#choose(-1));
    this.shape = new ResizeObserver(() => this.draw());
    this.shape.observe(this.node);
  }

  /** `title` is "" where there is only one map; `summary` is what a screen reader gets. */
  show(title, summary, own, each, lanes) {
    Object.assign(this, { own, each, lanes, cells: cells(own.runs) });
    this.caption.textContent = title;
    this.caption.hidden = !title;
    this.canvas.setAttribute("aria-label", `${summary}. Arrow keys name a page.`);
    this.draw();
  }

  draw() {
    const width = this.node.clientWidth;
    if (!this.cells || !width) return;
    this.columns = columns(this.cells.length, width);
    this.size = width / this.columns;
    const height = Math.ceil(this.cells.length / this.columns) * this.size;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.max(1, Math.round(height * scale));
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(document.documentElement);
    const gap = this.size > 7 ? 1.5 : 1;
    this.cells.forEach((holder, cell) => {
      pen.fillStyle = style.getPropertyValue(colour(holder));
      this.#box(pen, cell, gap);
      pen.fill();
    });
    if (this.at >= 0) {
      pen.strokeStyle = style.getPropertyValue("--ink");
      pen.lineWidth = 1.5;
      this.#box(pen, this.at, gap);
      pen.stroke();
    }
  }

  #box(pen, cell, gap) {
    const x = (cell % this.columns) * this.size;
    const y = Math.floor(cell / this.columns) * this.size;
    pen.beginPath();
    pen.roundRect(x + gap / 2, y + gap / 2, this.size - gap, this.size - gap, Math.min(2.5, this.size / 4));
  }

  #point(event) {
    const column = Math.floor(event.offsetX / this.size);
    this.#choose(column < this.columns ? column + Math.floor(event.offsetY / this.size) * this.columns : -1);
  }

  #step(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = this.at < 0 ? 0 : this.at + by;
    if (next >= 0 && next < this.cells.length) this.#choose(next);
  }

  #choose(cell) {
    const found = cell < this.cells.length ? cell : -1;
    if (found === this.at) return;
    this.at = found;
    this.say(found < 0 ? "" : `${span(found, this.each, this.own.pages)}: ${named(this.cells[found], this.lanes)}`);
    this.draw();
  }
}

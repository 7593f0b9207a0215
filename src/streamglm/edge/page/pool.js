// The answer of /v1/pool as cells, colours and sentences. Knows no page.

export const FREE = 0;
export const KEPT = 1;
export const LANES = 2; // a cell of lane n is LANES + n
export const HUES = 8;

/** Runs [holder, cells, holder, cells, ...] as one holder a cell. */
export function cells(runs) {
  let count = 0;
  for (let at = 1; at < runs.length; at += 2) count += runs[at];
  const found = new Uint16Array(count);
  let place = 0;
  for (let at = 0; at < runs.length; at += 2) {
    found.fill(runs[at], place, place + runs[at + 1]);
    place += runs[at + 1];
  }
  return found;
}

/** The name of a colour in the style sheet. */
export function colour(holder) {
  if (holder === FREE) return "--free";
  return holder === KEPT ? "--kept" : `--lane-${(holder - LANES) % HUES}`;
}

/** The colour of a rank that owns a class of pages. */
export function owned(place) {
  return `--lane-${place % HUES}`;
}

/** Who holds a cell, in words. */
export function named(holder, lanes) {
  if (holder === FREE) return "free";
  if (holder === KEPT) return "kept prompts";
  const lane = lanes.find((one) => one.lane === holder - LANES);
  return lane ? `stream ${lane.lane}, ${doing(lane)}` : `stream ${holder - LANES}`;
}

function doing(lane) {
  const rows = lane.position.toLocaleString("en");
  if (lane.state !== "filling") return `at ${rows}`;
  return `prompt ${rows} of ${lane.prompt_tokens.toLocaleString("en")}`;
}

/** Which pages a cell stands for. */
export function span(cell, each, pages) {
  const first = cell * each;
  const last = Math.min(first + each, pages) - 1;
  return first === last ? `page ${first.toLocaleString("en")}` : `pages ${first.toLocaleString("en")} to ${last.toLocaleString("en")}`;
}

/** Columns of a grid of `count` cells that is `width` wide: cells of 5 to 14 pixels. */
export function columns(count, width) {
  const most = Math.max(1, Math.floor(width / 5));
  const least = Math.max(1, Math.ceil(width / 14));
  return Math.min(most, Math.max(least, Math.ceil(Math.sqrt(count * 2.2))));
}

/** Pages in a sentence. */
export function sentence(pool) {
  const sum = (name) => pool.pages.reduce((all, one) => all + one[name], 0).toLocaleString("en");
  return `${sum("total")} pages of ${pool.page_rows.toLocaleString("en")} tokens: ${sum("leased")} in use, ${sum("kept")} kept, ${sum("free")} free`;
}

/** The legend's lines: {holder, what, pages}. */
export function legend(pool) {
  const kept = pool.kept.length;
  const lines = pool.lanes.map((lane) => ({
    holder: LANES + lane.lane,
    what: `Stream ${lane.lane}, ${pool.pages.length > 1 ? `rank ${lane.owner}, ` : ""}${doing(lane)}`,
    pages: lane.pages,
  }));
  const sum = (name) => pool.pages.reduce((all, one) => all + one[name], 0);
  lines.push({ holder: KEPT, what: `${kept} kept ${kept === 1 ? "prompt" : "prompts"}`, pages: sum("kept") });
  lines.push({ holder: FREE, what: "Free", pages: sum("free") });
  return lines;
}

/** Tokens a second out of totals and moments, and the last `length` of them. */
export class Rate {
  constructor(length = 120) {
    this.length = length;
    this.values = [];
    this.before = null;
  }

  /** `total` at `seconds`; the rate since the call before, or null. A total that fell begins anew. */
  add(total, seconds) {
    const before = this.before;
    this.before = { total, seconds };
    if (!before || total < before.total || seconds <= before.seconds) return null;
    const rate = (total - before.total) / (seconds - before.seconds);
    this.values = [...this.values, rate].slice(-this.length);
    return rate;
  }

  /** The values as a path in a box of `width` by `height`. */
  path(width, height) {
    const most = Math.max(...this.values, 1);
    const step = width / Math.max(1, this.length - 1);
    const start = width - step * (this.values.length - 1);
    return this.values
      .map((value, place) => `${place ? "L" : "M"}${(start + place * step).toFixed(1)} ${(height - 2 - (value / most) * (height - 4)).toFixed(1)}`)
      .join("");
  }
}

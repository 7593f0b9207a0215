// Server-sent events out of text that arrives in any pieces. Knows no JSON and no network.

export class Events {
  #rest = "";

  /** The `data` of each event that `text` completes; comments and other fields say nothing. */
  feed(text) {
    const blocks = (this.#rest + text).replaceAll("\r\n", "\n").split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map(data).filter((found) => found !== null);
  }
}

function data(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}

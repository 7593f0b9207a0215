// A reply's text as elements: paragraphs, fenced code, inline code. Never as HTML.

/** The blocks of `text`: {code, text}. A fence that is not closed yet is code to the end. */
export function blocks(text) {
  const found = [];
  let code = false;
  for (const part of text.split(/^```[^\n]*\n?/m)) {
    if (code) found.push({ code: true, text: part.replace(/\n$/, "") });
    else found.push(...part.split(/\n{2,}/).filter((one) => one.trim()).map((one) => ({ code: false, text: one })));
    code = !code;
  }
  return found;
}

/** Show `text` in `node`. Blocks that are the same as before keep their elements. */
export function show(node, text) {
  const wanted = blocks(text);
  while (node.children.length > wanted.length) node.lastElementChild.remove();
  wanted.forEach((block, place) => {
    const key = `${block.code}:${block.text}`;
    const there = node.children[place];
    if (there?.dataset.key === key) return;
    const made = block.code ? codeBlock(block.text) : paragraph(block.text);
    made.dataset.key = key;
    if (there) there.replaceWith(made);
    else node.append(made);
  });
}

function codeBlock(text) {
  const pre = document.createElement("pre");
  pre.tabIndex = 0;
  pre.append(element("code", text));
  return pre;
}

function paragraph(text) {
  const node = document.createElement("p");
  text.trim().split(/`([^`\n]+)`/).forEach((part, place) => node.append(place % 2 ? element("code", part) : part));
  return node;
}

/** An element with a class and a text, both optional. */
export function element(name, text = "", kind = "") {
  const node = document.createElement(name);
  if (text) node.textContent = text;
  if (kind) node.className = kind;
  return node;
}

// Markdown of answers as elements. Text becomes text nodes and nothing else: no markup that a model
// writes is ever parsed as HTML, links are http, https and mailto only, pictures are not loaded.
const markdown = (() => {
  const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([\w+#.-]*)/, HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
  const RULE = /^ {0,3}([-*_])([ \t]*\1){2,}[ \t]*$/, QUOTE = /^ {0,3}> ?/, ITEM = /^( *)([-*+]|\d{1,9}[.)])[ \t]+(.*)$/;
  const CELLS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
  const MOST_NESTED = 6, LONGEST_INLINE = 20000;

  function starts(line, next) {
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) || table(line, next);
  }
  function table(line, next) { return line.includes("|") && next !== undefined && next.includes("|") && CELLS.test(next); }
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

  // [{kind, lines...}] of a text; `source` tells whether a block is still the same.
  function blocks(text) {
    const lines = text.split("\n"), out = [];
    for (let i = 0; i < lines.length;) {
      const first = i, line = lines[i];
      if (!line.trim()) { ++i; continue; }
      const block = {kind: "text", first};
      let found;
      if ((found = FENCE.exec(line))) {
        const close = new RegExp("^ {0,3}" + found[1][0].replace("`", "\\`") + "{" + found[1].length + ",}[ \\t]*$");
        for (++i; i < lines.length && !close.test(lines[i]); ++i);
        Object.assign(block, {kind: "code", language: found[2], text: lines.slice(first + 1, i).join("\n")});
        ++i;
      } else if ((found = HEADING.exec(line))) {
        Object.assign(block, {kind: "heading", level: found[1].length, text: found[2].replace(/[ \t]+#+[ \t]*$/, "")});
        ++i;
      } else if (RULE.test(line)) {
        block.kind = "rule";
        ++i;
      } else if (QUOTE.test(line)) {
        for (++i; i < lines.length && QUOTE.test(lines[i]); ++i);
        Object.assign(block, {kind: "quote", text: lines.slice(first, i).map((l) => l.replace(QUOTE, "")).join("\n")});
      } else if (table(line, lines[i + 1])) {
        for (i += 2; i < lines.length && lines[i].includes("|"); ++i);
        Object.assign(block, {kind: "table", rows: [lines[first], ...lines.slice(first + 2, i)].map(cells)});
      } else if ((found = ITEM.exec(line))) {
        i = list(lines, i, found, block);
      } else {
        for (++i; i < lines.length && lines[i].trim() && !starts(lines[i], lines[i + 1]); ++i);
        block.text = lines.slice(first, i).join("\n");
      }
      block.source = block.kind + lines.slice(first, i).join("\n");
      out.push(block);
    }
    return out;
  }

  // Items at the indent of the first; what is indented further belongs to the item before it.
  function list(lines, i, head, block) {
    const indent = head[1].length, ordered = /\d/.test(head[2]);
    Object.assign(block, {kind: "list", ordered, start: parseInt(head[2], 10) || 1, items: []});
    for (; i < lines.length; ++i) {
      const found = ITEM.exec(lines[i]), depth = lines[i].search(/\S/);
      if (found && found[1].length <= indent) {
        if (/\d/.test(found[2]) !== ordered || RULE.test(lines[i])) break;
        block.items.push([found[3]]);
      } else if (depth > indent) {
        block.items.at(-1).push(lines[i].slice(Math.min(depth, indent + head[2].length + 1)));
      } else if (depth < 0) {
        const next = lines.slice(i + 1).find((l) => l.trim());
        const more = next === undefined ? null : ITEM.exec(next);
        if (next === undefined || (next.search(/\S/) <= indent && !(more && /\d/.test(more[2]) === ordered))) break;
        block.items.at(-1).push("");
      } else if (starts(lines[i], lines[i + 1]) || !lines[i - 1].trim()) {
        break;
      } else {
        block.items.at(-1).push(lines[i]);
      }
    }
    return i;
  }

  function build(block, depth) {
    switch (block.kind) {
      case "code": {
        const code = el("code", {textContent: block.text});
        return el("div", {className: "block"}, el("div", {className: "head"}, el("span", {textContent: block.language || "text"}),
            el("button", {type: "button", onclick: (event) => copy(block.text, event.currentTarget)}, icon("copy"), "Copy")), el("pre", {tabIndex: 0}, code));
      }
      case "heading": return inline(el("h" + Math.min(block.level + 1, 5)), block.text, 0);
      case "rule": return el("hr");
      case "quote": return fill(el("blockquote", {className: "md"}), block.text, depth + 1);
      case "table": {
        const [head, ...rows] = block.rows;
        const row = (list, tag) => el("tr", {}, ...head.map((_, i) => inline(el(tag), list[i] || "", 0)));
        return el("div", {className: "table"}, el("table", {}, el("thead", {}, row(head, "th")), el("tbody", {}, ...rows.map((r) => row(r, "td")))));
      }
      case "list": {
        const at = el(block.ordered ? "ol" : "ul");
        if (block.ordered) at.start = block.start;
        for (const item of block.items) at.append(fill(el("li"), item.join("\n"), depth + 1));
        return at;
      }
      default: return inline(el("p"), block.text, 0);
    }
  }
  function fill(at, text, depth) {
    if (depth > MOST_NESTED) at.append(text);
    else for (const block of blocks(text)) at.append(build(block, depth));
    return at;
  }

  function address(text) {
    try {
      const url = new URL(text);
      return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
    } catch { return null; }
  }
  const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "s"], ["*", "em"], ["_", "em"]];
  // Appends text with code, bold, italic and links to `at`.
  function inline(at, text, depth) {
    if (depth > MOST_NESTED || text.length > LONGEST_INLINE) { at.append(text); return at; }
    const missing = new Set();  // marks that do not occur any more: not looked for again
    let plain = 0;
    const flush = (end) => { if (end > plain) at.append(text.slice(plain, end)); };
    for (let i = 0; i < text.length;) {
      const c = text[i];
      let node = null, end = i;
      if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] || "")) {
        flush(i); plain = i + 1; i += 2;
        continue;
      } else if (c === "`") {
        const ticks = /^`+/.exec(text.slice(i, i + 64))[0], close = missing.has(ticks) ? -1 : text.indexOf(ticks, i + ticks.length);
        if (close < 0) missing.add(ticks);
        else { node = el("code", {textContent: text.slice(i + ticks.length, close).trim() || " "}); end = close + ticks.length; }
        if (!node) { i += ticks.length; continue; }
      } else if (c === "[") {
        const found = /^\[([^\]\n]{1,500})\]\(([^()\s]{1,2000})\)/.exec(text.slice(i, i + 2600)), href = found && address(found[2]);
        if (href) { node = inline(link(href), found[1], depth + 1); end = i + found[0].length; }
      } else if (c === "h" && /^https?:\/\//.test(text.slice(i, i + 8)) && !/\w/.test(text[i - 1] || "")) {
        const found = /^https?:\/\/[^\s<>"'`]*[^\s<>"'`.,;:!?)\]*_]/.exec(text.slice(i, i + 2000)), href = found && address(found[0]);
        if (href) { node = link(href); node.append(found[0]); end = i + found[0].length; }
      } else {
        for (const [mark, tag] of MARKS) {
          if (!text.startsWith(mark, i) || missing.has(mark)) continue;
          const inner = i + mark.length;
          if (!/\S/.test(text[inner] || "") || (mark[0] === "_" && /\w/.test(text[i - 1] || ""))) continue;
          let close = text.indexOf(mark, inner + 1);
          while (close > 0 && (/\s/.test(text[close - 1]) || (mark[0] === "_" && /\w/.test(text[close + mark.length] || "")) || (mark === "*" && text[close + 1] === "*")))
            close = text.indexOf(mark, close + (mark === "*" && text[close + 1] === "*" ? 2 : 1));
          if (close < 0) { missing.add(mark); continue; }
          node = inline(el(tag), text.slice(inner, close), depth + 1);
          end = close + mark.length;
          break;
        }
      }
      if (node) { flush(i); at.append(node); plain = i = end; } else ++i;
    }
    flush(text.length);
    return at;
  }
  function link(href) { return el("a", {href, target: "_blank", rel: "noopener noreferrer", title: href}); }

  // Shows `text` in `at`; blocks that did not change stay as they are, so that a growing answer
  // costs its last block, keeps selections and does not flicker.
  function show(at, text) {
    const want = blocks(text), have = at.shown || [];
    let same = 0;
    while (same < want.length && same < have.length && want[same].source === have[same]) ++same;
    while (at.childNodes.length > same) at.lastChild.remove();
    for (const block of want.slice(same)) at.append(build(block, 0));
    at.shown = want.map((block) => block.source);
  }
  return {show};
})();

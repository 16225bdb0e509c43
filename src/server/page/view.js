// Elements and what is shown of a conversation. Knows no requests.
const $ = (id) => document.getElementById(id);

function el(tag, properties = {}, ...children) {
  const at = Object.assign(document.createElement(tag), properties);
  at.append(...children.filter((child) => child !== null));
  return at;
}
function icon(name) {
  const NS = "http://www.w3.org/2000/svg", svg = document.createElementNS(NS, "svg"), use = document.createElementNS(NS, "use");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", "#i-" + name);
  svg.append(use);
  return svg;
}
function iconButton(name, label, onclick) {
  const at = el("button", {type: "button", className: "icon", title: label, onclick}, icon(name));
  at.setAttribute("aria-label", label);
  return at;
}

// Says something to screen readers only.
function speak(text) {
  const at = $("spoken");
  at.textContent = "";
  setTimeout(() => { at.textContent = text; }, 60);
}
let toastTimer = 0;
function toast(text, action, run) {
  const at = $("toast");
  clearTimeout(toastTimer);
  at.replaceChildren(el("span", {textContent: text}));
  if (action) at.append(el("button", {type: "button", textContent: action, onclick: () => { at.replaceChildren(); run(); }}));
  toastTimer = setTimeout(() => at.replaceChildren(), action ? 9000 : 3500);
}
// The clipboard of pages that did not come over HTTPS is the old way only.
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", {value: text, className: "hidden"});
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button?.focus();
  }
  toast("Copied");
}
function download(name, type, text) {
  const href = URL.createObjectURL(new Blob([text], {type}));
  el("a", {href, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
}

const show = {
  number: (x, digits = 1) => x.toLocaleString("en", {maximumFractionDigits: digits, minimumFractionDigits: x < 100 ? digits : 0}),
  count: (x) => Math.round(x).toLocaleString("en"),
  percent: (x) => Math.round(100 * x) + " %",
  time: (ms) => ms < 1 ? show.number(ms, 3) + " ms" : ms < 1000 ? show.number(ms, ms < 10 ? 2 : ms < 100 ? 1 : 0) + " ms" : show.number(ms / 1000) + " s",
  bytes(x) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    for (; x >= 1024 && i < units.length - 1; ++i) x /= 1024;
    return show.number(x, i < 2 || x >= 100 ? 0 : 1) + " " + units[i];
  },
  ago(then) {
    const minutes = Math.floor((Date.now() - then) / 60000);
    if (minutes < 1) return "now";
    if (minutes < 60) return minutes + " min ago";
    if (minutes < 1440) return Math.floor(minutes / 60) + " h ago";
    return new Date(then).toLocaleDateString();
  },
};

const FINISH = {length: "Stopped at the limit of tokens.", stopped: "Stopped by you.", interrupted: "The page was left before the end."};

// `on`: what the buttons do: copy, edit, again, choose(node), answerNow, results(node, texts).
function makeView(on) {
  const log = $("log"), list = $("messages");
  const parts = new Map();  // node id -> elements that change while its answer grows
  let stuck = true;         // the end stays in sight

  function heading(node) {
    const names = {user: "You", assistant: "Answer", tool: "Tool result"};
    return el("h2", {className: "hidden", textContent: names[node.role]});
  }
  function ways(chat, node) {
    const all = store.siblings(chat, node), at = all.indexOf(node);
    if (all.length < 2) return null;
    const go = (step, name, label) => {
      const button = iconButton(name, label, () => on.choose(all[at + step]));
      button.disabled = !all[at + step] || on.running();
      return button;
    };
    return el("span", {className: "ways"}, go(-1, "left", "Version before"), `${at + 1}/${all.length}`, go(1, "right", "Next version"));
  }

  function user(chat, node) {
    const article = el("article", {className: "user"}, heading(node), el("div", {className: "bubble", textContent: node.content}));
    const edit = iconButton("edit", "Edit this message", () => on.edit(node));
    edit.classList.add("edit-button");
    edit.disabled = on.running();
    const acts = el("div", {className: "acts"}, iconButton("copy", "Copy this message", () => copy(node.content)), edit);
    const more = ways(chat, node);
    if (more) acts.append(more);
    article.append(acts);
    return article;
  }

  function tool(node) {
    return el("article", {className: "tool"}, heading(node), el("h3", {}, icon("tool"), "Result of ", el("code", {textContent: node.name || "tool"})),
        el("pre", {textContent: node.content}));
  }

  function assistant(chat, node) {
    const p = {chat, calls: ""};
    p.what = el("span", {className: "what"});
    p.peek = el("span", {className: "peek"});
    p.peek.setAttribute("aria-hidden", "true");
    p.thought = el("div", {className: "thought md"});
    const turn = icon("right");
    turn.classList.add("turn");
    // At the click, so that it opens with its text: "toggle" comes a task later, and alone when a search on the page opens it.
    const fill = () => markdown.show(p.thought, node.reasoning);
    p.details = el("details", {ontoggle: () => { if (p.details.open) fill(); }},
        el("summary", {onclick: fill}, turn, p.what, p.peek), p.thought);
    p.now = el("button", {type: "button", className: "now", textContent: "Answer now", onclick: on.answerNow});
    p.think = el("div", {className: "think"}, el("div", {className: "bar"}, p.details, p.now));
    p.waiting = el("p", {className: "waiting"}, el("i"), el("i"), el("i"), el("span"));
    p.text = el("div", {className: "md"});
    p.tools = el("div");
    p.note = el("div", {className: "note"});
    p.acts = el("div", {className: "acts"});
    p.article = el("article", {className: "assistant"}, heading(node), p.think, p.waiting, p.text, p.tools, p.note, p.acts);
    parts.set(node.id, p);
    update(node);
    return p.article;
  }

  function calls(node, p, open) {
    const text = JSON.stringify([node.calls, open]);
    if (p.calls === text) return;
    p.calls = text;
    const fields = [];
    p.tools.replaceChildren(...(node.calls || []).map((call) => {
      const box = el("div", {className: "tool"}, el("h3", {}, icon("tool"), "Calls ", el("code", {textContent: call.name})),
          el("pre", {textContent: pretty(call.arguments)}));
      if (open) {
        const field = el("textarea", {rows: 2, spellcheck: false});
        fields.push(field);
        box.append(el("label", {}, "What " + call.name + " gives back", field));
      }
      return box;
    }));
    if (open) {
      p.tools.append(el("div", {className: "buttons"}, el("button", {type: "button", className: "main", textContent: fields.length > 1 ? "Send results" : "Send result",
        onclick: () => on.results(node, fields.map((field) => field.value))})));
    }
  }
  function pretty(text) {
    try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
  }

  function note(node, p) {
    const buttons = [];
    if (node.error) buttons.push(el("button", {type: "button", textContent: "Try again", onclick: () => on.again(node)}));
    const text = node.error || FINISH[node.finish] || "";
    p.note.hidden = node.running || !text;
    p.note.classList.toggle("bad", Boolean(node.error));
    p.note.replaceChildren(el("span", {textContent: text}), ...buttons);
  }

  function acts(node, p) {
    p.acts.hidden = Boolean(node.running) || Boolean(node.error && !node.content && store.siblings(p.chat, node).length < 2);
    if (p.acts.hidden) return;
    const again = iconButton("again", "Answer again", () => on.again(node));
    again.classList.add("again-button");
    again.disabled = on.running();
    const t = node.timings, stats = [];
    if (t && t.decode_tok_s > 0) stats.push(show.number(t.decode_tok_s) + " tok/s");
    if (node.usage) stats.push(show.count(node.usage.completion_tokens) + " tokens");
    if (t && t.first_token_ms > 0) stats.push(show.time(t.first_token_ms) + " to the first");
    if (t && t.accept_length > 0) stats.push(show.number(t.accept_length, 2) + " per cycle");
    p.acts.replaceChildren(...[node.content ? iconButton("copy", "Copy this answer", () => copy(node.content)) : null, again, ways(p.chat, node),
      stats.length ? el("span", {className: "stats"}, ...stats.map((text) => el("span", {textContent: text}))) : null].filter(Boolean));
  }

  // Brings the article of an answer up to date with its node.
  function update(node) {
    const p = parts.get(node.id);
    if (!p) return;
    const thinking = node.running && node.reasoning && !node.content && !(node.calls || []).length;
    p.article.classList.toggle("live", Boolean(thinking));
    p.article.setAttribute("aria-busy", String(Boolean(node.running)));
    p.think.hidden = !node.reasoning;
    p.now.hidden = !thinking;
    if (node.reasoning) {
      p.what.textContent = thinking ? "Thinking" : "Thought" + (node.thought_ms ? " for " + show.time(node.thought_ms) : "");
      p.peek.textContent = thinking ? node.reasoning.slice(-300).trimEnd().split("\n").at(-1) : "";
      if (p.details.open) markdown.show(p.thought, node.reasoning);
    }
    p.waiting.hidden = !node.running || Boolean(node.content || node.reasoning || (node.calls || []).length);
    p.waiting.lastChild.textContent = node.waiting || "";
    markdown.show(p.text, node.content || "");
    p.text.hidden = !node.content;
    const answered = Object.values(p.chat.nodes).some((n) => n.parent === node.id);
    calls(node, p, !node.running && !answered && node.finish === "tool_calls");
    note(node, p);
    acts(node, p);
    if (stuck) toEnd();
  }

  function toEnd() { log.scrollTop = log.scrollHeight; }
  const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  log.addEventListener("scroll", () => { stuck = atEnd(); $("latest").hidden = stuck; }, {passive: true});
  new ResizeObserver(() => { if (stuck) toEnd(); $("latest").hidden = stuck; }).observe(list);
  $("latest").onclick = () => { stuck = true; toEnd(); $("message").focus(); };

  return {
    update, toEnd,
    follow() { stuck = true; toEnd(); },
    render(chat, empty) {
      parts.clear();
      const path = store.path(chat), kinds = {user, tool: (_, node) => tool(node), assistant};
      list.replaceChildren(...(path.length ? path.map((node) => kinds[node.role](chat, node)) : [empty()]));
      const last = [...list.querySelectorAll("article.assistant")].at(-1);
      last?.classList.add("last");
      if (stuck) toEnd();
    },
    // Turns a message into a field. Resolves with its new text, or null.
    edit(chat, node) {
      const article = list.children[store.path(chat).indexOf(node)];
      const field = el("textarea", {value: node.content, rows: Math.min(12, node.content.split("\n").length + 1)});
      field.setAttribute("aria-label", "Edit message");
      return new Promise((resolve) => {
        const form = el("form", {className: "edit", onsubmit: (event) => { event.preventDefault(); resolve(field.value.trim() || null); }}, field,
            el("div", {className: "buttons"}, el("button", {type: "button", textContent: "Cancel", onclick: () => resolve(null)}),
                el("button", {className: "main", textContent: "Send"})));
        form.addEventListener("keydown", (event) => {
          if (event.key === "Escape") { event.stopPropagation(); resolve(null); }
          if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(); }
        });
        article.classList.add("editing");
        article.replaceChildren(heading(node), form);
        field.focus();
      });
    },
  };
}

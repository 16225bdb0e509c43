// The page itself: what happens when something is sent, clicked or typed.
let settings = store.settings(), chat = null, run = null, props = null, state = "connecting", wasGone = false;

const view = makeView({
  running: () => run !== null,
  edit: editMessage,
  again: answerAgain,
  choose(node) { store.choose(chat, node); store.put(chat); render(); },
  answerNow() { if (run?.id) api.answerNow(run.id).catch(() => {}); $("message").focus(); },
  results: sendResults,
});
store.onfailure(() => toast("This browser has no room for more. Export and delete conversations."));

// ---- conversations ----

const NANO = ["A tank of Bella holds 91 liters. 36 liters flow in. 13 liters leak out. How many liters are in it in the end?", "What can you do?",
  "Copy this text exactly:\nfor (int i = 0; i < 8; ++i) total += weights[i];"];
const IDEAS = ["Explain how a mixture-of-experts model chooses its experts.", "Write a Python function that merges overlapping intervals.",
  "Summarise the trade-offs of caching in a web service in a table."];

function empty() {
  const nano = props?.model === "ling-nano", logo = icon("logo");
  logo.classList.add("logo");
  return el("div", {id: "empty"}, logo, el("h2", {textContent: props ? "Talk to " + props.model : "sparkling"}),
      nano ? el("p", {className: "quiet", textContent: "A small model that came with the program, made for tests: it solves word problems and calls tools, and knows nothing of the world."}) : null,
      el("ul", {}, ...(nano ? NANO : props ? IDEAS : []).map((text) => el("li", {}, el("button", {type: "button", textContent: text, onclick: () => send(text)})))));
}

function render() {
  view.render(chat, empty);
  const title = chat.title || "New chat";
  $("title").textContent = title;
  document.title = chat.title ? title + " \u2013 sparkling" : "sparkling";
  $("export").disabled = !chat.leaf;
  const done = store.path(chat).filter((node) => node.usage).at(-1)?.usage;
  panel.setUsed(done ? {tokens: done.total_tokens, prompt: done.prompt_tokens, cached: done.prompt_tokens_details.cached_tokens} : null);
  renderList();
}

function renderList() {
  const all = store.all();
  $("none").hidden = all.length > 0;
  $("export-all").disabled = !all.length;
  $("list").replaceChildren(...all.map((item) => {
    const open = el("button", {type: "button", className: "open", onclick: () => openChat(item.id)}, el("span", {textContent: item.title || "New chat"}),
        el("small", {textContent: show.ago(item.updated)}));
    if (item.id === chat.id) open.setAttribute("aria-current", "page");
    const name = item.title || "New chat";
    return el("li", {}, open, el("div", {className: "tools"}, iconButton("edit", "Rename " + name, (event) => rename(item.id, event.currentTarget.closest("li"))),
        iconButton("bin", "Delete " + name, () => remove(item.id))));
  }));
}

function rename(id, item) {
  const held = id === chat.id ? chat : store.load(id), field = el("input", {value: held.title, maxLength: 120});
  field.setAttribute("aria-label", "New name");
  let over = false;
  const end = (keep) => {
    if (over) return;
    over = true;
    if (keep && field.value.trim()) { held.title = field.value.trim(); store.put(held); }
    render();
    [...$("list").querySelectorAll(".open")].find((at) => at.firstChild.textContent === held.title)?.focus();
  };
  field.onkeydown = (event) => {
    if (event.key === "Enter") end(true);
    if (event.key === "Escape") { event.stopPropagation(); end(false); }
  };
  field.onblur = () => end(true);
  item.replaceChildren(field);
  field.focus();
  field.select();
}

function remove(id) {
  if (run && id === chat.id) stop();
  const held = store.load(id);
  store.remove(id);
  if (id === chat.id) openChat(null);
  else renderList();
  toast(`Deleted \u201c${held.title || "New chat"}\u201d`, "Undo", () => { store.put(held); openChat(id); });
  ($("list").querySelector(".open") || $("new")).focus();
}

// null: a new one, kept once something is sent.
function openChat(id) {
  if (run && id === chat?.id) return;
  if (run) stop();
  chat = (id && store.load(id)) || store.create();
  history.replaceState(null, "", id ? "#" + id : location.pathname);
  view.follow();
  render();
  view.follow();
  closeDrawers();
  if (matchMedia("(hover: hover)").matches) $("message").focus();
}

// ---- sending ----

function send(text) {
  if (run || !text.trim()) return;
  if (!settingsGood()) return;
  if (!chat.title) chat.title = text.trim().replace(/\s+/g, " ").slice(0, 80);
  store.add(chat, chat.leaf, {role: "user", content: text});
  store.save(chat);
  history.replaceState(null, "", "#" + chat.id);
  view.follow();
  answer(chat.leaf);
}

async function editMessage(node) {
  const text = await view.edit(chat, node);
  if (text === null || run || !settingsGood()) { render(); focusMessage(node, ".edit-button"); return; }
  store.add(chat, node.parent, {role: "user", content: text});
  store.save(chat);
  view.follow();
  $("message").focus();
  answer(chat.leaf);
}
function focusMessage(node, selector) {
  $("messages").children[store.path(chat).indexOf(node)]?.querySelector(selector)?.focus();
}

// A new answer beside this one; one that has nothing to keep gives way.
function answerAgain(node) {
  if (run || !settingsGood()) return;
  if (!node.content && !node.reasoning && !node.calls?.length) store.drop(chat, node);
  $("message").focus();
  answer(node.parent);
}

function sendResults(node, texts) {
  if (run) return;
  node.calls.forEach((call, i) => store.add(chat, chat.leaf, {role: "tool", tool_call_id: call.id, name: call.name, content: texts[i]}));
  view.follow();
  answer(chat.leaf);
}

function messages(leaf) {
  const path = store.path({...chat, leaf}), out = settings.system ? [{role: "system", content: settings.system}] : [];
  for (const node of path) {
    if (node.role === "user") out.push({role: "user", content: node.content});
    if (node.role === "tool") out.push({role: "tool", tool_call_id: node.tool_call_id, content: node.content});
    if (node.role !== "assistant" || !(node.content || node.calls?.length)) continue;
    const message = {role: "assistant", content: node.content || ""};
    if (node.reasoning) message.reasoning_content = node.reasoning;  // as it came: the prompt stays what the server has read
    if (node.calls?.length) message.tool_calls = node.calls.map(({id, name, arguments: text}) => ({id, type: "function", function: {name, arguments: text}}));
    out.push(message);
  }
  return out;
}

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "max_tokens"];
function request(leaf) {
  const body = {messages: messages(leaf), stream: true, stream_options: {include_usage: true}};
  for (const name of NUMBERS) if (settings[name] !== undefined && settings[name] !== "") body[name] = Number(settings[name]);
  if (settings.thinking) body.chat_template_kwargs = {enable_thinking: settings.thinking === "on"};
  if (settings.thinking !== "off" && settings.thinking_budget) body.thinking_budget = Number(settings.thinking_budget);
  const stops = (settings.stop || "").split("\n").filter(Boolean);
  if (stops.length) body.stop = stops;
  if (settings.tools?.trim()) body.tools = JSON.parse(settings.tools);
  return body;
}

async function answer(parent) {
  const control = new AbortController(), held = chat;
  const node = store.add(held, parent, {role: "assistant", content: "", reasoning: "", running: true, waiting: "Waiting for the server"});
  const mine = run = {control, id: null, node, stopped: false};
  setRunning();
  render();
  panel.begin();
  let frame = 0, saved = Date.now(), began = 0, spoken = "";
  const say = (what) => { if (spoken !== what) speak(spoken = what); };
  // Many tokens may come between two pictures.
  const changed = () => {
    frame ||= requestAnimationFrame(() => { frame = 0; if (chat === held) view.update(node); });
    if (Date.now() - saved > 1500) { saved = Date.now(); store.put(held); }
  };
  try {
    for await (const {comment, data} of api.chat(request(parent), control.signal)) {
      if (comment !== undefined) {
        const before = /^waiting, (\d+) before$/.exec(comment);
        node.waiting = before ? `Waiting: ${before[1]} before you` : "Reading the prompt";
      } else if (data.error) {
        throw new Failure(data.error.message, {param: data.error.param});
      } else {
        take(node, mine, data);
        if (node.reasoning && !began) { began = performance.now(); say("Thinking"); }
        if (began && !node.thought_ms && (node.content || node.calls)) node.thought_ms = performance.now() - began;
        if (node.content) say("Answering");
      }
      changed();
    }
    if (!node.finish) throw new Failure("The connection ended before the answer did.");
  } catch (error) {
    if (mine.stopped) node.finish = "stopped";
    else node.error = explain(error);
  }
  if (began && !node.thought_ms) node.thought_ms = performance.now() - began;
  node.running = false;
  delete node.waiting;
  cancelAnimationFrame(frame);
  if (run === mine) run = null;
  // Deleted meanwhile: stays so.
  if (store.load(held.id)) store.save(held);
  setRunning();
  panel.end(node.timings);
  if (chat === held) render();
  else renderList();
  speak(node.error || (node.finish === "stopped" ? "Stopped" : "Answer: " + (node.content || node.calls?.map((call) => "calls " + call.name).join(", ") || "empty").slice(0, 700)));
  poll();
}

// One chunk of a stream into the node.
function take(node, mine, data) {
  mine.id = data.id;
  if (!node.content && !node.reasoning) node.waiting = "Reading the prompt";
  for (const {delta, finish_reason: finish} of data.choices) {
    if (delta.reasoning_content) node.reasoning += delta.reasoning_content;
    if (delta.content) node.content += delta.content;
    for (const part of delta.tool_calls || []) {
      const call = (node.calls ??= [])[part.index] ??= {id: part.id, name: part.function.name, arguments: ""};
      call.arguments += part.function.arguments || "";
    }
    if (delta.reasoning_content || delta.content || delta.tool_calls) panel.piece();
    if (finish) node.finish = finish;
  }
  if (data.usage) node.usage = data.usage;
  if (data.timings) node.timings = data.timings;
}

function explain(error) {
  if (error instanceof Failure) {
    if (error.status === 429) return `The server is busy: ${error.message}.`.replace("..", ".");
    const text = error.message.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase());
    return /[.!?]$/.test(text) ? text : text + ".";
  }
  if (error instanceof SyntaxError) return "The tools in the settings are not JSON.";
  return "No connection to the server.";
}

function stop() {
  if (!run) return;
  run.stopped = true;
  run.control.abort();
}

function setRunning() {
  const on = run !== null;
  $("go").setAttribute("aria-label", on ? "Stop" : "Send");
  $("go").title = on ? "Stop (Esc)" : "Send (Enter)";
  $("go-icon").setAttribute("href", on ? "#i-stop" : "#i-send");
  $("hint").textContent = on ? "Esc stops" : "";
  grow();
}

// ---- the message field ----

function grow() {
  const field = $("message");
  field.style.height = "auto";
  field.style.height = field.scrollHeight + "px";
  $("go").disabled = !run && !field.value.trim();
}
$("message").oninput = grow;
$("message").onkeydown = (event) => {
  const touch = matchMedia("(pointer: coarse)").matches;  // there Enter is a new line
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch) {
    event.preventDefault();
    if (!run) $("composer").requestSubmit();
  }
};
$("composer").onsubmit = (event) => {
  event.preventDefault();
  if (run) { stop(); return; }
  const text = $("message").value;
  if (!text.trim() || !settingsGood()) return;
  $("message").value = "";
  grow();
  $("message").focus();
  send(text);
};

// ---- settings ----

const form = $("settings-form");
function readSettings() {
  settings = {};
  for (const field of form.elements) if (field.name && field.value !== "") settings[field.name] = field.value;
  store.saveSettings(settings);
  settingsGood(false);
  showSettings();
}
// Whether the settings can be sent. With `go` the wrong field is shown.
function settingsGood(go = true) {
  let wrong = null, text = "";
  for (const field of form.elements) {
    if (!field.name) continue;
    let why = field.validity.valid ? "" : field.validationMessage;
    if (field.name === "tools" && field.value.trim()) {
      try { if (!Array.isArray(JSON.parse(field.value))) why = "expected a list"; } catch (error) { why = error.message; }
    }
    field.toggleAttribute("aria-invalid", false);
    if (!why) continue;
    field.setAttribute("aria-invalid", "true");
    if (!wrong) [wrong, text] = [field, field.labels[0].firstChild.textContent.trim() + ": " + why];
  }
  $("settings-error").textContent = text;
  if (wrong && go) { openPanel("settings"); wrong.focus(); }
  return !wrong;
}
function showSettings() {
  const thinks = settings.thinking ? settings.thinking === "on" : props?.defaults.thinking.openai ?? true;
  $("think").setAttribute("aria-pressed", String(thinks));
  const t = settings.temperature ?? props?.defaults.temperature;
  $("sampling").textContent = t === undefined ? "sampling" : "temperature " + Number(t);
  for (const name of NUMBERS) if (props && name in props.defaults) form.elements[name].placeholder = props.defaults[name];
}
function fillSettings() {
  for (const field of form.elements) if (field.name) field.value = settings[field.name] ?? "";
  showSettings();
}
form.oninput = readSettings;
form.onsubmit = (event) => event.preventDefault();
$("defaults").onclick = () => { form.reset(); for (const field of form.elements) if (field.name) field.value = ""; readSettings(); toast("Back to the server's defaults"); };
$("think").onclick = () => {
  const on = $("think").getAttribute("aria-pressed") !== "true";
  form.elements.thinking.value = on ? "on" : "off";
  readSettings();
};
$("sampling").onclick = () => { openPanel("settings"); form.elements.temperature.focus(); };

// ---- list and panel: columns in a wide window, drawers in a narrow one ----

const narrowSide = matchMedia("(max-width: 820px)"), narrowPanel = matchMedia("(max-width: 1180px)");
const isOpen = (name) => !$(name).classList.contains("shut");
function setOpen(name, open) {
  $(name).classList.toggle("shut", !open);
  for (const at of document.querySelectorAll(`[aria-controls="${name}"].icon`)) at.setAttribute("aria-expanded", String(open));
  const drawer = (narrowSide.matches && isOpen("side")) || (narrowPanel.matches && isOpen("panel"));
  $("shade").hidden = !drawer;
  document.querySelector("main").inert = drawer;
  if (narrowPanel.matches) $("side").inert = isOpen("panel");
  else $("side").inert = false;
  if (name === "panel" && !narrowPanel.matches) localStorage.setItem("sparkling.panel", open ? "open" : "shut");
}
function closeDrawers() {
  let closed = false;
  for (const [name, narrow, opener] of [["side", narrowSide, "side-open"], ["panel", narrowPanel, "panel-open"]]) {
    if (!narrow.matches || !isOpen(name)) continue;
    setOpen(name, false);
    $(opener).focus();
    closed = true;
  }
  return closed;
}
function arrange() {
  setOpen("side", !narrowSide.matches);
  setOpen("panel", !narrowPanel.matches && localStorage.getItem("sparkling.panel") !== "shut");
}
function openPanel(tab) {
  setOpen("panel", true);
  for (const name of ["live", "settings"]) {
    $("tab-" + name).setAttribute("aria-selected", String(name === tab));
    $("tab-" + name).tabIndex = name === tab ? 0 : -1;
    $(name).hidden = name !== tab;
  }
}
narrowSide.onchange = narrowPanel.onchange = arrange;
$("side-open").onclick = () => { setOpen("side", true); $("side-close").focus(); };
$("side-close").onclick = closeDrawers;
$("shade").onclick = closeDrawers;
$("panel-open").onclick = () => {
  setOpen("panel", !isOpen("panel"));
  if (isOpen("panel")) { poll(); if (narrowPanel.matches) $("panel-close").focus(); }
};
$("panel-close").onclick = () => { setOpen("panel", false); $("panel-open").focus(); };
for (const [name, other] of [["live", "settings"], ["settings", "live"]]) {
  $("tab-" + name).onclick = () => openPanel(name);
  $("tab-" + name).onkeydown = (event) => {
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    openPanel(other);
    $("tab-" + other).focus();
  };
}
$("new").onclick = () => { openChat(null); $("message").focus(); };
$("export").onclick = () => download((chat.title || "conversation").replace(/[^\w -]+/g, "_") + ".md", "text/markdown", store.markdown(chat));
$("export-all").onclick = () => download("sparkling-conversations.json", "application/json", JSON.stringify(store.all(), null, 1));

const THEMES = ["system", "light", "dark"];
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").lastElementChild.textContent = "Theme: " + theme;
  localStorage.setItem("sparkling.theme", theme);
}
$("theme").onclick = () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("key").open) { if (!closeDrawers()) stop(); }
  if (event.altKey && event.code === "KeyN") { event.preventDefault(); $("new").click(); }
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || "");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); $("message").focus(); }
});
window.addEventListener("storage", (event) => {
  if (!store.isChat(event.key)) return;
  if (!run && chat.leaf && (event.key === null || event.key.endsWith(chat.id))) { chat = store.load(chat.id) || store.create(); render(); } else renderList();
});

// ---- the server's state ----

function banner(kind, text, share) {
  const at = $("banner"), same = at.dataset.text === text && !at.hidden;
  at.hidden = !text;
  at.className = kind;
  if (!same) { at.dataset.text = text; at.replaceChildren(el("span", {textContent: text})); }
  let bar = at.querySelector("progress");
  if (share === undefined) { bar?.remove(); return; }
  if (!bar) { bar = el("progress", {max: 1}); bar.setAttribute("aria-label", "Loading"); at.append(bar); }
  bar.value = share;
}
async function poll() {
  const health = await api.health(), before = state;
  state = health.state;
  $("status").dataset.state = state;
  const words = {ok: "ready", busy: "answering", loading: "loading", stopping: "stopping", gone: "no connection"};
  if ($("status-text").textContent !== words[state]) $("status-text").textContent = words[state] || state;
  if (state === "gone") banner("gone", "No connection to the server. What you wrote is kept; this page tries again every two seconds.");
  else if (state === "loading") banner("", "The server is loading its model.", health.progress);
  else if (state === "stopping") banner("", "The server is stopping.");
  else banner("", "");
  if (state === "gone") wasGone = true;
  panel.setHealth(health);
  if (state !== "ok" && state !== "busy") return;
  if (wasGone) { wasGone = false; props = null; toast("The server is back"); }
  try {
    if (!props || before === "loading") {
      props = await api.json("/props", {quiet: Boolean(props)});
      panel.setProps(props);
      showSettings();
      if (!run && !chat.leaf) render();
    }
    if (isOpen("panel")) {
      panel.setTotals(await api.metrics());
      if (!panel.roofKnown() && !run) panel.setRoof(await api.json("/roof", {quiet: true}));
    }
  } catch { /* the next poll tries again; the state above says what is wrong */ }
}
async function watch() {
  if (!document.hidden) await poll();
  setTimeout(watch, 2000);
}

setTheme(localStorage.getItem("sparkling.theme") || "system");
arrange();
fillSettings();
openChat(location.hash.slice(1) || null);
setRunning();
watch();

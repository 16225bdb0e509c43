// Conversations and settings in localStorage. A conversation is a tree: editing a message or asking
// again makes a sibling, so that nothing is lost; `leaf` is the end of the branch that is shown.
const store = (() => {
  const CHAT = "sparkling.chat.", SETTINGS = "sparkling.settings";
  let failed = () => {};
  function write(key, value) {
    try { localStorage.setItem(key, JSON.stringify(value)); return true; }
    catch { failed(); return false; }
  }
  function read(key) {
    try { return JSON.parse(localStorage.getItem(key)); } catch { return null; }
  }
  const good = (chat) => chat && typeof chat.id === "string" && chat.nodes && typeof chat.nodes === "object";
  const fresh = () => Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");

  return {
    onfailure(what) { failed = what; },
    create: () => ({id: fresh(), title: "", created: Date.now(), updated: Date.now(), nodes: {}, leaf: null}),
    load(id) {
      const chat = read(CHAT + id);
      if (!good(chat)) return null;
      // Another tab, or this one before a reload, did not come to the end.
      for (const node of Object.values(chat.nodes)) if (node.running) Object.assign(node, {running: false, finish: "interrupted"});
      return chat;
    },
    save(chat) { chat.updated = Date.now(); return write(CHAT + chat.id, chat); },
    put: (chat) => write(CHAT + chat.id, chat),
    remove(id) { localStorage.removeItem(CHAT + id); },
    // Latest first.
    all() {
      return Object.keys(localStorage).filter((key) => key.startsWith(CHAT)).map(read).filter(good).sort((a, b) => b.updated - a.updated);
    },
    isChat: (key) => key === null || key.startsWith(CHAT),

    add(chat, parent, node) {
      const made = {...node, id: fresh(), parent, at: Date.now()};
      chat.nodes[made.id] = made;
      chat.leaf = made.id;
      return made;
    },
    path(chat) {
      const out = [];
      for (let at = chat.leaf; at && chat.nodes[at] && out.length < 100000; at = chat.nodes[at].parent) out.unshift(chat.nodes[at]);
      return out;
    },
    siblings: (chat, node) => Object.values(chat.nodes).filter((n) => n.parent === node.parent && n.role === node.role).sort((a, b) => a.at - b.at),
    // Shows the branch through `node`, to its latest end.
    choose(chat, node) {
      for (let next = node; next;) {
        chat.leaf = next.id;
        next = Object.values(chat.nodes).filter((n) => n.parent === chat.leaf).sort((a, b) => b.at - a.at)[0];
      }
    },
    drop(chat, node) {
      delete chat.nodes[node.id];
      if (chat.leaf === node.id) chat.leaf = node.parent;
    },

    settings: () => read(SETTINGS) || {},
    saveSettings: (settings) => write(SETTINGS, settings),

    markdown(chat) {
      const name = {user: "You", assistant: "Answer", tool: "Tool result"};
      const parts = this.path(chat).map((node) => "## " + name[node.role] + "\n\n" +
          (node.reasoning ? "> " + node.reasoning.trim().replaceAll("\n", "\n> ") + "\n\n" : "") + (node.content || "").trim() +
          (node.calls || []).map((call) => "\n\n```json\n" + call.name + " " + call.arguments + "\n```").join("") + "\n");
      return "# " + (chat.title || "Conversation") + "\n\n" + parts.join("\n");
    },
  };
})();

// The dialog that lists the keys; single-letter keys can be switched off there.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element } = view;

  const keys = [
    ["1 – 6", "the views in the order of their tabs"],
    ["[ ]", "the layer before, the layer after"],
    [", .", "the head before, the head after"],
    ["Arrow keys", "in a picture: cell, token, patch or feature; in a group of buttons: the next button"],
    ["Shift + arrow keys", "ten cells or tokens at once"],
    ["Home, End, Page Up, Page Down", "the ends of a map or list"],
    ["+ − 0", "in the map: closer, farther, the whole of it"],
    ["Enter", "in the overview: opens the map; in the map: the lines of the query"],
    ["Escape", "chooses nothing"],
    ["e", "saves the view as SVG"],
    ["t", "next theme: automatic, light, dark"],
    ["?", "shows this list"],
  ];

  let dialog = null;
  view.makeHelp = () => {
    const rows = keys.map(([key, what]) => element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, what)));
    const single = element("input", { type: "checkbox", onchange: () => view.set({ keys: single.checked ? 1 : 0 }) });
    const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
    dialog = element("dialog", { "aria-labelledby": "keys-title" },
      element("h2", { id: "keys-title" }, "Keys"),
      element("table", {}, element("caption", { class: "unseen" }, "Keys and what they do"), element("tbody", {}, rows)),
      element("label", { class: "switch" }, single, "Digits, letters and signs are keys of the page"),
      close);
    dialog.refresh = () => (single.checked = view.state.keys === 1);
    return dialog;
  };

  view.showHelp = () => {
    dialog.refresh();
    if (!dialog.open) dialog.showModal();
  };
})();

// The page around the views: title, tabs, controls, details and messages.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element } = view;
  const order = ["grid", "map", "heads", "image", "neurons", "numbers"];
  const parts = {};

  view.offeredViews = () => order.map((id) => view.views.find((each) => each.id === id)).filter((each) => each.offered());
  view.shownView = () => {
    const offered = view.offeredViews();
    const named = (id) => offered.find((each) => each.id === id);
    return named(view.state.tab) || named(view.firstTab());
  };

  // The view that a page opens with: the picture of an image model, otherwise the grid if there are several
  // heads, the lines of a short text, or the map.
  view.firstTab = () => {
    if (view.offeredViews().some((each) => each.id === "image")) return "image";
    if (view.data.heads.length > 1) return "grid";
    return Math.max(view.layer().queries, view.layer().keys) <= 64 ? "heads" : "map";
  };

  view.notice = (text) => {
    parts.notice.textContent = text;
    clearTimeout(parts.timer);
    parts.timer = setTimeout(() => (parts.notice.textContent = ""), 4000);
  };

  view.focusStage = () => {
    refresh();
    const { stage } = view.shownView();
    if (stage) stage.focus();
  };

  function tabs() {
    const bar = element("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
    for (const each of view.offeredViews()) {
      const choose = () => view.set({ tab: each.id });
      bar.append(element("button", { type: "button", role: "tab", id: `tab-${each.id}`, "aria-controls": "view", onclick: choose }, each.title));
    }
    view.roving(bar);
    return bar;
  }

  function header() {
    const theme = element("select", { "aria-label": "Theme", onchange: () => view.set({ theme: theme.value }) });
    const themes = [["auto", "System colours"], ["light", "Light"], ["dark", "Dark"]];
    for (const [value, text] of themes) theme.append(element("option", { value }, text));
    parts.theme = theme;
    const save = element("button", { type: "button", onclick: () => view.exportSvg() }, "Save SVG");
    const help = element("button", { type: "button", "aria-label": "Keys", title: "Keys", onclick: () => view.showHelp() }, "?");
    const note = view.data.note ? element("p", {}, view.data.note) : null;
    const title = element("div", { class: "title" }, element("h1", {}, view.visibleTitle()), note);
    return element("header", {}, title, element("div", { class: "tools" }, theme, save, help));
  }
  view.visibleTitle = () => view.visible(view.data.title).replace(/·/g, " ");

  function refreshTabs(shown) {
    for (const tab of parts.tabs.children) {
      const selected = tab.id === `tab-${shown.id}`;
      tab.setAttribute("aria-selected", selected);
      tab.tabIndex = selected ? 0 : -1;
    }
  }

  function refreshPanel(shown) {
    if (parts.panel.firstChild !== shown.node) parts.panel.replaceChildren(shown.node);
    parts.panel.setAttribute("aria-labelledby", `tab-${shown.id}`);
    parts.main.classList.toggle("single", !shown.aside);
    parts.aside.hidden = !shown.aside;
    const beside = shown.asideNode || parts.details.node;
    if (shown.aside && parts.aside.firstChild !== beside) parts.aside.replaceChildren(beside);
  }

  function refreshControls(shown) {
    for (const control of parts.controls) {
      control.node.hidden = !shown.controls.includes(control.id) || (control.id === "layer" && view.data.layers.length === 1) ||
        (control.id === "heads" && view.layer().heads.length === 1) || (control.id === "picture" && !view.layer().rollout);
      control.refresh();
    }
    parts.bar.hidden = parts.controls.every((control) => control.node.hidden);
    parts.theme.value = view.state.theme;
  }

  // Weights are read when a view first needs them; until then it draws what is available.
  function loadFor(shown) {
    const broken = shown.needs().find((head) => head.problem);
    const missing = shown.needs().filter((head) => !head.ready && !head.problem);
    const text = broken ? `The weights of ${broken.name} cannot be shown: ${broken.problem}` : "";
    if (parts.error.textContent !== text) parts.error.textContent = text;
    parts.busy.textContent = missing.length ? "Reading weights …" : "";
    if (missing.length) Promise.all(missing.map((head) => head.load())).then(view.redraw);
  }

  view.refreshDetails = () => {
    const shown = view.shownView();
    if (shown.aside && !shown.asideNode) parts.details.refresh();
  };

  function refresh() {
    const shown = view.shownView();
    if (shown.shows && !shown.shows(view.layer())) return view.toLayer(view.data.layers.find((layer) => shown.shows(layer)).index);
    document.documentElement.dataset.theme = view.state.theme;
    refreshTabs(shown);
    refreshControls(shown);
    refreshPanel(shown);
    loadFor(shown);
    shown.refresh();
    view.refreshDetails();
  }

  view.makeShell = (root) => {
    parts.tabs = tabs();
    parts.controls = view.makeControls();
    parts.bar = element("section", { class: "controls", "aria-label": "Controls" }, parts.controls.map((control) => control.node));
    parts.panel = element("div", { class: "panel", id: "view", role: "tabpanel" });
    parts.details = view.makeDetails();
    parts.aside = element("aside", { tabindex: 0, "aria-label": "Numbers of what is shown" });
    parts.main = element("main", {}, parts.panel, parts.aside);
    parts.notice = element("div", { class: "notice", role: "status" });
    parts.busy = element("div", { class: "busy" });
    parts.error = element("div", { class: "error", role: "alert" });
    const bars = element("nav", { "aria-label": "Views" }, parts.tabs);
    const unseen = [parts.busy, parts.notice, view.makeTeller(), view.makeHelp()];
    root.replaceChildren(header(), bars, parts.bar, parts.error, parts.main, ...unseen);
    view.onChange(refresh);
    new ResizeObserver(view.redraw).observe(parts.main);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", view.redraw);
  };
})();

// Keys that work everywhere on the page.
(() => {
  "use strict";
  const view = window.attentiveView;

  const themes = ["auto", "light", "dark"];
  const toTab = (n) => {
    const tab = view.offeredViews()[n];
    if (tab) view.set({ tab: tab.id });
  };
  function stepHead(step) {
    const usable = view.shownView().headNumbers ? view.shownView().headNumbers() : null;
    const heads = view.layer().heads.filter((head) => !usable || usable.includes(head.number));
    const next = heads[heads.indexOf(view.head()) + step];
    if (next) view.set({ head: next.index, heads: [next.index] });
  }

  const single = {
    "[": () => view.toLayer(view.state.layer - 1), "]": () => view.toLayer(view.state.layer + 1),
    ",": () => stepHead(-1), ".": () => stepHead(1),
    e: () => view.exportSvg(), "?": () => view.showHelp(),
    t: () => view.set({ theme: themes[(themes.indexOf(view.state.theme) + 1) % themes.length] }),
  };
  for (let n = 1; n <= 6; n++) single[n] = () => toTab(n - 1);

  view.watchKeys = () =>
    document.addEventListener("keydown", (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("input, select, textarea, dialog")) return;
      if (event.key === "Escape") {
        view.hover = null;
        return view.set({ query: null, key: null });
      }
      if (view.state.keys && single[event.key]) {
        event.preventDefault();
        single[event.key]();
      }
    });
})();

// Starts the page.
(() => {
  "use strict";
  const view = window.attentiveView;

  const tooOld = "this browser cannot unpack the weights; Chrome 103, Firefox 113 and Safari 16.4 can";

  function start() {
    const root = document.getElementById("app");
    try {
      if (!window.DecompressionStream) throw new Error(tooOld);
      view.readData();
      document.title = view.visibleTitle();
      view.makeShell(root);
      view.readHash();
      view.watchKeys();
      view.watchPrint();
      window.addEventListener("hashchange", view.readHash);
    } catch (error) {
      root.replaceChildren(view.element("p", { class: "error", role: "alert" }, `The page cannot be shown: ${error.message}`));
      throw error;
    }
  }
  start();
})();

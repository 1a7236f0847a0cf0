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

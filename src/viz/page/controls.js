// The bar above the picture: layer, heads, and the controls of a single view. Each control is { id, node,
// refresh }.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element } = view;

  function field(label, input) {
    return element("label", { class: "field" }, element("span", {}, label), input);
  }

  // A select element whose options are [value, text].
  view.selectControl = (id, label, name, options) => {
    const chosen = element("select", { "data-state": name, onchange: () => view.set({ [name]: chosen.value }) });
    for (const [value, text] of options) chosen.append(element("option", { value }, text));
    return { id, node: field(label, chosen), refresh: () => (chosen.value = view.state[name]) };
  };

  view.sliderControl = (id, label, name, { min, max, step, value = () => view.state[name], text = view.number }) => {
    const shown = element("output", {});
    const input = element("input", { type: "range", min, max, step, "data-state": name });
    input.addEventListener("input", () => view.set({ [name]: Number(input.value) }));
    const refresh = () => {
      input.value = value();
      shown.textContent = text(value());
    };
    return { id, node: element("div", { class: "field" }, field(label, input), shown), refresh };
  };

  function layerControl() {
    const list = element("select", { "data-state": "layer", onchange: () => view.toLayer(Number(list.value)) });
    view.data.layers.forEach((layer, n) => list.append(element("option", { value: n }, layer.name)));
    return { id: "layer", node: field("Layer", list), refresh: () => (list.value = view.state.layer) };
  }

  // Arrow keys move within a group of buttons, of which Tab reaches only one.
  view.roving = (group, steps = () => ({ ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 })) => {
    const buttons = () => Array.from(group.querySelectorAll("button:not([hidden])"));
    const enter = (one) => buttons().forEach((each) => (each.tabIndex = each === one ? 0 : -1));
    group.addEventListener("focusin", (event) => enter(event.target.closest("button")));
    group.addEventListener("keydown", (event) => {
      const all = buttons();
      const from = all.indexOf(document.activeElement);
      const jump = { Home: -from, End: all.length - 1 - from, ...steps() }[event.key];
      if (jump === undefined || from < 0) return;
      const to = all[from + jump];
      if (to) to.focus();
      event.preventDefault();
      event.stopPropagation();
    });
    return { settle: (one) => enter(one || buttons()[0]) };
  };

  function toggleHead(n, many) {
    if (!many) return view.set({ head: n, heads: [n] });
    const { heads } = view.state;
    const next = heads.includes(n) ? heads.filter((each) => each !== n) : [...heads, n];
    view.set({ heads: next.length ? next : [n], head: next.includes(n) ? n : (next[0] ?? n) });
  }

  // The heads of the layer: several can be chosen in a view with `many`, only one in the others.
  function headsControl() {
    const group = element("div", { class: "chips", role: "group", "aria-label": "Heads" });
    const all = element("button", { type: "button", class: "plain", onclick: () => view.set(everyHead()) }, "all");
    const node = element("div", { class: "field heads" }, element("span", {}, "Heads"), group, all);
    const roving = view.roving(group);
    let drawn = null;
    const everyHead = () => ({ heads: view.layer().heads.map((_, n) => n) });
    function rebuild(layer) {
      const chip = (head, n) =>
        element("button", { type: "button", "aria-label": head.name, onclick: () => toggleHead(n, view.shownView().many),
          onpointerenter: () => view.showAlone(head), onpointerleave: () => view.showAlone(null) },
          element("i", {}), String(head.number));
      group.replaceChildren(...layer.heads.map(chip));
      drawn = layer;
    }
    function refresh() {
      const many = Boolean(view.shownView().many);
      if (drawn !== view.layer()) rebuild(view.layer());
      const usable = view.shownView().headNumbers ? view.shownView().headNumbers() : null;
      node.firstChild.textContent = many ? "Heads" : "Head";
      all.hidden = !many || drawn.heads.length === 1;
      Array.from(group.children).forEach((button, n) => {
        const pressed = many ? view.state.heads.includes(n) : view.state.head === n;
        button.setAttribute("aria-pressed", pressed);
        button.hidden = Boolean(usable) && !usable.includes(drawn.heads[n].number);
        button.style.setProperty("--own", view.headColour(drawn.heads[n]));
      });
      if (!group.contains(document.activeElement)) roving.settle(group.children[view.state.head]);
    }
    return { id: "heads", node, refresh };
  }

  view.buttonsControl = (id, label, buttons) => {
    const made = buttons.map(([text, name, action]) =>
      element("button", { type: "button", "aria-label": name, title: name, onclick: action }, text));
    return { id, node: element("div", { class: "field", role: "group", "aria-label": label }, ...made), refresh: () => {} };
  };

  view.makeControls = () => {
    const sorts = [["layer", "layer"], ["entropy", "entropy"], ["distance", "distance"],
      ["previous", "share of the previous token"], ["first", "share of the first token"]];
    const scales = [["row", "share of the query’s largest"], ["head", "share of the head’s largest"]];
    const pictures = [["head", "attention of the head"], ["rollout", "rollout up to this layer"]];
    return [
      layerControl(),
      headsControl(),
      view.sliderControl("per", "Lines of a query", "per",
        { min: 1, max: view.everyLine, step: 1, value: view.linesOfEach, text: (n) => (n < view.everyLine ? String(n) : "all") }),
      view.sliderControl("min", "Weights from", "min", { min: 0, max: 0.5, step: 0.001, value: view.leastWeight }),
      view.selectControl("sort", "Order by", "sort", sorts),
      view.selectControl("scale", "Colours", "scale", scales),
      view.buttonsControl("zoom", "Zoom", [["−", "Zoom out", () => view.zoomMap(1 / 1.5)], ["+", "Zoom in", () => view.zoomMap(1.5)],
        ["Fit", "Show the whole map", () => view.set({ at: null })]]),
      view.selectControl("picture", "Over the patches", "picture", pictures),
      view.sliderControl("blend", "Opacity", "blend", { min: 0, max: 1, step: 0.05 }),
      view.selectControl("features", "Order by", "features", [["order", "feature"], ["size", "size of q·k"]]),
      view.buttonsControl("copy", "Table", [["Copy table", "Copy the table as tab-separated text", () => view.copyStatistics()]]),
    ];
  };
})();

// The grid: every head of every layer as a small map; a click opens it.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, number } = view;

  const measures = {
    entropy: { title: "entropy", of: (raw) => raw.entropy, unit: " bits" },
    distance: { title: "mean distance", of: (raw) => raw.distance, unit: "" },
    previous: { title: "weight of the previous token", of: (raw) => raw.previous, unit: "" },
    first: { title: "weight of the first token", of: (raw) => raw.first, unit: "" },
  };

  // From the largest; heads without the number come last.
  function ordered() {
    const heads = [...view.data.heads];
    const measure = measures[view.state.sort];
    if (!measure) return heads;
    const size = (head) => measure.of(head.raw) ?? -Infinity;
    return heads.sort((a, b) => size(b) - size(a));
  }

  function shortText(head) {
    const measure = measures[view.state.sort];
    return measure ? number(measure.of(head.raw)) : String(head.number);
  }
  function longText(head) {
    const known = Object.values(measures).filter(({ of }) => of(head.raw) !== null);
    const parts = known.map(({ title, of, unit }) => `${title} ${number(of(head.raw))}${unit}`);
    return [`${head.layer.name}, ${head.name}`, ...parts].join(", ");
  }

  function open(head) {
    view.set({ tab: "map", layer: head.layer.index, head: head.index, heads: [head.index], at: null });
    view.focusStage();
  }

  const list = element("div", { class: "grid" });
  const note = element("p", { class: "note" });
  const node = element("div", { class: "gridview" }, list, note);
  let drawn = "";

  function tile(head, sorted) {
    const canvas = element("canvas", { width: head.raw.thumb_columns, height: head.raw.thumb_size, "aria-hidden": "true" });
    canvas.getContext("2d").drawImage(head.thumb(), 0, 0);
    const text = sorted ? [element("b", {}, `${head.layer.index}·${head.number}`), " ", shortText(head)] : [shortText(head)];
    return element("button", { type: "button", "aria-label": longText(head), title: longText(head), onclick: () => open(head) },
      canvas, element("span", {}, ...text));
  }

  // A row a layer, with its path before it; or one flow of tiles with their place written below.
  function rebuild() {
    const sorted = view.state.sort !== "layer";
    list.classList.toggle("sorted", sorted);
    if (sorted) return list.replaceChildren(element("div", { class: "row" }, ordered().map((head) => tile(head, true))));
    const row = (layer) =>
      element("div", { class: "row", role: "group", "aria-label": layer.name },
        element("div", { class: "path", title: layer.name }, element("span", {}, layer.name)),
        layer.heads.map((head) => tile(head, false)));
    list.replaceChildren(...view.data.layers.map(row));
  }

  // The button above or below: the nearest one of the next line of tiles.
  function vertical(from, down) {
    const box = from.getBoundingClientRect();
    let best = null;
    for (const each of list.querySelectorAll("button")) {
      const other = each.getBoundingClientRect();
      const dy = down ? other.top - box.top : box.top - other.top;
      if (dy < 4) continue;
      const far = dy * 1000 + Math.abs(other.left - box.left);
      if (!best || far < best.far) best = { far, each };
    }
    return best && best.each;
  }
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const target = vertical(document.activeElement, event.key === "ArrowDown");
    if (target) target.focus();
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  const roving = view.roving(list, () => ({ ArrowLeft: -1, ArrowRight: 1 }));

  // For SVG: tiles of 64 pixels, with the same texts.
  const cell = 64;
  function place(head, n) {
    if (view.state.sort === "layer") {
      const row = head.layer.index;
      return { x: 150 + head.index * (cell + 12), y: 16 + row * (cell + 30) };
    }
    return { x: 16 + (n % 12) * (cell + 12), y: 16 + Math.floor(n / 12) * (cell + 30) };
  }

  view.views.push({
    id: "grid", title: "Overview", node, aside: false, controls: ["sort"],
    offered: () => true,
    needs: () => [],
    refresh() {
      const name = `${view.state.sort} ${view.isDark()}`;
      if (name !== drawn) {
        rebuild();
        roving.settle();
        drawn = name;
      }
      note.textContent = `${view.counted(view.data.heads.length, "head")} in ${view.counted(view.data.layers.length, "layer")}. ` +
        "A tile shows the largest weight in each part of the map, as a share of its query’s largest.";
    },
    extent() {
      const corners = ordered().map(place);
      return { width: Math.max(...corners.map(({ x }) => x)) + cell + 16, height: Math.max(...corners.map(({ y }) => y)) + cell + 30 };
    },
    drawOn(surface) {
      const theme = view.theme();
      if (view.state.sort === "layer") view.data.layers.forEach((layer, row) =>
        surface.text(138, 16 + row * (cell + 30) + cell / 2, layer.name, { size: 12, fill: theme.soft, align: "right", room: 122 }));
      ordered().forEach((head, n) => {
        const { x, y } = place(head, n);
        const { thumb_columns: columns, thumb_size: rows } = head.raw;
        surface.hatch(x, y, cell, cell);
        surface.image(head.thumb(), [0, 0, columns, rows], [x, y, cell, cell]);
        surface.frame(x, y, cell, cell, theme.rule);
        const text = view.state.sort === "layer" ? shortText(head) : `${head.layer.index}·${head.number}  ${shortText(head)}`;
        surface.text(x, y + cell + 11, text, { size: 11, fill: theme.soft });
      });
    },
    caption: () => "Every head of every layer",
    fileDetail: () => "",
  });
})();

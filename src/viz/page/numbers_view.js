// The numbers view: a row for each head; columns can be sorted, and the table can be copied.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, number } = view;

  // A sum of weights that differs from 1 only by rounding is not a sink.
  const roundedText = (value) => (value !== null && Math.abs(value) < 1e-6 ? "0" : number(value));
  const columns = [
    { id: "layer", title: "Layer", value: (head) => head.layer.index, text: (head) => head.layer.name },
    { id: "head", title: "Head", value: (head) => head.number, text: (head) => String(head.number) },
    { id: "entropy", title: "Entropy", help: "bits, mean over the queries that see a key" },
    { id: "entropy_share", title: "Entropy share",
      help: "entropy divided by that of equal weights, mean over the queries that see two keys or more" },
    { id: "distance", title: "Distance", help: "mean of weight times distance between query and key" },
    { id: "previous", title: "Previous token", help: "mean weight of the key just before the query" },
    { id: "first", title: "First token", help: "mean weight of key 0" },
    { id: "sink", title: "Sink", help: "share that no key takes: 1 less the sum of the weights" },
  ].map((column) => ({ value: (head) => head.raw[column.id], text: (head) => roundedText(head.raw[column.id]), ...column }));

  // Empty values come last in either order.
  function ordered() {
    const column = columns.find((each) => each.id === view.state.column);
    const sign = view.state.down ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x - y);
    };
    return [...view.data.heads].sort(compare);
  }

  function sortBy(id) {
    const again = view.state.column === id;
    view.set({ column: id, down: again ? 1 - view.state.down : id === "layer" || id === "head" ? 0 : 1 });
  }

  const heads = columns.map((column) => {
    const sort = () => sortBy(column.id);
    return element("th", { scope: "col" }, element("button", { type: "button", title: column.help, onclick: sort }, column.title));
  });
  const body = element("tbody", {});
  const table = element("table", { class: "statistics" },
    element("caption", { class: "unseen" }, "Statistics of every head"), element("thead", {}, element("tr", {}, heads)), body);
  const box = element("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": "Statistics of every head" }, table);
  const node = element("div", { class: "numbers" }, box,
    element("dl", { class: "meanings" }, columns.filter((column) => column.help).map((column) =>
      element("div", {}, element("dt", {}, column.title), element("dd", {}, column.help)))));

  function open(head) {
    view.set({ tab: "map", layer: head.layer.index, head: head.index, heads: [head.index], at: null });
    view.focusStage();
  }

  function row(head) {
    const name = `Open the map of ${head.layer.name}, ${head.name}`;
    const link = element("button", { type: "button", class: "plain", "aria-label": name, onclick: () => open(head) }, String(head.number));
    const cells = columns.map((column) => {
      if (column.id === "head") return element("td", {}, link);
      if (column.id === "layer") return element("th", { scope: "row" }, column.text(head));
      return element("td", {}, column.text(head));
    });
    return element("tr", {}, cells);
  }

  // The clipboard gets full precision; undefined numbers stay empty.
  const asText = () => {
    const lines = [columns.map((column) => column.title)];
    const field = (column, head) => (column.id === "layer" ? column.text(head) : (column.value(head) ?? ""));
    for (const head of ordered()) lines.push(columns.map((column) => field(column, head)));
    return lines.map((line) => line.map((field) => String(field).replace(/[\t\r\n]/g, " ")).join("\t")).join("\n") + "\n";
  };
  view.copyStatistics = () => view.copyText(asText(), "table");

  let drawn = "";
  view.views.push({
    id: "numbers", title: "Numbers", node, aside: false, controls: ["copy"],
    offered: () => true,
    needs: () => [],
    refresh() {
      const name = `${view.state.column} ${view.state.down}`;
      if (name === drawn) return;
      drawn = name;
      body.replaceChildren(...ordered().map(row));
      heads.forEach((each, n) => {
        const sorts = columns[n].id === view.state.column;
        each.setAttribute("aria-sort", sorts ? (view.state.down ? "descending" : "ascending") : "none");
      });
    },
    extent: () => ({ width: 960, height: 44 + 20 * view.data.heads.length }),
    drawOn(surface) {
      const theme = view.theme();
      const x = (n) => (n === 0 ? 16 : 130 + n * 116);
      const look = (n) => (n === 0 ? { size: 12, align: "left", room: 170 } : { size: 12, align: "right", room: 112 });
      const write = (text, n, y, fill) => surface.text(x(n), y, text, { ...look(n), fill });
      columns.forEach((column, n) => write(column.title, n, 16, theme.soft));
      surface.rect(16, 28, 928, 1, theme.rule);
      ordered().forEach((head, k) => columns.forEach((column, n) => write(column.text(head), n, 42 + 20 * k, theme.ink)));
    },
    caption: () => "Statistics of every head",
    fileDetail: () => "",
  });
})();

// The panel next to the picture: the numbers of the cell under the pointer, and the top keys of the query as
// tables. It also serves readers who cannot see the picture.
(() => {
  "use strict";
  const view = window.attentiveView;
  const { element, isolated, number } = view;

  function term(name, ...value) {
    return element("div", {}, element("dt", {}, name), element("dd", {}, ...value));
  }

  view.weightText = (head, i, j) => {
    const weight = head.weight(i, j);
    if (weight === null) return "hidden";
    return weight === 0 ? zeroText(head, i) : `${number(weight)} ± ${number(head.step(i) / 2, 2)}`;
  };
  // A weight of 0 steps is only known to be less than half a step.
  const zeroText = (head, i) => (head.step(i) > 0 ? `< ${number(head.step(i) / 2, 2)}` : "0");
  view.scoreText = (score) => (score === null ? "–" : (score.below ? "< " : "") + number(score.value));
  view.rankText = ({ rank, exact, visible }) => `${exact ? "" : "about "}${view.count(rank)} of ${view.count(visible)}`;

  function cellTerms(head, i, j) {
    if (head.steps(i, j) < 0) return [term("Weight", "hidden by the mask")];
    const terms = [term("Weight", view.weightText(head, i, j)), term("Step", number(head.step(i)))];
    if (head.logsumexp) terms.push(term("Score", view.scoreText(head.score(i, j))));
    return [...terms, term("Rank", view.rankText(head.rank(i, j)))];
  }

  function sideTerm(name, tokens, position) {
    return position === null ? null : term(name, String(position), ...(tokens.list ? [" ", isolated(tokens.at(position))] : []));
  }

  const hint = "Point at the picture, or move in it with the arrow keys, to read its numbers.";
  const shownRollout = () => (view.shownView().rollout ? view.shownView().rollout() : null);

  function readout(layer, head, { query, key }) {
    if (query === null && key === null) return element("p", { class: "readout quiet" }, hint);
    const list = element("dl", { class: "readout" });
    list.append(...[sideTerm("Query", layer.queryTokens, query), sideTerm("Key", layer.keyTokens, key)].filter(Boolean));
    const rollout = shownRollout();
    if (rollout && key !== null) list.append(term("Rollout", number(rollout[key])));
    else if (query !== null && key !== null && head.ready) list.append(...cellTerms(head, query, key));
    return list;
  }

  function topRow(head, query, key) {
    const weight = head.weight(query, key);
    const bar = element("td", { class: "weight", style: `--share:${view.clamp(weight, 0, 1)};--own:${view.headColour(head)}` },
      weight === 0 ? zeroText(head, query) : number(weight));
    return element("tr", {}, keyCell(head.layer.keyTokens, key), bar, head.logsumexp ? element("td", {}, view.scoreText(head.score(query, key))) : null);
  }

  function keyCell(tokens, key) {
    return element("td", {}, tokens.list ? [element("small", {}, String(key)), " ", isolated(tokens.at(key))] : String(key));
  }

  // A table of the keys with the largest rollout, shown in place of the head's keys.
  function rolloutTable(layer, rollout) {
    const keys = Array.from(rollout, (_, key) => key).sort((a, b) => rollout[b] - rollout[a]).slice(0, 8);
    const row = (key) => element("tr", {}, keyCell(layer.keyTokens, key), element("td", {}, number(rollout[key])));
    const header = ["Key", "Rollout"].map((text) => element("th", { scope: "col" }, text));
    return element("table", { class: "top" }, element("caption", {}, "Largest rollout of the class token"),
      element("thead", {}, element("tr", {}, header)), element("tbody", {}, keys.map(row)));
  }

  function topTable(head, query) {
    const keys = head.topKeys(query);
    const title = element("caption", {}, element("i", { style: `--own:${view.headColour(head)}` }), `Top keys of ${head.name}`);
    const header = ["Key", "Weight", ...(head.logsumexp ? ["Score"] : [])].map((text) => element("th", { scope: "col" }, text));
    const rows = keys.map((key) => topRow(head, query, key));
    if (!keys.length) rows.push(element("tr", {}, element("td", { colspan: header.length }, "This query sees no key.")));
    return element("table", { class: "top" }, title, element("thead", {}, element("tr", {}, header)), element("tbody", {}, rows));
  }

  // The query whose top keys are listed. If none is chosen: the class token of an image, otherwise the last
  // query, which sees most keys.
  view.listedQuery = () => view.point().query ?? view.state.query ?? (view.shownView().id === "image" ? 0 : view.layer().queries - 1);

  view.makeDetails = () => {
    const cell = element("div", {});
    const heading = element("h2", {});
    const tables = element("div", { class: "tables" });
    const note = element("p", { class: "note" });
    let listed = "";
    let resting = 0;
    // While the pointer moves, the tables are not updated: a dozen of them take longer than the picture.
    function refreshTables(layer, heads, query) {
      const name = [layer.index, query, view.theme().dark, shownRollout() !== null, ...heads.map((head) => [head.index, head.ready])].join();
      clearTimeout(resting);
      if (name === listed) return;
      if (view.hover) resting = setTimeout(() => fillTables(layer, heads, query, name), 80);
      else fillTables(layer, heads, query, name);
    }
    function fillTables(layer, heads, query, name) {
      listed = name;
      heading.replaceChildren("Query ", String(query), ...(layer.queryTokens.list ? [" ", isolated(layer.queryTokens.at(query))] : []));
      const rollout = shownRollout();
      note.hidden = rollout !== null;
      if (rollout) return tables.replaceChildren(rolloutTable(layer, rollout));
      const ready = heads.filter((head) => head.ready);
      tables.replaceChildren(...ready.map((head) => topTable(head, query)));
      if (ready.length === 0) return (note.textContent = "");
      const step = number(Math.max(...ready.map((head) => head.step(query))));
      note.textContent = `Weights of this query are shown in steps of ${step}: each is within half a step of the tensor’s.`;
    }
    function refresh() {
      const layer = view.layer();
      cell.replaceChildren(readout(layer, view.head(), view.point()));
      const heads = view.shownView().many ? view.chosenHeads() : [view.head()];
      refreshTables(layer, heads, view.listedQuery());
    }
    return { node: element("div", {}, cell, heading, tables, note), refresh };
  };

  // The text that a screen reader speaks for a cell.
  view.spokenCell = (head, i, j) => {
    const { queryTokens, keyTokens } = head.layer;
    const names = `${queryTokens.named(i)}, ${keyTokens.named(j)}`;
    if (!head.ready) return names;
    if (head.steps(i, j) < 0) return `${names}: hidden`;
    return `${names}: weight ${number(head.weight(i, j))}, rank ${view.rankText(head.rank(i, j))}`;
  };
})();

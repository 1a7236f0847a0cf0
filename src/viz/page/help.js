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

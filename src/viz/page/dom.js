// Creates elements, formats numbers, and announces changes to screen readers. The page's scripts share the
// object `attentiveView` of the window: they are no modules, because a page opened from disk cannot import any.
(() => {
  "use strict";
  const view = (window.attentiveView = window.attentiveView || {});

  function setAttribute(node, name, value) {
    if (value === null || value === undefined || value === false) return;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }

  // element("button", { type: "button", onclick: f }, "text", child): children that are null are skipped.
  view.element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) setAttribute(node, key, value);
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  };

  // A token inside other text, isolated so that its writing direction does not affect its neighbours.
  view.isolated = (text) => view.element("bdi", {}, text);

  // A dotted name that may break only after its dots.
  view.breakable = (name) => name.split(/(?<=\.)/).flatMap((part, n) => (n ? [view.element("wbr"), part] : [part]));

  // Four significant digits by default, without trailing zeros.
  view.number = (value, digits = 4) => {
    if (value === null || value === undefined) return "–";
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : value > 0 ? "∞" : "−∞";
    const size = Math.abs(value);
    const far = size !== 0 && (size < 1e-4 || size >= 1e6);
    const text = far ? value.toExponential(Math.min(digits - 1, 2)) : String(+value.toPrecision(digits));
    return text.replace("-", "−").replace("e−", "e-");
  };

  view.count = (value) => value.toLocaleString("en");

  // "1 key", "2 keys".
  view.counted = (value, noun) => `${view.count(value)} ${noun}${value === 1 ? "" : "s"}`;

  let teller = null;
  view.makeTeller = () => (teller = view.element("div", { class: "unseen", role: "status", "aria-live": "polite" }));
  view.tell = (text) => {
    if (teller && teller.textContent !== text) teller.textContent = text;
  };

  view.clamp = (value, low, high) => Math.min(Math.max(value, low), Math.max(low, high));

  // Calls `task` before the next frame, once, however often it is requested.
  view.onceAFrame = (task) => {
    let asked = false;
    return () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => {
        asked = false;
        task();
      });
    };
  };

  // Lets the browser draw and handle input between two slices of a long computation.
  view.pause = () => new Promise((resolve) => setTimeout(resolve, 0));
})();

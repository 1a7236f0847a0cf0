// Draws the current view as an SVG document, for a file and for printing in place of the canvas. All scripts
// of the page share the global object attentiveView, because modules do not load from disk.
(() => {
  "use strict";
  const view = window.attentiveView;

  const fileName = (text) => text.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^-+|-+$/g, "") || "attention";

  // A view states its extent, { width, height }, and draws itself on a surface of that size.
  view.svgOf = (shown) => {
    const { width, height } = shown.extent();
    const surface = new view.SvgSurface(width, height, `${view.data.title}: ${shown.caption()}`);
    shown.drawOn(surface);
    return surface;
  };

  view.exportSvg = () => {
    const shown = view.shownView();
    const name = fileName([view.data.title, shown.id, shown.fileDetail()].filter(Boolean).join("-"));
    view.download(`${name}.svg`, "image/svg+xml", view.svgOf(shown).toString());
  };

  let figure = null;
  function beforePrint() {
    const shown = view.shownView();
    afterPrint();
    const drawing = view.withPrintColours(() => {
      view.refreshDetails();
      return view.svgOf(shown).svg;
    });
    figure = view.element("figure", { class: "printed" }, view.element("figcaption", {}, shown.caption()));
    figure.append(drawing);
    document.querySelector("main").prepend(figure);
  }
  function afterPrint() {
    if (!figure) return;
    figure.remove();
    figure = null;
    view.redraw();
  }

  view.watchPrint = () => {
    window.addEventListener("beforeprint", beforePrint);
    window.addEventListener("afterprint", afterPrint);
  };
})();

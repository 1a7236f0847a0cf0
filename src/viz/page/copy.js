// Copies text to the clipboard, and saves files.
(() => {
  "use strict";
  const view = window.attentiveView;

  // In some browsers, pages from disk are not a secure context; there, text can be copied from a selected
  // text area.
  function copyBySelection(text) {
    const area = view.element("textarea", { class: "unseen", "aria-hidden": "true" });
    const focused = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (focused) focused.focus();
    return done;
  }

  view.copyText = async (text, what) => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = copyBySelection(text);
    }
    view.notice(done ? `${what} copied` : "this browser does not let the page copy; select the table instead");
  };

  view.download = (name, type, text) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = view.element("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    view.notice(`${name} saved`);
  };
})();

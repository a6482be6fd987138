// Keeps a page alive: told that something has changed, it asks for the same page again and swaps what is marked with data-live.

const state = document.querySelector("[data-live-state]");
let isAsking = false;
let isStale = false;

function isBusy(element) {
  const active = document.activeElement;
  if (element.contains(active) && active.matches("input, textarea, select")) return true;
  if (element.querySelector("details.confirm[open]")) return true;
  for (const field of element.querySelectorAll("input:not([type=hidden]), textarea, select")) {
    if (field.type === "checkbox" || field.type === "radio") {
      if (field.checked !== field.defaultChecked) return true;
    } else if (field.tagName === "SELECT") {
      if ([...field.options].some((option) => option.selected !== option.defaultSelected && option.defaultSelected)) return true;
    } else if (field.value !== field.defaultValue) return true;
  }
  return false;
}

function swap(old, fresh) {
  const open = [...old.querySelectorAll("details")].map((one) => one.open);
  const scrolls = [...old.querySelectorAll(".code, .table-wrap")].map((one) => [one.scrollTop, one.scrollLeft]);
  const focused = old.contains(document.activeElement) ? [...old.querySelectorAll("a, button, summary")].indexOf(document.activeElement) : -1;
  const next = document.importNode(fresh, true);
  const details = [...next.querySelectorAll("details")];
  if (details.length === open.length) details.forEach((one, at) => (one.open = open[at]));
  old.replaceWith(next);
  [...next.querySelectorAll(".code, .table-wrap")].forEach((one, at) => {
    if (scrolls[at]) [one.scrollTop, one.scrollLeft] = scrolls[at];
  });
  if (focused >= 0) [...next.querySelectorAll("a, button, summary")][focused]?.focus({ preventScroll: true });
  document.dispatchEvent(new CustomEvent("peik:swapped", { detail: next }));
}

async function refresh() {
  if (isAsking || document.hidden) {
    isStale = true;
    return;
  }
  isAsking = true;
  isStale = false;
  try {
    const answer = await fetch(location.href, { headers: { "X-Peik-Live": "1" }, redirect: "manual" });
    if (answer.type === "opaqueredirect") return location.reload(); // signed out
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    // The word of the session is written otherwise each time: that alone is no change.
    const word = document.querySelector("input[name=csrf]")?.getAttribute("value");
    if (word) for (const one of fresh.querySelectorAll("input[name=csrf]")) one.setAttribute("value", word);
    for (const old of document.querySelectorAll("[data-live]")) {
      const found = fresh.querySelector(`[data-live="${CSS.escape(old.dataset.live)}"]`);
      if (found && !isBusy(old) && !old.isEqualNode(found)) swap(old, found);
    }
  } catch {
    // The stream notices by itself that nobody answers.
  } finally {
    isAsking = false;
  }
}

function show(isOn) {
  if (!state) return;
  state.hidden = false;
  state.textContent = isOn ? state.dataset.on : state.dataset.off;
  state.classList.toggle("off", !isOn);
}

if (document.querySelector("[data-live]:not(.badge-link)")) {
  let stream = null;
  const open = () => {
    stream = new EventSource("/admin/live");
    stream.addEventListener("open", () => show(true));
    stream.addEventListener("error", () => {
      show(false);
      if (stream?.readyState !== EventSource.CLOSED) return; // it comes again by itself
      stream = null;
      refresh(); // perhaps this is signed out
      setTimeout(() => !stream && !document.hidden && open(), 5000);
    });
    stream.addEventListener("tick", refresh);
  };
  const close = () => {
    stream?.close();
    stream = null;
  };
  // A browser has six connections to a server: pages in the background must not hold them.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else {
      if (!stream) open();
      if (isStale) refresh();
    }
  });
  if (!document.hidden) open();
  addEventListener("pagehide", close);
}
document.addEventListener("peik:reload", refresh);

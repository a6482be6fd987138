// Small comforts of every page: instants in the reader's own zone, keys, one open menu at a time.

const zone = new Intl.DateTimeFormat(document.documentElement.lang === "fa" ? "fa-IR-u-nu-latn" : document.documentElement.lang, {
  dateStyle: "medium",
  timeStyle: "medium",
});

export function localise(root) {
  for (const time of root.querySelectorAll("time[data-ms]")) {
    time.title = time.textContent;
    time.textContent = zone.format(new Date(time.dataset.ms ? Number(time.dataset.ms) : time.dateTime));
    time.removeAttribute("data-ms");
    time.dir = "auto";
  }
}

localise(document);
document.addEventListener("peik:swapped", (event) => localise(event.detail));

const places = { o: "/admin", l: "/admin/letters", d: "/admin/dead", a: "/admin/arrivals", b: "/admin/bots" };
let isGoing = false;

function move(step) {
  const rows = [...document.querySelectorAll("table.rows tbody tr a:first-of-type")].filter((link) => link.closest("tr").querySelector("a") === link);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + step))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  if (isGoing) {
    isGoing = false;
    if (places[event.key]) location.assign(places[event.key]);
    return;
  }
  if (event.key === "/") {
    document.getElementById("search")?.focus();
    event.preventDefault();
  } else if (event.key === "?") document.getElementById("help")?.showModal();
  else if (event.key === "g") isGoing = true;
  else if (event.key === "r") document.dispatchEvent(new CustomEvent("peik:reload"));
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
});

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open], details.confirm[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

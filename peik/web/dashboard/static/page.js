// Small comforts of every page: the browser's own zone, keys, one open menu at a time.


const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !/(^|; )peik_zone=/.test(document.cookie)) {
  // A cookie takes no slash. Whoever has chosen a zone in the menu keeps it; whoever has not sees this one from the next page on.
  document.cookie = `peik_zone=${zone.replaceAll("/", ".")}; path=/admin; max-age=31536000; samesite=lax`;
}

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

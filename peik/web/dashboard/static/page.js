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

// A search that looked through a part goes on by itself, as long as the page is looked at and there is little on it.
const FULL = 100;
let looks = 0;

async function further(place) {
  const link = place.querySelector("a[rel=next]");
  if (!link || looks++ >= 200) return;
  const answer = await fetch(link.href, { redirect: "manual" }).catch(() => null);
  if (!answer?.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(`[data-further="${place.dataset.further}"]`);
  if (!fresh) return;
  const found = fresh.previousElementSibling;
  const here = place.previousElementSibling;
  if (here.matches(".empty")) here.replaceWith(document.importNode(found, true));
  else if (found.matches(".table-wrap")) here.querySelector("tbody").append(...[...found.querySelectorAll("tbody tr")].map((row) => document.importNode(row, true)));
  const next = document.importNode(fresh, true);
  place.replaceWith(next);
  if (document.querySelectorAll(".rows tbody tr").length < FULL && !document.hidden) further(next);
}

for (const place of document.querySelectorAll("[data-further]")) if (place.closest("main").querySelectorAll(".rows tbody tr").length < FULL / 2) further(place);

// Small comforts of every page: the browser's own zone, keys, one open menu at a time.


const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !/(^|; )peik_zone=/.test(document.cookie)) {
  // A cookie takes no slash. Whoever has chosen a zone in the menu keeps it; whoever has not sees this one from the next page on.
  document.cookie = `peik_zone=${zone.replaceAll("/", ".")}; path=/admin; max-age=31536000; samesite=lax`;
}

const places = { o: "/admin", l: "/admin/letters", d: "/admin/dead", a: "/admin/arrivals", b: "/admin/bots" };
let isGoing = false;
const KEYS = new Set(["/", "?", "g", "r", "j", "k", "x", ...Object.keys(places)]);

// A keyboard with another alphabet has the same keys at the same places, with other letters on them.
function keyOf(event) {
  if (KEYS.has(event.key)) return event.key;
  if (event.code === "Slash" && /[^A-Za-z0-9_-]/.test(event.key)) return event.shiftKey ? "?" : "/";
  return /^[^\x00-\x7f]$/.test(event.key) && /^Key[A-Z]$/.test(event.code) ? event.code[3].toLowerCase() : event.key;
}

function move(step) {
  const rows = [...document.querySelectorAll("table.rows tbody tr a:first-of-type")].filter((link) => link.closest("tr").querySelector("a") === link);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + step))].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  const key = keyOf(event);
  if (isGoing) {
    isGoing = false;
    if (places[key]) location.assign(places[key]);
    return;
  }
  if (key === "/") {
    document.getElementById("search")?.focus();
    event.preventDefault();
  } else if (key === "?") document.getElementById("help")?.showModal();
  else if (key === "g") isGoing = true;
  else if (key === "r") document.dispatchEvent(new CustomEvent("peik:reload"));
  else if (key === "j") move(1);
  else if (key === "k") move(-1);
});

async function copy(button) {
  const place = button.previousElementSibling;
  const field = place.querySelector("input");
  const text = field ? field.value : place.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS there is no such clipboard; the old way needs what is copied to be chosen.
    if (field) field.select();
    else getSelection().selectAllChildren(place);
    if (!document.execCommand("copy")) return;
    getSelection().removeAllRanges();
  }
  const before = button.textContent;
  button.textContent = button.dataset.copied;
  setTimeout(() => (button.textContent = before), 1500);
}

document.addEventListener("click", (event) => {
  if (event.target.matches(".copy")) copy(event.target);
  const close = event.target.closest("[data-close]");
  if (close) {
    event.preventDefault();
    const fold = close.closest("details");
    fold.open = false;
    fold.querySelector("summary").focus();
  }
  for (const menu of document.querySelectorAll("details.menu[open], details.confirm[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

// A form that is under way is not sent once more: whoever presses twice means it once. After a while it may be tried again.
const AGAIN_MS = 5000;

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.getAttribute("method") !== "post" || event.defaultPrevented) return;  // `form.method` may be a field of that name
  if (form.hasAttribute("data-sent")) return event.preventDefault();
  form.setAttribute("data-sent", "");
  setTimeout(() => form.removeAttribute("data-sent"), AGAIN_MS);
});

// The page may come back as it was left.
addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => form.removeAttribute("data-sent")));

// Rows that are ticked: the bar of what can be done with them is there only while there are some.
const ticked = document.getElementById("ticked");

function tally() {
  const boxes = [...document.querySelectorAll("input[form=ticked]")];
  const count = boxes.filter((one) => one.checked).length;
  ticked.hidden = !count;
  ticked.querySelector("[data-ticked]").textContent = count ? new Intl.NumberFormat(`${document.documentElement.lang}-u-nu-latn`).format(count) : "";
  const all = document.querySelector("[data-tick-all]");
  if (!all) return;
  all.checked = count > 0 && count === boxes.length;
  all.indeterminate = count > 0 && count < boxes.length;
}

if (ticked) {
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-tick-all]")) for (const one of document.querySelectorAll("input[form=ticked]")) one.checked = event.target.checked;
    if (event.target.matches("[data-tick-all], input[form=ticked]")) tally();
  });
  document.addEventListener("peik:swapped", tally);
  tally();
}

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

// Of a form, what goes with the choice made above. What was filled in stays to be seen, so that nobody wonders why it is refused.
function fit(form, chosen) {
  for (const part of form.querySelectorAll("[data-for]")) {
    const isFilled = [...part.querySelectorAll("input:not([type=radio], [type=checkbox]), textarea")].some((one) => one.value.trim()) || part.querySelector("input:checked");
    part.hidden = !isFilled && !part.dataset.for.split(" ").includes(chosen);
  }
}

for (const choice of document.querySelectorAll("input[type=radio][name=what]")) {
  if (choice.checked) fit(choice.form, choice.value);
  choice.addEventListener("change", () => fit(choice.form, choice.value));
}

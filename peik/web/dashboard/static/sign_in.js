// A link may bring a key behind its #, which no server and no log ever sees: `peik demo` prints such a one. It is filled in and taken
// out of the address. Only a person signs in with it: otherwise a stranger's link could sign somebody in with the stranger's key.

const key = new URLSearchParams(location.hash.slice(1)).get("key");
if (key) {
  document.querySelector("input[name=key]").value = key;
  history.replaceState(null, "", location.pathname + location.search);
  document.querySelector("button.main").focus();
}

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && !/(^|; )peik_zone=/.test(document.cookie)) {
  document.cookie = `peik_zone=${zone.replaceAll("/", ".")}; path=/admin; max-age=31536000; samesite=lax`;
}

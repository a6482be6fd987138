// What is wrong with a page, in words. What is hidden, folded or scrolls on purpose is right.
() => {
  const faults = [];
  const name = (one) => `${one.tagName.toLowerCase()}.${one.className?.baseVal ?? one.className} "${(one.textContent ?? "").trim().slice(0, 40)}"`;
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((one) => {
      const box = one.getBoundingClientRect();
      return box.width && (box.right > root.clientWidth + 1 || box.left < -1) && !one.closest(".skip, .rows thead");
    });
    faults.push(`scrolls sideways: ${wide.slice(-3).map(name).join(", ")}`);
  }
  const isSeen = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".skip, thead, dialog:not([open])");
  for (const one of document.querySelectorAll("body *")) {
    if (!isSeen(one) || ["SELECT", "INPUT"].includes(one.tagName) || one.closest("svg")) continue;  // fields scroll
    const style = getComputedStyle(one);
    if (["hidden", "clip"].includes(style.overflowX) && style.textOverflow !== "ellipsis" && one.scrollWidth > one.clientWidth + 1) {
      faults.push(`cut off: ${name(one)}`);
    }
  }
  for (const one of document.querySelectorAll("svg.chart text")) {
    const [box, frame] = [one.getBoundingClientRect(), one.ownerSVGElement.getBoundingClientRect()];
    if (box.width && (box.left < frame.left - 1 || box.right > frame.right + 1)) faults.push(`cut off: ${name(one)}`);
  }
  // What is folded has a head to unfold it by.
  for (const one of document.querySelectorAll("main details")) {
    if (isSeen(one.parentElement) && !one.querySelector(":scope > summary").checkVisibility()) faults.push(`hidden: ${name(one)}`);
  }
  const controls = [...document.querySelectorAll("a, button, summary, input:not([type=hidden]), select, textarea")].filter(isSeen);
  // A bar that stays at the bottom of the screen covers what it still covers when the page is scrolled to its end.
  const bar = (one) => { while (one && getComputedStyle(one).position !== "fixed") one = one.parentElement; return one; };
  const isUnder = (part, fixed) => part.bottom + scrollY > root.scrollHeight - (innerHeight - fixed.getBoundingClientRect().top) + 2;
  const boxes = controls.filter((one) => getComputedStyle(one).opacity !== "0").map((one) => ({ one, parts: [...one.getClientRects()], bar: bar(one) }));
  for (let at = 0; at < boxes.length; at++) {
    for (let other = at + 1; other < boxes.length; other++) {
      const [a, b] = [boxes[at], boxes[other]];
      if (a.one.contains(b.one) || b.one.contains(a.one) || a.one.closest(".top") || b.one.closest(".top")) continue;
      const isOver = a.parts.some((p) => b.parts.some((q) =>
        p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 2 && q.top < p.bottom - 2
        && (!!a.bar === !!b.bar || (a.bar ? isUnder(q, a.bar) : isUnder(p, b.bar)))));
      if (isOver) faults.push(`covered: ${name(a.one)} and ${name(b.one)}`);
    }
  }
  for (const one of controls) {
    const words = [one.getAttribute("aria-label"), one.title, one.textContent, one.value, one.placeholder];
    const isField = one.matches("input, select, textarea");
    const labels = isField ? [...(one.labels ?? [])].map((label) => label.textContent.trim()) : [];
    const isNamed = isField ? one.getAttribute("aria-label") || labels.some(Boolean) : words.some((word) => word?.trim());
    if (!isNamed) faults.push(`nameless: ${one.outerHTML.slice(0, 120)}`);
  }
  return faults;
}

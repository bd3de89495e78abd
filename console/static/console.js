// Keeps an open page up to date: the server sends fragments, and each takes the place of the element with its id.
// Without this script the pages are whole; they are as new as their last load.
"use strict";

(() => {
  const address = document.body.dataset.events;
  const status = document.getElementById("status");
  const RETRY_MS = 5000;
  let source = null;
  let retry = 0;
  let isOut = false;

  function say(text) {
    if (status.textContent !== text) status.textContent = text;
  }

  // Where the keyboard was: an id, or the place among the links and buttons of the fragment.
  function focusIn(element) {
    const focused = document.activeElement;
    if (!focused || !element.contains(focused)) return null;
    const all = [...element.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")];
    return { id: focused.id, href: focused.getAttribute("href"), place: all.indexOf(focused) };
  }

  function restoreFocus(element, was) {
    if (!was) return;
    const all = [...element.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]")];
    const same =
      (was.id && all.find((one) => one.id === was.id)) ||
      (was.href && all.find((one) => one.getAttribute("href") === was.href)) ||
      all[was.place];
    if (same) same.focus({ preventScroll: true });
  }

  // What people opened stays open, what they closed stays closed, and a table that was scrolled stays where it was.
  function restoreState(before, after) {
    const known = new Map([...before.querySelectorAll("details[id]")].map((details) => [details.id, details.open]));
    for (const details of after.querySelectorAll("details[id]")) {
      if (known.has(details.id)) details.open = known.get(details.id);
    }
    const scrolled = [...before.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    [...after.querySelectorAll(".wide")].forEach((one, place) => {
      if (scrolled[place]) one.scrollLeft = scrolled[place];
    });
  }

  // Text that somebody is marking must not go away under the mouse.
  function isBeingRead(element) {
    const marked = document.getSelection();
    return Boolean(marked && !marked.isCollapsed && element.contains(marked.anchorNode));
  }

  function replace(id, html) {
    const element = document.getElementById(id);
    if (!element || isBeingRead(element)) return;
    const parsed = new DOMParser().parseFromString(html, "text/html").getElementById(id);
    if (!parsed) return;
    const fresh = document.importNode(parsed, true);
    const was = focusIn(element);
    element.replaceWith(fresh);
    restoreState(element, fresh);
    restoreFocus(fresh, was);
  }

  // A stream does not tell its browser why it was refused.
  async function sayIfOut() {
    try {
      const answer = await fetch(address, { method: "HEAD" });
      isOut = answer.status === 401;
      if (isOut) say("not up to date: this browser's session has ended; reload the page");
    } catch {
      // The console does not answer, which is said already.
    }
  }

  function open() {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("open", () => {
      isOut = false;
      say("live");
    });
    source.addEventListener("fragment", (event) => {
      const { id, html } = JSON.parse(event.data);
      replace(id, html);
    });
    source.addEventListener("trouble", (event) => {
      const { text } = JSON.parse(event.data);
      say(text ? `not up to date: ${text}` : "live");
    });
    source.addEventListener("error", () => {
      if (!isOut) say("not up to date: the console does not answer");
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        retry = window.setTimeout(open, RETRY_MS);
        sayIfOut();
      }
    });
  }

  function close() {
    window.clearTimeout(retry);
    if (source) source.close();
    source = null;
  }

  // Favourites are kept by the browser, for each cluster: the address of a page by its name.
  const FAVOURITES = `favourites of ${document.body.dataset.cluster}`;

  function favourites() {
    try {
      return new Map(JSON.parse(localStorage.getItem(FAVOURITES)) || []);
    } catch {
      return new Map();
    }
  }

  function showFavourites() {
    const found = favourites();
    for (const button of document.querySelectorAll("button[data-favourite]")) {
      const isOne = found.has(button.dataset.favourite);
      button.hidden = false;
      button.setAttribute("aria-pressed", String(isOne));
      button.textContent = isOne ? "★ a favourite" : "☆ make it a favourite";
    }
    for (const list of document.querySelectorAll("nav.favourites")) {
      const area = list.dataset.area;
      const links = [...found].filter(([, target]) => target.startsWith(`${area}?`) || target.startsWith(`${area}/`));
      list.hidden = links.length === 0;
      list.replaceChildren(
        ...links.map(([name, target]) => {
          const link = document.createElement("a");
          link.href = target;
          link.textContent = `★ ${name}`;
          return link;
        }),
      );
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-favourite]");
    if (!button) return;
    const found = favourites();
    const name = button.dataset.favourite;
    if (!found.delete(name)) found.set(name, location.pathname + location.search);
    localStorage.setItem(FAVOURITES, JSON.stringify([...found]));
    showFavourites();
  });
  window.addEventListener("pageshow", showFavourites);
  showFavourites();

  if (!address) return;
  // A page that nobody sees asks for nothing. Browsers also open only six connections to one address.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  // A page that comes back by the back button is as old as when it was left.
  window.addEventListener("pageshow", open);
  window.addEventListener("pagehide", close);
  open();
})();

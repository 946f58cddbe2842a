// The address of the console as signals. The address is the state of a page: each filter, tab and open dialog stands in it.
import { computed, signal } from "@preact/signals";
import { isAwaiting } from "../api/arrival";
import { gatewayPath } from "../api/base";

export const BASE = gatewayPath("/console");

type Place = { path: string; search: string };

function read(): Place {
  const path = location.pathname.startsWith(BASE) ? location.pathname.slice(BASE.length) : "";
  return { path: path.replace(/\/+$/, "") || "/", search: location.search };
}

const place = signal<Place>({ path: "/", search: "" });

/** The path below `/console`, with a leading slash and no trailing one. */
export const path = computed(() => place.value.path);
/** The parameters of the address. */
export const query = computed(() => new URLSearchParams(place.value.search));

/** Returns the parameter `name`, or an empty text. */
export const param = (name: string): string => query.value.get(name) ?? "";

/** Returns the address of a page, for `href`. */
export function href(to: string, parameters: Record<string, string | null | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value) search.set(name, value);
  const text = search.toString();
  return `${BASE}${to === "/" ? "/" : to}${text ? `?${text}` : ""}`;
}

/** Keeps the scroll position in the entry of the page that is left. */
function keepScroll(): void {
  history.replaceState({ ...history.state, scroll: window.scrollY }, "");
}

/** Goes to an address that `href` made. */
export function go(to: string, how: "push" | "replace" = "push"): void {
  if (how === "push") {
    keepScroll();
    history.pushState({}, "", to);
  } else {
    history.replaceState(history.state, "", to);
  }
  const before = place.value.path;
  place.value = read();
  if (how === "push" && before !== place.value.path) {
    window.scrollTo(0, 0);
    announcePage();
  }
}

/** Changes parameters of the address; an empty value removes one. */
export function setParams(changes: Record<string, string | null>, how: "push" | "replace" = "push"): void {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  go(`${BASE}${path.value === "/" ? "/" : path.value}${text ? `?${text}` : ""}`, how);
}

/** Returns the last part of a path, decoded. */
export function lastPart(path: string): string {
  const last = path.split("/").at(-1) ?? "";
  try {
    return decodeURIComponent(last);
  } catch {
    return last;
  }
}

/** Moves the focus to the content, so that the keyboard and screen readers begin at the new page. */
function announcePage(): void {
  requestAnimationFrame(() => document.getElementById("content")?.focus({ preventScroll: true }));
}

/** Matches a path with a pattern such as `/keys/:id`; returns the decoded parts, or null. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const found: Record<string, string> = {};
  for (const [i, part] of wanted.entries()) {
    const value = given[i] ?? "";
    if (part.startsWith(":")) {
      try {
        found[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return found;
}

/** Follows links inside the console without loading the page again. */
function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
  // A place on this page, such as that of the skip link, is the browser's own matter.
  if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
  event.preventDefault();
  if (link.href !== location.href) go(link.pathname + link.search + link.hash);
}

export function startRouter(): void {
  history.scrollRestoration = "manual";
  place.value = read();
  // A browser may drop what a page keeps while it is left, so the position is kept after each scroll as well: once the page
  // rests, because each change of the history costs the browser milliseconds.
  let resting = 0;
  addEventListener("scrollend", () => {
    clearTimeout(resting);
    resting = setTimeout(keepScroll, REST_MS);
  });
  addEventListener("popstate", () => {
    // The position of the page that is left is not the one of the entry that is entered.
    clearTimeout(resting);
    place.value = read();
    restoreScroll();
  });
  addEventListener("pagehide", keepScroll);
  document.addEventListener("click", follow);
  restoreScroll();
}

/**
 * Scrolls to where the page was when it was left, and keeps it there until what the page reads is there, because a page is lower
 * while it waits. A person who scrolls takes over.
 */
function restoreScroll(): void {
  const wanted: unknown = history.state?.scroll;
  if (typeof wanted !== "number" || wanted === 0) return window.scrollTo(0, 0);
  const until = performance.now() + RESTORE_MS;
  let isOver = false;
  const stop = (): void => {
    isOver = true;
    for (const name of HANDS) removeEventListener(name, stop);
  };
  for (const name of HANDS) addEventListener(name, stop, { passive: true });
  let readSince: number | null = null;
  const attempt = (now: number): void => {
    if (isOver) return;
    if (Math.abs(window.scrollY - wanted) > 2) window.scrollTo(0, wanted);
    readSince = isReading() ? null : (readSince ?? now);
    if (now > until || (readSince !== null && now > readSince + STEADY_MS)) stop();
    else requestAnimationFrame(attempt);
  };
  requestAnimationFrame(attempt);
}

/** True while the page lacks something that it reads. */
const isReading = (): boolean => isAwaiting() || document.querySelector("#content [aria-busy=true]") !== null;

/** What a person scrolls or leaves with. */
const HANDS = ["wheel", "touchstart", "pointerdown", "keydown", "popstate"] as const;
const RESTORE_MS = 10_000;
/** A page that has not scrolled for so long rests. */
const REST_MS = 150;
/** What was read is drawn within this time. */
const STEADY_MS = 500;

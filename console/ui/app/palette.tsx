// The search that `Ctrl K` opens: pages, actions, and everything that the gateway finds by name, id or prefix.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call, may } from "../api/client";
import type { FoundKind, FoundObject, FoundObjectList } from "../api/types";
import { Icon, type IconName } from "../part/icon";
import { shownPages } from "./nav";
import { preferences } from "./preferences";
import { go, href } from "./router";

type Entry = { title: string; note: string; icon: IconName; run: () => void };

/** Returns the entries whose title holds every word of `text`, those first whose title begins with it. */
export function matching<E extends { title: string }>(entries: E[], text: string): E[] {
  const wanted = text.trim().toLowerCase();
  const words = wanted.split(/\s+/).filter(Boolean);
  const found = entries.filter(({ title }) => words.every((word) => title.toLowerCase().includes(word)));
  const begins = (entry: E): number => (entry.title.toLowerCase().startsWith(wanted) ? 0 : 1);
  return found.sort((a, b) => begins(a) - begins(b));
}

export function Palette({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState("");
  const [here, setHere] = useState(0);
  // Before the next key arrives: letters typed at once go into the field.
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const found = useFound(text);
  const entries = [...pasted(text), ...matching(all(onHelp), text), ...found];
  const run = (entry: Entry | undefined): void => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const keys = (event: KeyboardEvent): void => {
    const count = entries.length || 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setHere((here + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(entries[here]);
    }
  };
  return (
    <dialog
      ref={dialog}
      class="dialog palette"
      aria-label="Search or jump to"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === event.currentTarget && onClose()}
    >
      <div class="dialog-box">
        <div class="combo">
          <Icon name="search" small />
          <input
            class="input"
            role="combobox"
            aria-label="Search or jump to"
            aria-expanded="true"
            aria-controls="palette"
            aria-autocomplete="list"
            aria-activedescendant={entries.length ? `palette-${here}` : undefined}
            placeholder="Search or jump to…"
            autocomplete="off"
            spellcheck={false}
            value={text}
            onInput={(e) => {
              setText(e.currentTarget.value);
              setHere(0);
            }}
            onKeyDown={keys}
          />
        </div>
        <div id="palette" role="listbox" aria-label="Found" class="palette-list">
          {entries.map((entry, i) => (
            <div
              key={`${entry.note} ${entry.title} ${i}`}
              id={`palette-${i}`}
              role="option"
              tabIndex={-1}
              aria-selected={i === here}
              class="option"
              onClick={() => run(entry)}
              onKeyDown={keys}
            >
              <Icon name={entry.icon} small />
              <span class="clip">{entry.title}</span>
              <span class="faint clip">{entry.note}</span>
            </div>
          ))}
        </div>
        {entries.length === 0 && <p class="help palette-none">Nothing fits.</p>}
      </div>
    </dialog>
  );
}

const PAGES_OF: Record<FoundKind, [icon: IconName, path: (id: string) => string]> = {
  request: ["list", (id) => `/requests/${id}`],
  endpoint: ["route", (id) => `/routes/${id}`],
  provider: ["plug", (id) => (may("administer") ? `/providers/${id}` : "/connections")],
  extension: ["plug", (id) => `/providers?tab=extensions&extension=${id}`],
  project: ["folder", (id) => `/access/projects/${id}`],
  human: ["user", (id) => `/access/humans/${id}`],
  key: ["key-round", (id) => `/keys/${id}`],
  model: ["boxes", () => "/models"],
  quota: ["gauge", (id) => `/quotas?edit=${id}`],
};

/** The part of a text that may be sent: of a pasted key, its public beginning alone. */
export const searchable = (text: string): string => {
  const wanted = text.trim();
  return wanted.startsWith("llmgw_") ? wanted.slice(0, KEY_PREFIX) : wanted;
};

/** What the gateway finds by name, id or prefix, once the text has not changed for a moment. */
function useFound(text: string): Entry[] {
  const [known, setKnown] = useState<{ wanted: string; found: FoundObject[] }>({ wanted: "", found: [] });
  const wanted = searchable(text);
  useEffect(() => {
    if (wanted.length < 2) return;
    let isOver = false;
    const timer = setTimeout(() => {
      const search = new URLSearchParams({ q: wanted, limit: "8" });
      call<FoundObjectList>("GET", `search?${search}`).then(
        ({ data }) => !isOver && setKnown({ wanted, found: data.data }),
        () => !isOver && setKnown({ wanted, found: [] }),
      );
    }, DELAY_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [wanted]);
  if (known.wanted !== wanted) return [];
  return known.found.map(({ kind, id, title, subtitle }) => {
    const [icon, path] = PAGES_OF[kind];
    const to = href(path(encodeURIComponent(id)), kind === "model" ? { q: id.slice(id.indexOf("/") + 1) } : {});
    return { title, note: [kind, subtitle].filter(Boolean).join(", "), icon, run: () => go(to) };
  });
}

const DELAY_MS = 150;
/** The length of the part of a key that is shown. */
const KEY_PREFIX = 12;

/** A pasted request id opens that request. */
function pasted(text: string): Entry[] {
  const id = text.trim();
  if (!/^req_[0-9a-z]+$/i.test(id)) return [];
  return [{ title: `Request ${id}`, note: "request", icon: "list", run: () => go(href(`/requests/${id}`)) }];
}

function all(onHelp: () => void): Entry[] {
  const pages = shownPages().flatMap(({ title, path, icon, tabs = [] }) =>
    [{ title, path }, ...tabs].map((page): Entry => ({ title: page.title, note: "page", icon, run: () => go(href(page.path)) })),
  );
  const mint: Entry = { title: "Mint a project key", note: "action", icon: "key-round", run: () => go(href("/keys", { new: "1" })) };
  const actions: Entry[] = [
    ...(may("mint_keys") ? [mint] : []),
    { title: "Switch between light and dark", note: "action", icon: "sun-moon", run: switchTheme },
    { title: "Switch between UTC and local time", note: "action", icon: "clock", run: switchZone },
    { title: "Show the keys", note: "action", icon: "keyboard", run: onHelp },
  ];
  return [...pages, ...actions];
}

function switchTheme(): void {
  preferences.theme.value = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
}

function switchZone(): void {
  preferences.zone.value = preferences.zone.value === "utc" ? "local" : "utc";
}

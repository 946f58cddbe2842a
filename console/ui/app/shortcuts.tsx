// Keys for everything. Single letters rest while a field has the focus, and can be switched off.
import { Dialog } from "../part/dialog";
import { shownPages } from "./nav";
import { preferences } from "./preferences";
import { go, href } from "./router";

type Overlays = { search: () => void; help: () => void };

/** True if letters belong to the element that has the focus. */
function takesText(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select");
}

const isDialogOpen = (): boolean => document.querySelector("dialog[open], [role=menu]:popover-open") !== null;

/** Moves the focus to the next or previous row of a list. The page of one record goes to the next or previous record. */
function moveRow(step: 1 | -1): void {
  const record = document.querySelector<HTMLElement>(step > 0 ? "[data-older]" : "[data-newer]");
  if (record) return record.click();
  const rows = [...document.querySelectorAll<HTMLElement>("a.row-link")];
  const here = rows.indexOf(document.activeElement as HTMLElement);
  const next = rows[here < 0 ? 0 : here + step];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function openRowMenu(): void {
  const row = document.activeElement?.closest("tr") ?? document;
  row.querySelector<HTMLElement>("[data-menu]")?.click();
}

const click = (selector: string): void => document.querySelector<HTMLElement>(selector)?.click();
const focus = (selector: string): void => document.querySelector<HTMLElement>(selector)?.focus();

/** Listens for keys until the returned function is called. */
export function startShortcuts({ search, help }: Overlays): () => void {
  let afterG = NEVER;
  const singles: Record<string, () => void> = {
    "/": search,
    "?": help,
    j: () => moveRow(1),
    k: () => moveRow(-1),
    // The way back stands above a record.
    Escape: () => click(".crumbs a"),
    ".": openRowMenu,
    n: () => click("[data-new]"),
    f: () => focus("[data-filter]"),
    t: () => focus("[data-period]"),
  };
  const pressed = (event: KeyboardEvent): void => {
    const strong = event.ctrlKey || event.metaKey;
    if (strong && event.key === "k" && !isDialogOpen()) {
      event.preventDefault();
      return search();
    }
    if (strong && event.key === "s") {
      event.preventDefault();
      const save = [...document.querySelectorAll<HTMLElement>("[data-save]:not(:disabled)")].at(-1);
      return save?.click();
    }
    if (strong || event.altKey || preferences.keys.value === "off" || takesText(event.target) || isDialogOpen()) return;
    if (performance.now() - afterG < GO_MS) {
      afterG = NEVER;
      const page = shownPages().find(({ key }) => key === event.key);
      if (page) {
        event.preventDefault();
        return go(href(page.path));
      }
    }
    if (event.key === "g") {
      afterG = performance.now();
      return;
    }
    const action = singles[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  };
  addEventListener("keydown", pressed);
  return () => removeEventListener("keydown", pressed);
}

export function Shortcuts({ onClose }: { onClose: () => void }) {
  const rows: [string[], string][] = [
    [["Ctrl K", "/"], "search"],
    ...shownPages()
      .filter(({ key }) => key)
      .map(({ key, title }): [string[], string] => [[`g ${key}`], title]),
    [["j", "k"], "next and previous row or record"],
    [["Enter", "Esc"], "open, close"],
    [["f", "t", "n"], "filter, period, new"],
    [["Ctrl S"], "save"],
    [["."], "actions of the row"],
    [["Space", "arrows"], "take and move a target"],
    [["?"], "this list"],
  ];
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys-list">
        {rows.map(([keys, does]) => (
          <div key={does} class="keys-row">
            <dt>
              {keys.map((key) => (
                <kbd key={key} class="kbd">
                  {key}
                </kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <p class="help">Single letters rest while a field has the focus. They can be switched off in Settings.</p>
    </Dialog>
  );
}

const GO_MS = 1500;
const NEVER = Number.NEGATIVE_INFINITY;

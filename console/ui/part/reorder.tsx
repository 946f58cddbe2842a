// A list whose items move: by buttons, by dragging, and by keyboard (Space takes and lays down, arrows move, Escape gives up).
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { Icon } from "./icon";

/** Returns the list with the item at `from` moved to `to`. */
export function moved<T>(items: T[], from: number, to: number): T[] {
  if (from === to || to < 0 || to >= items.length) return items;
  const next = [...items];
  const [item] = next.splice(from, 1);
  if (item !== undefined) next.splice(to, 0, item);
  return next;
}

type Props<T> = {
  items: T[];
  keyOf: (item: T) => string;
  /** How an item is called aloud. */
  nameOf: (item: T) => string;
  onItems: (items: T[]) => void;
  children: (item: T, index: number) => ComponentChildren;
  classOf?: (item: T) => string;
};

export function Reorder<T>({ items, keyOf, nameOf, onItems, children, classOf }: Props<T>) {
  const [taken, setTaken] = useState<string | null>(null);
  const [before, setBefore] = useState<T[]>([]);
  const [said, say] = useState("");
  const dragged = useRef<number | null>(null);
  const root = useRef<HTMLOListElement>(null);
  const move = (from: number, to: number): void => {
    const next = moved(items, from, to);
    if (next === items) return;
    onItems(next);
    say(`Place ${to + 1} of ${items.length}.`);
    requestAnimationFrame(() =>
      root.current?.children[to]?.querySelector<HTMLElement>(taken ? ".grip" : `[data-move="${to < from ? "up" : "down"}"]`)?.focus(),
    );
  };
  const keys = (event: KeyboardEvent, item: T, index: number): void => {
    const isTaken = taken === keyOf(item);
    if (event.key === " ") {
      event.preventDefault();
      setTaken(isTaken ? null : keyOf(item));
      setBefore(items);
      say(isTaken ? `Laid down at place ${index + 1}.` : `${nameOf(item)} taken. Arrows move it.`);
    } else if (isTaken && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      event.preventDefault();
      move(index, index + (event.key === "ArrowUp" ? -1 : 1));
    } else if (isTaken && event.key === "Escape") {
      event.preventDefault();
      onItems(before);
      setTaken(null);
      say("Given up.");
    }
  };
  return (
    <>
      <ol class="members" ref={root}>
        {items.map((item, i) => (
          <li
            key={keyOf(item)}
            class={`member ${taken === keyOf(item) ? "taken" : ""} ${classOf?.(item) ?? ""}`}
            onDragOver={(event) => event.preventDefault()}
            onDrop={(event) => {
              event.preventDefault();
              if (dragged.current !== null) move(dragged.current, i);
              dragged.current = null;
            }}
          >
            <button
              type="button"
              class="grip"
              draggable
              aria-label={`Move ${nameOf(item)}`}
              aria-pressed={taken === keyOf(item)}
              onKeyDown={(event) => keys(event, item, i)}
              onDragStart={() => {
                dragged.current = i;
              }}
            >
              <Icon name="grip-vertical" small />
            </button>
            <span class="place">{i + 1}</span>
            {children(item, i)}
            <div class="member-acts">
              <button
                type="button"
                class="btn plain square small"
                data-move="up"
                aria-label={`${nameOf(item)} up`}
                disabled={i === 0}
                onClick={() => move(i, i - 1)}
              >
                <Icon name="arrow-up" small />
              </button>
              <button
                type="button"
                class="btn plain square small"
                data-move="down"
                aria-label={`${nameOf(item)} down`}
                disabled={i === items.length - 1}
                onClick={() => move(i, i + 1)}
              >
                <Icon name="arrow-down" small />
              </button>
              <button
                type="button"
                class="btn plain square small"
                aria-label={`Remove ${nameOf(item)}`}
                onClick={() => onItems(items.filter((other) => other !== item))}
              >
                <Icon name="x" small />
              </button>
            </div>
          </li>
        ))}
      </ol>
      <p class="sr" aria-live="assertive">
        {said}
      </p>
    </>
  );
}

// A button that opens a menu of actions. Arrows move in it, Escape closes it, and the focus returns to the button.
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "./icon";

export type Item = { label: string; icon?: IconName; run: () => void; danger?: boolean; disabled?: boolean };

export function Menu({ label, items }: { label: string; items: Item[] }) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    const menu = list.current;
    const anchor = button.current;
    if (!open || !menu || !anchor) return;
    menu.showPopover();
    const box = anchor.getBoundingClientRect();
    const below = box.bottom + 4;
    menu.style.left = `${Math.max(8, Math.min(window.innerWidth - menu.offsetWidth - 8, box.right - menu.offsetWidth))}px`;
    menu.style.top = `${below + menu.offsetHeight > window.innerHeight ? Math.max(8, box.top - menu.offsetHeight - 4) : below}px`;
    menu.querySelector<HTMLElement>("[role=menuitem]:not(:disabled)")?.focus();
    const away = (event: Event): void => {
      if (event.target instanceof Node && !menu.contains(event.target) && !anchor.contains(event.target)) setOpen(false);
    };
    const scrolled = (): void => setOpen(false);
    addEventListener("pointerdown", away, true);
    addEventListener("scroll", scrolled, { passive: true });
    return () => {
      removeEventListener("pointerdown", away, true);
      removeEventListener("scroll", scrolled);
    };
  }, [open]);
  const keys = (event: KeyboardEvent): void => {
    const all = [...(list.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
    const here = all.indexOf(document.activeElement as HTMLElement);
    const moves: Record<string, number> = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: all.length - 1 };
    const next = moves[event.key];
    if (next !== undefined) {
      event.preventDefault();
      all.at(next % all.length)?.focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  return (
    <>
      <button
        ref={button}
        type="button"
        class="btn square small"
        data-menu
        aria-label={label}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") {
            event.preventDefault();
            setOpen(true);
          }
        }}
      >
        <Icon name="ellipsis" small />
      </button>
      {open && (
        <div ref={list} id={id} class="menu" role="menu" aria-label={label} popover="manual" tabIndex={-1} onKeyDown={keys}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={item.danger ? "menu-item danger" : "menu-item"}
              disabled={item.disabled}
              onClick={() => {
                close();
                item.run();
              }}
            >
              {item.icon && <Icon name={item.icon} small />}
              {item.label}
            </button>
          ))}
        </div>
      )}
    </>
  );
}

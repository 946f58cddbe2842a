// A text field with suggestions: type to filter, arrows to move, Enter to take, Escape to close.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { plural } from "./format";
import { Icon } from "./icon";

export type Suggestion = { value: string; title: ComponentChildren; text: string; note?: ComponentChildren };

/** The suggestions for a text. */
export type Suggested = {
  found: Suggestion[];
  /** True if others fit as well, which a longer text finds. */
  more: boolean;
};

/** Returns the suggestions for a text; they may come from the server. */
export type Suggest = (text: string) => Suggested | Promise<Suggested>;

/** The suggestions of a fixed set whose text holds what was typed. */
export function fitting(all: Suggestion[], text: string): Suggested {
  const wanted = text.trim().toLowerCase();
  return { found: all.filter((one) => `${one.text} ${one.note ?? ""}`.toLowerCase().includes(wanted)), more: false };
}

/** Suggestions of several kinds as one list. */
export const merged = (all: Suggested[]): Suggested => ({ found: all.flatMap(({ found }) => found), more: all.some(({ more }) => more) });

/** Suggestions without those of some values. */
export const without =
  (suggest: Suggest, values: string[]): Suggest =>
  async (text) => {
    const { found, more } = await suggest(text);
    return { found: found.filter(({ value }) => !values.includes(value)), more };
  };

type Props = {
  id?: string;
  name?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: "true";
  label: string;
  placeholder?: string | undefined;
  autoFocus?: boolean | undefined;
  suggest: Suggest;
  onPick: (value: string, picked: Suggestion) => void;
  /** The text of what is chosen, for a field that holds one choice; absent for a field that adds to others. */
  chosen?: string;
};

/** What was found, and the text for which. */
type Found = Suggested & { text: string; fault?: string };

export function Combobox({ label, placeholder, autoFocus, suggest, onPick, chosen, ...rest }: Props) {
  // Null while nothing was typed.
  const [typed, setTyped] = useState<string | null>(null);
  const [open, setOpen] = useState(false);
  const [found, setFound] = useState<Found | null>(null);
  const [here, setHere] = useState(0);
  const asked = useRef(0);
  const isEager = useRef(false);
  const input = useRef<HTMLInputElement>(null);
  const list = useId();
  const holds = chosen !== undefined;
  const text = typed ?? "";
  useEffect(() => {
    if (autoFocus) input.current?.focus();
  }, []);
  const close = (): void => {
    asked.current += 1;
    isEager.current = false;
    setOpen(false);
    // What is chosen stays, whatever was typed.
    if (holds) setTyped(null);
  };
  const pick = (suggestion: Suggestion | undefined): void => {
    if (!suggestion) return;
    close();
    setTyped(null);
    setFound(null);
    onPick(suggestion.value, suggestion);
  };
  useEffect(() => {
    if (!open) return;
    asked.current += 1;
    const mine = asked.current;
    const timer = setTimeout(async () => {
      const failed = (error: Error): Found => ({ text, found: [], more: false, fault: error.message });
      const answer = await Promise.resolve(suggest(text)).then((suggested): Found => ({ ...suggested, text }), failed);
      if (mine !== asked.current) return;
      if (isEager.current) return pick(answer.found[0]);
      setFound(answer);
      setHere(0);
    }, DELAY_MS);
    return () => clearTimeout(timer);
  }, [text, open]);
  const isShown = open && found !== null;
  useEffect(() => {
    if (isShown) document.getElementById(`${list}-${here}`)?.scrollIntoView({ block: "nearest" });
  }, [here, isShown]);
  const keys = (event: KeyboardEvent): void => {
    const rows = found?.found.length ?? 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      if (open && rows) setHere((here + (event.key === "ArrowDown" ? 1 : rows - 1)) % rows);
    } else if (event.key === "Enter" && open) {
      event.preventDefault();
      // What is listed may belong to an earlier text.
      if (found?.text === text) pick(found.found[here]);
      else isEager.current = true;
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  };
  return (
    <div
      class={holds ? "combo holds" : "combo"}
      onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && close()}
    >
      <Icon name={holds ? "chevrons-up-down" : "plus"} small />
      <input
        {...rest}
        ref={input}
        class="input"
        role="combobox"
        aria-label={rest.id ? undefined : label}
        aria-expanded={isShown}
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={isShown && found.found.length ? `${list}-${here}` : undefined}
        placeholder={placeholder}
        autocomplete="off"
        spellcheck={false}
        value={typed ?? chosen ?? ""}
        onInput={(e) => {
          setTyped(e.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => (holds ? input.current?.select() : setOpen(true))}
        onClick={() => setOpen(true)}
        onKeyDown={keys}
      />
      <div id={list} role="listbox" aria-label={`${label}: suggestions`} class="options" hidden={!isShown}>
        {found?.found.map((suggestion, i) => (
          <div
            key={suggestion.value}
            id={`${list}-${i}`}
            role="option"
            tabIndex={-1}
            aria-selected={i === here}
            class="option"
            onMouseDown={(event) => event.preventDefault()}
            onClick={() => pick(suggestion)}
            onKeyDown={keys}
          >
            <span class="clip">{suggestion.title}</span>
            {suggestion.note && <span class="faint clip">{suggestion.note}</span>}
          </div>
        ))}
        {found && restOf(found) && (
          <div class="option none" role="option" aria-selected="false" aria-disabled="true" tabIndex={-1}>
            {restOf(found)}
          </div>
        )}
      </div>
      {open && (
        <span class="sr" role="status">
          {isShown ? spoken(found) : ""}
        </span>
      )}
    </div>
  );
}

/** What stands below the suggestions. */
function restOf({ found, more, fault }: Found): string {
  if (fault) return fault;
  if (more) return found.length ? "More fit: type to narrow." : "None of the first fits: type to narrow.";
  return found.length ? "" : "Nothing fits.";
}

/** What is said about the suggestions to those who do not see them. */
function spoken(of: Found): string {
  if (of.fault) return of.fault;
  return `${of.found.length ? plural(of.found.length, "suggestion") : "No suggestion"}${of.more ? ", others with a longer text" : ""}.`;
}

const DELAY_MS = 120;

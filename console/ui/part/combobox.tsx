// A text field with suggestions: type to filter, arrows to move, Enter to take, Escape to close.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { Icon } from "./icon";

export type Suggestion = { value: string; title: ComponentChildren; text: string; note?: ComponentChildren };

type Props = {
  id?: string;
  name?: string;
  "aria-describedby"?: string;
  "aria-invalid"?: "true";
  label: string;
  placeholder?: string;
  autoFocus?: boolean;
  /** The suggestions for a text; they may come from the server. */
  suggest: (text: string) => Suggestion[] | Promise<Suggestion[]>;
  onPick: (value: string, picked: Suggestion) => void;
};

export function Combobox({ label, placeholder, autoFocus, suggest, onPick, ...rest }: Props) {
  const [text, setText] = useState("");
  const [open, setOpen] = useState(false);
  const [found, setFound] = useState<Suggestion[] | null>(null);
  const [here, setHere] = useState(0);
  const asked = useRef(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (autoFocus) input.current?.focus();
  }, []);
  const list = useId();
  useEffect(() => {
    if (!open) return;
    asked.current += 1;
    const mine = asked.current;
    const timer = setTimeout(async () => {
      const answer = await Promise.resolve(suggest(text)).catch(() => []);
      if (mine !== asked.current) return;
      setFound(answer);
      setHere(0);
    }, DELAY_MS);
    return () => clearTimeout(timer);
  }, [text, open]);
  const pick = (suggestion: Suggestion | undefined): void => {
    if (!suggestion) return;
    setText("");
    setFound(null);
    setOpen(false);
    onPick(suggestion.value, suggestion);
  };
  const keys = (event: KeyboardEvent): void => {
    const count = found?.length ?? 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      if (count) setHere((here + (event.key === "ArrowDown" ? 1 : count - 1)) % count);
    } else if (event.key === "Enter" && open) {
      event.preventDefault();
      pick(found?.[here]);
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      event.stopPropagation();
      setOpen(false);
    }
  };
  return (
    <div class="combo" onFocusOut={(event) => !event.currentTarget.contains(event.relatedTarget as Node | null) && setOpen(false)}>
      <Icon name="plus" small />
      <input
        {...rest}
        ref={input}
        class="input"
        role="combobox"
        aria-label={rest.id ? undefined : label}
        aria-expanded={open && found !== null}
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={open && found?.length ? `${list}-${here}` : undefined}
        placeholder={placeholder}
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onKeyDown={keys}
      />
      <div id={list} role="listbox" aria-label={label} class="options" hidden={!open || found === null}>
        {found?.map((suggestion, i) => (
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
        {found?.length === 0 && (
          <div class="option none" role="option" aria-selected="false" aria-disabled="true" tabIndex={-1}>
            Nothing fits.
          </div>
        )}
      </div>
    </div>
  );
}

const DELAY_MS = 120;

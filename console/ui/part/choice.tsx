// An allowlist: everything, or the entries that were chosen.
import { useId } from "preact/hooks";
import { Combobox, type Suggestion } from "./combobox";
import { Icon } from "./icon";

type Props = {
  label: string;
  /** What no restriction means. */
  all: string;
  value: string[] | null;
  onValue: (value: string[] | null) => void;
  suggest: (text: string) => Suggestion[] | Promise<Suggestion[]>;
  placeholder: string;
  /** The names of entries that are ids. */
  names?: Map<string, string>;
  error?: string | null;
};

export function Allowed({ label, all, value, onValue, suggest, placeholder, names, error }: Props) {
  const id = useId();
  return (
    <fieldset class="allowed">
      <legend>{label}</legend>
      <div class="seg">
        <button type="button" aria-pressed={value === null} onClick={() => onValue(null)}>
          {all}
        </button>
        <button type="button" aria-pressed={value !== null} onClick={() => onValue(value ?? [])}>
          Only these
        </button>
      </div>
      {value !== null && (
        <>
          <Combobox
            label={label}
            placeholder={placeholder}
            suggest={async (text) => (await suggest(text)).filter((found) => !value.includes(found.value))}
            onPick={(picked) => onValue([...value, picked])}
          />
          <div class="chosen">
            {value.map((entry) => (
              <span key={entry} class="tag">
                <span class="clip">{names?.get(entry) ?? entry}</span>
                <button
                  type="button"
                  aria-label={`Remove ${names?.get(entry) ?? entry}`}
                  onClick={() => onValue(value.filter((other) => other !== entry))}
                >
                  <Icon name="x" small />
                </button>
              </span>
            ))}
          </div>
          {value.length === 0 && <p class="help">An empty list permits nothing.</p>}
        </>
      )}
      {error && (
        <p class="help bad" id={id} role="alert">
          {error}
        </p>
      )}
    </fieldset>
  );
}

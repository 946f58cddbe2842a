// An allowlist: everything, or the entries that were chosen.
import { useId, useState } from "preact/hooks";
import { Combobox, type Suggest, without } from "./combobox";
import { Icon } from "./icon";

type Props = {
  label: string;
  /** What no restriction means. */
  all: string;
  value: string[] | null;
  onValue: (value: string[] | null) => void;
  suggest: Suggest;
  placeholder: string;
  /** The names of entries that are ids. */
  names?: Map<string, string>;
  error?: string | null;
};

export function Allowed({ label, all, value, onValue, suggest, placeholder, names, error }: Props) {
  const id = useId();
  // The names of what was chosen here, which `names` may not have.
  const [picked, setPicked] = useState<Record<string, string>>({});
  const nameOf = (entry: string): string => names?.get(entry) ?? picked[entry] ?? entry;
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
            suggest={without(suggest, value)}
            onPick={(entry, { text }) => {
              setPicked({ ...picked, [entry]: text });
              onValue([...value, entry]);
            }}
          />
          <div class="chosen">
            {value.map((entry) => (
              <span key={entry} class="tag">
                <span class="clip">{nameOf(entry)}</span>
                <button
                  type="button"
                  aria-label={`Remove ${nameOf(entry)}`}
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

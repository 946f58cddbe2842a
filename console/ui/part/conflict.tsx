// The dialog of a lost race: what was there before, what somebody else has saved meanwhile, and what is about to be saved.
import { useState } from "preact/hooks";
import { Dialog } from "./dialog";

export type Changes<T> = Partial<T>;

const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Returns the fields of `mine` that differ from `before`. */
export function changesOf<T extends object>(before: T, mine: T): Changes<T> {
  const changed = (Object.keys(mine) as (keyof T)[]).filter((field) => !same(before[field], mine[field]));
  return Object.fromEntries(changed.map((field) => [field, mine[field]])) as Changes<T>;
}

/** The fields that differ in any of the three states. */
export function contested<T extends object>(before: T, theirs: T, mine: T): (keyof T)[] {
  return (Object.keys(before) as (keyof T)[]).filter((field) => !same(before[field], theirs[field]) || !same(before[field], mine[field]));
}

/** Returns, field by field, what was changed: mine where only I have changed it, else theirs. */
export function merged<T extends object>(before: T, theirs: T, mine: T): T {
  return { ...theirs, ...changesOf(before, mine) };
}

type Props<T extends object> = {
  title: string;
  labels: Record<keyof T, string>;
  before: T;
  theirs: T;
  mine: T;
  show?: (value: unknown) => string;
  onSave: (wanted: T) => void;
  onClose: () => void;
};

function plain(value: unknown): string {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(plain).join(", ") || "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function Conflict<T extends object>({ title, labels, before, theirs, mine, show = plain, onSave, onClose }: Props<T>) {
  const fields = contested(before, theirs, mine);
  const [wanted, setWanted] = useState(() => merged(before, theirs, mine));
  return (
    <Dialog title={title} onClose={onClose} wide>
      <p class="prose">Somebody saved a change after this was opened. Choose for each field what holds.</p>
      <div class="table-wrap" role="group" aria-label="Differences" tabIndex={0}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Field</th>
              <th scope="col">Before</th>
              <th scope="col">Theirs</th>
              <th scope="col">Yours</th>
            </tr>
          </thead>
          <tbody>
            {fields.map((field) => (
              <tr key={String(field)}>
                <th scope="row">{labels[field]}</th>
                <td class="conflict-cell">{show(before[field])}</td>
                {(["theirs", "mine"] as const).map((side) => {
                  const value = (side === "mine" ? mine : theirs)[field];
                  return (
                    <td key={side} class="conflict-cell">
                      <label class="pick">
                        <input
                          type="radio"
                          name={String(field)}
                          checked={same(wanted[field], value)}
                          onChange={() => setWanted({ ...wanted, [field]: value })}
                        />
                        <span class="wrap">{show(value)}</span>
                      </label>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="dialog-foot">
        <button type="button" class="btn" onClick={onClose}>
          Back to the form
        </button>
        <button type="button" class="btn primary" data-save onClick={() => onSave(wanted)}>
          Save these
        </button>
      </div>
    </Dialog>
  );
}

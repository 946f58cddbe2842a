// The rules of one provider for errors of its upstream.
import type { ErrorRule, Provider } from "../../api/types";
import { EditDialog } from "../../part/edit";
import { Field, Select, Text } from "../../part/form";

type Rules = { errors: ErrorRule[] };

const LABELS: Record<keyof Rules, string> = { errors: "Rules" };

const STEPS: [ErrorRule["then"], string][] = [
  ["next", "try the next target"],
  ["retry", "try this target again"],
  ["rest", "let the model rest"],
  ["stop", "pass the error on"],
];

/** The rule with a part that was typed; a part that is empty fits any error. */
export function withPart(rule: ErrorRule, name: "status" | "contains", text: string): ErrorRule {
  const { [name]: _, ...rest } = rule;
  const value = name === "status" ? Number.parseInt(text, 10) : text;
  return value === "" || Number.isNaN(value) ? rest : { ...rest, [name]: value };
}

/** The rule with the step of this name. */
export function withStep(rule: Omit<ErrorRule, "then">, step: string): ErrorRule {
  const found = STEPS.find(([name]) => name === step)?.[0] ?? "next";
  // biome-ignore lint/suspicious/noThenProperty: the admin API calls the step so, and no rule is awaited.
  return { ...rule, then: found };
}

type Props = { of: Provider; path: string; etag: string | null; onSaved: () => void; onClose: () => void };

export function EditErrors({ of, path, etag, onSaved, onClose }: Props) {
  return (
    <EditDialog<Provider, Rules>
      title={`Rules of ${of.id} for errors`}
      path={path}
      of={of}
      etag={etag}
      fieldsOf={({ errors }) => ({ errors })}
      labels={LABELS}
      onSaved={onSaved}
      onClose={onClose}
    >
      {({ errors }, set) => (
        <Field
          label={LABELS.errors}
          name="errors"
          help="The first rule that fits an error applies, before the built-in table. The text is looked for in its code, type and message."
        >
          <div>
            {errors.map((rule, place) => {
              const change = (changed: ErrorRule): void => set({ errors: errors.map((other, at) => (at === place ? changed : other)) });
              return (
                <div key={place} class="row">
                  <Text
                    aria-label={`Status of rule ${place + 1}`}
                    inputMode="numeric"
                    placeholder="any status"
                    value={rule.status === undefined ? "" : String(rule.status)}
                    onValue={(text) => change(withPart(rule, "status", text))}
                  />
                  <Text
                    aria-label={`Text of rule ${place + 1}`}
                    placeholder="any text"
                    value={rule.contains ?? ""}
                    onValue={(text) => change(withPart(rule, "contains", text))}
                  />
                  <Select
                    aria-label={`Step of rule ${place + 1}`}
                    value={rule.then}
                    onValue={(step) => change(withStep(rule, step))}
                    options={STEPS}
                  />
                  <button type="button" class="btn" onClick={() => set({ errors: errors.filter((_, at) => at !== place) })}>
                    Remove
                  </button>
                </div>
              );
            })}
            <button
              type="button"
              class="btn"
              disabled={errors.length >= 20}
              onClick={() => set({ errors: [...errors, withStep({}, "next")] })}
            >
              Add a rule
            </button>
          </div>
        </Field>
      )}
    </EditDialog>
  );
}

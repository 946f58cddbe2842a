// Forms: labelled fields that show the server's error at the field it names, and the state of a submission.
import type { ComponentChildren, JSX } from "preact";
import { cloneElement, createContext } from "preact";
import { useContext, useId, useRef, useState } from "preact/hooks";
import { Fault, newRepeatKey, Unreachable } from "../api/client";

/** The error of the last submission, for the fields below. */
const FormFault = createContext<{ error: Error | null; shown: Set<string> }>({ error: null, shown: new Set() });

/** True if the server's `param` names the field `name` or a part of it. */
export function concerns(param: string | null, name: string): boolean {
  return param !== null && (param === name || param.startsWith(`${name}.`) || param.startsWith(`${name}[`));
}

export type Submission = {
  error: Error | null;
  busy: boolean;
  /** Runs an action with the name under which a repetition of the same input gets the first answer. */
  run: (input: unknown, action: (repeatKey: string) => Promise<void>) => Promise<void>;
  clear: () => void;
};

export function useSubmission(): Submission {
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const last = useRef({ input: "", key: "" });
  const run: Submission["run"] = async (input, action) => {
    const text = JSON.stringify(input) ?? "";
    // Only an attempt whose answer got lost may have been carried out; then its name is used again.
    if (last.current.input !== text || !(error instanceof Unreachable)) last.current = { input: text, key: newRepeatKey() };
    setBusy(true);
    setError(null);
    try {
      await action(last.current.key);
    } catch (fault) {
      setError(fault as Error);
    }
    setBusy(false);
  };
  return { error, busy, run, clear: () => setError(null) };
}

type FormProps = { submission: Submission; onSubmit: () => void; children: ComponentChildren; label?: string };

export function Form({ submission, onSubmit, children, label }: FormProps) {
  const shown = new Set<string>();
  return (
    <FormFault.Provider value={{ error: submission.error, shown }}>
      <form
        class="form"
        aria-label={label}
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (!submission.busy) onSubmit();
        }}
      >
        {children}
      </form>
    </FormFault.Provider>
  );
}

type FieldProps = {
  label: ComponentChildren;
  /** The name of the field in the admin API. */
  name: string;
  help?: ComponentChildren;
  optional?: boolean;
  children: JSX.Element;
};

/** A label, one control, its help, and the server's error about it. */
export function Field({ label, name, help, optional, children }: FieldProps) {
  const id = useId();
  const { error, shown } = useContext(FormFault);
  const wrong = error instanceof Fault && concerns(error.param, name) ? error.message : null;
  if (error instanceof Fault && error.param && wrong) shown.add(error.param);
  const described = [help ? `${id}-help` : "", wrong ? `${id}-wrong` : ""].filter(Boolean).join(" ");
  return (
    <div class="field">
      <label for={id}>
        {label}
        {optional && <span class="faint"> (optional)</span>}
      </label>
      {cloneElement(children, { id, name, "aria-describedby": described || undefined, "aria-invalid": wrong ? "true" : undefined })}
      {help && (
        <p class="help" id={`${id}-help`}>
          {help}
        </p>
      )}
      {wrong && (
        <p class="help bad" id={`${id}-wrong`} role="alert">
          {wrong}
        </p>
      )}
    </div>
  );
}

/** The error that no field shows. It stands below the fields. */
export function FormFooterError() {
  const { error, shown } = useContext(FormFault);
  if (error instanceof Fault && error.param && shown.has(error.param)) return null;
  return <FormError error={error} />;
}

type FormButtonsProps = {
  busy: boolean;
  submit: string;
  /** The text of the button while the form is busy. */
  submitting?: string;
  cancel?: string;
  /** Without it there is one button. */
  onCancel?: (() => void) | undefined;
  /** What the form lacks: it stands beside the button, which cannot be pressed. */
  lacks?: string | null | false;
  /** True if `Ctrl S` submits the form. */
  saves?: boolean;
};

/** The buttons below a form. */
export function FormButtons({
  busy,
  submit,
  submitting = submit,
  cancel = "Cancel",
  onCancel,
  lacks = null,
  saves = true,
}: FormButtonsProps) {
  const id = useId();
  return (
    <div class="dialog-foot">
      {lacks && (
        <p class="help" id={id}>
          {lacks}
        </p>
      )}
      {onCancel && (
        <button type="button" class="btn" onClick={onCancel}>
          {cancel}
        </button>
      )}
      <button
        type="submit"
        class="btn primary"
        data-save={saves ? "" : undefined}
        disabled={busy || !!lacks}
        aria-describedby={lacks ? id : undefined}
      >
        {busy ? submitting : submit}
      </button>
    </div>
  );
}

/** An error with the id under which the gateway's log has it. */
export function FormError({ error }: { error: Error | null }) {
  if (!error) return null;
  return (
    <div class="alert bad" role="alert">
      <p>{error.message}</p>
      {error instanceof Fault && error.requestId && (
        <p class="help">
          Request <span class="mono wrap">{error.requestId}</span>
        </p>
      )}
    </div>
  );
}

type CheckProps = { label: string; help?: string; checked: boolean; onChange: (checked: boolean) => void };

export function Check({ label, help, checked, onChange }: CheckProps) {
  const id = useId();
  return (
    <div class="check">
      <input
        id={id}
        type="checkbox"
        checked={checked}
        aria-describedby={help ? `${id}-help` : undefined}
        onChange={(e) => onChange(e.currentTarget.checked)}
      />
      <div>
        <label for={id}>{label}</label>
        {help && (
          <p class="help" id={`${id}-help`}>
            {help}
          </p>
        )}
      </div>
    </div>
  );
}

type TextProps = {
  value: string;
  onValue: (value: string) => void;
  type?: "text" | "date" | "email" | "password" | "search";
  placeholder?: string;
  inputMode?: "decimal" | "numeric" | "url";
  autoFocus?: boolean;
  list?: string;
  class?: string;
  "aria-label"?: string;
  "data-filter"?: boolean;
};

/** A field for a line of text. */
export function Text({ value, onValue, class: more = "", autoFocus, ...rest }: TextProps) {
  const given = { type: "text", ...rest } as JSX.IntrinsicElements["input"];
  return (
    <input
      {...given}
      class={`input ${more}`}
      autocomplete="off"
      spellcheck={false}
      autofocus={autoFocus}
      value={value}
      onInput={(e) => onValue(e.currentTarget.value)}
    />
  );
}

type SelectProps = {
  value: string;
  onValue: (value: string) => void;
  options: [value: string, label: string][];
  "aria-label"?: string;
  "data-filter"?: boolean;
  "data-period"?: boolean;
};

export function Select({ value, onValue, options, ...rest }: SelectProps) {
  return (
    <select {...rest} class="input select" value={value} onChange={(e) => onValue(e.currentTarget.value)}>
      {options.map(([value, label]) => (
        <option key={value} value={value}>
          {label}
        </option>
      ))}
    </select>
  );
}

/** A control of a row of filters with its name beside it. The control has an `aria-label` of its own. */
export function Labelled({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    <span class="labelled">
      <span class="faint" aria-hidden="true">
        {label}
      </span>
      {children}
    </span>
  );
}

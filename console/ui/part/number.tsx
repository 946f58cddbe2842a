// A field for a number. What is typed instead of one reaches the gateway as it is, and its answer stands at the field.
import { useState } from "preact/hooks";
import { Field, Text } from "./form";

/** A number, or the text that was typed instead of one. */
export type Typed = number | string;

/** Returns the number that a text stands for, in steps of a `unit`-th, or the text itself. */
export function typed(text: string, unit = 1): Typed {
  const number = text.trim() === "" ? Number.NaN : Number(text);
  if (Number.isNaN(number)) return text;
  return unit === 1 ? number : Math.round(number * unit);
}

type Props = {
  label: string;
  name: string;
  help?: string;
  value: Typed;
  /** The factor between what is typed and the value, such as 1,000,000 for dollars in micro-dollars. */
  unit?: number;
  onValue: (value: Typed) => void;
};

export function NumberField({ label, name, help, value, unit = 1, onValue }: Props) {
  const [text, setText] = useState(typeof value === "number" ? String(value / unit) : value);
  return (
    <Field label={label} name={name} help={help}>
      <Text
        inputMode="decimal"
        value={text}
        onValue={(text) => {
          setText(text);
          onValue(typed(text, unit));
        }}
      />
    </Field>
  );
}

// A field that holds one object of many: it searches by a part of the name on the server, keeps the ID and shows the name.
import { useState } from "preact/hooks";
import type { Source } from "../api/objects";
import { useResource } from "../api/resource";
import { Combobox, type Suggested } from "./combobox";

type Props = {
  id?: string;
  name?: string;
  label: string;
  value: string;
  /** The text of the value, if the page knows it; else the object is read. */
  text?: string | undefined;
  onValue: (value: string) => void;
  of: Source;
  /** Choices that are no objects, such as all of them: the value and the text. They come first. */
  fixed?: [value: string, text: string][];
  placeholder?: string;
  autoFocus?: boolean;
};

export function Chooser({ value, text, onValue, of, fixed = [], ...rest }: Props) {
  const [picked, setPicked] = useState({ value: "", text: "" });
  const known = fixed.find(([one]) => one === value)?.[1] ?? (picked.value === value ? picked.text : (text ?? null));
  const object = useResource<object>(value && known === null ? of.path(value) : null, { hasPlace: true });
  const isAsked = object.path !== "" && object.error.value === null;
  const suggest = async (typed: string): Promise<Suggested> => {
    const wanted = typed.trim().toLowerCase();
    const { found, more } = await of.suggest(typed);
    const others = fixed.filter(([, title]) => title.toLowerCase().includes(wanted));
    return { found: [...others.map(([value, text]) => ({ value, text, title: text })), ...found], more };
  };
  return (
    <Combobox
      {...rest}
      chosen={known ?? (object.data.value ? of.text(object.data.value) : isAsked ? "" : value)}
      suggest={suggest}
      onPick={(value, { text }) => {
        setPicked({ value, text });
        onValue(value);
      }}
    />
  );
}

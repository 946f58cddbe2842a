// The search field of a list: a part of a name, which stands in the address.
import { useEffect, useState } from "preact/hooks";
import { param, setParams } from "../app/router";
import { Text } from "./form";

/** The pause after which what was typed is searched for. */
const PAUSE_MS = 300;

export function Search({ label, placeholder = label }: { label: string; placeholder?: string }) {
  const wanted = param("q");
  const [text, setText] = useState(wanted);
  useEffect(() => setText(wanted), [wanted]);
  const search = (): void => {
    if (text.trim() !== wanted) setParams({ q: text.trim() }, "replace");
  };
  useEffect(() => {
    const timer = setTimeout(search, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <form
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        search();
      }}
    >
      <Text type="search" data-filter value={text} onValue={setText} placeholder={placeholder} aria-label={label} />
    </form>
  );
}

// What a write would do, asked before it is made.
import { useEffect, useState } from "preact/hooks";
import { call } from "./client";
import type { Effects } from "./shapes";

/** A write as it will be made. */
export type Write = { method: "POST" | "PATCH" | "PUT" | "DELETE"; path: string; body?: unknown; ifMatch?: string | number | null };

/** What is known of a write: its effects, or the fault that it would end with. */
export type Outlook = { effects: Effects | null; fault: Error | null };

const UNKNOWN: Outlook = { effects: null, fault: null };

/** Returns the outlook of a write once it has not changed for a moment. Both members are null until then, and without a write. */
export function useOutlook(write: Write | null): Outlook {
  const [known, setKnown] = useState<{ text: string; outlook: Outlook } | null>(null);
  const text = write ? JSON.stringify(write) : "";
  useEffect(() => {
    if (!write) return;
    let isOver = false;
    const { method, path, body, ifMatch } = write;
    const take = (outlook: Outlook): void => {
      if (!isOver) setKnown({ text, outlook });
    };
    const timer = setTimeout(() => {
      const asked = call<{ effects: Effects }>(method, `${path}${path.includes("?") ? "&" : "?"}dry_run=true`, { body, ifMatch });
      asked.then(
        ({ data }) => take({ effects: data.effects, fault: null }),
        (fault: Error) => take({ effects: null, fault }),
      );
    }, DELAY_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [text]);
  return known?.text === text ? known.outlook : UNKNOWN;
}

const DELAY_MS = 250;

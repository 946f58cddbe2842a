// The way from one request to the newer and the older one among those that fit the filters of the address.
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import type { FullRecord } from "../../api/shapes";
import type { Page as PageOf } from "../../api/types";
import { go, href, param } from "../../app/router";
import { notify } from "../../part/feedback";
import { Icon } from "../../part/icon";
import { usePeriod } from "../requests";
import { chosenFilters, keptParams } from "./filters";

type Side = "newer" | "older";

export function Neighbours({ of }: { of: FullRecord }) {
  const [busy, setBusy] = useState(false);
  const period = usePeriod(param("period"));
  const from = param("from") || period;
  const move = (side: Side): void => {
    if (busy) return;
    setBusy(true);
    const filters = Object.fromEntries(Object.entries({ ...chosenFilters(), from, to: param("to") }).filter(([, value]) => value));
    neighbour(of, side, filters)
      .then(
        (found) => {
          if (found) go(href(`/requests/${encodeURIComponent(found)}`, keptParams()));
          else notify(`There is no ${side} request${Object.keys(filters).length ? " that fits the filter" : ""}`);
        },
        (error: Error) => notify(error.message),
      )
      .finally(() => setBusy(false));
  };
  return (
    <div class="pair" role="group" aria-label="Neighbours">
      <button type="button" class="btn square" data-newer aria-label="Newer request (K)" onClick={() => move("newer")}>
        <Icon name="chevron-up" />
      </button>
      <button type="button" class="btn square" data-older aria-label="Older request (J)" onClick={() => move("older")}>
        <Icon name="chevron-down" />
      </button>
    </div>
  );
}

/** Returns the id of the next request on one side; null if there is none. */
async function neighbour(of: FullRecord, side: Side, filters: Record<string, string>): Promise<string | null> {
  const at = of.started_at_ms;
  if (side === "older") return olderOf(of, { ...filters, to: String(at + 1) });
  for (const span of SPANS_MS) {
    const until = Math.min(at + span, Number(filters.to ?? Number.POSITIVE_INFINITY));
    const { before } = await around(of, { ...filters, from: String(at), to: String(until) });
    if (before) return before;
    if (until >= Date.now()) break;
  }
  return null;
}

async function olderOf(of: FullRecord, query: Record<string, string>): Promise<string | null> {
  return (await around(of, query)).after;
}

/** The ids of the rows before and after a request in a list, newest first. */
async function around(of: FullRecord, query: Record<string, string>): Promise<{ before: string | null; after: string | null }> {
  let before: string | null = null;
  let cursor: string | null = null;
  let isFound = false;
  for (let pages = 0; pages < PAGES_MAX; pages += 1) {
    const search = new URLSearchParams({ ...query, limit: "200", ...(cursor ? { cursor } : {}) });
    const { data }: { data: PageOf<FullRecord> } = await call<PageOf<FullRecord>>("GET", `requests?${search}`);
    for (const { request_id } of data.data) {
      if (isFound) return { before, after: request_id };
      if (request_id === of.request_id) isFound = true;
      else before = request_id;
    }
    cursor = data.next_cursor;
    if (!cursor) break;
  }
  return { before: isFound ? before : null, after: null };
}

const PAGES_MAX = 20;
/** The times after a request in which a newer one is looked for: a short one first, because the nearest is the last of a page. */
const SPANS_MS = [10_000, 600_000, 86_400_000, 31 * 86_400_000, 3 * 366 * 86_400_000];

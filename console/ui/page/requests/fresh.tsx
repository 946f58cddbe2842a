// Says how many requests have come since the list was read. Nothing is inserted until the button is pressed: rows never move under the
// pointer, the focus or while the list is scrolled.
import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../../api/client";
import type { List } from "../../api/list";
import { useLive } from "../../api/live";
import type { FullRecord } from "../../api/shapes";
import type { Page as PageOf } from "../../api/types";

type Props = { list: List<FullRecord>; onShow: () => void };

export function Fresh({ list, onShow }: Props) {
  const found = useFresh(list);
  return (
    <div class="fresh" role="status">
      {found > 0 && (
        <button
          type="button"
          class="btn primary small"
          onClick={() => {
            window.scrollTo(0, 0);
            onShow();
          }}
        >
          {found >= ASKED ? `${ASKED} or more` : found} new
        </button>
      )}
    </div>
  );
}

/** The number of requests that fit the filters and are not in the list. It is asked for when the live stream says that some have ended. */
function useFresh(list: List<FullRecord>): number {
  const live = useLive();
  const [found, setFound] = useState(0);
  const state = useRef({ isDue: false, isAsking: false, askedAt: 0 });
  const readAt = list.readAt.value;
  useEffect(() => setFound(0), [list, readAt]);
  const figures = live.figures.value;
  useEffect(() => {
    const now = state.current;
    if (figures && figures.requests > 0) now.isDue = true;
    if (!now.isDue || now.isAsking || !list.isRead || performance.now() - now.askedAt < PAUSE_MS) return;
    Object.assign(now, { isDue: false, isAsking: true, askedAt: performance.now() });
    const before = list.readAt.peek();
    call<PageOf<FullRecord>>("GET", list.pathOf({ limit: String(ASKED) }))
      .then(({ data }) => {
        if (list.readAt.peek() === before) setFound(unknownOf(data.data, list));
      })
      .catch(() => undefined)
      .finally(() => {
        now.isAsking = false;
      });
  }, [figures, list]);
  return found;
}

/** The number of rows that the list does not have. Only the newest rows of the list matter. */
function unknownOf(rows: FullRecord[], list: List<FullRecord>): number {
  const first = list.first.peek() as PageOf<FullRecord> | null;
  const known = new Set(
    [...(first?.data ?? []), ...list.pages.peek().flatMap((page) => page.rows ?? [])].map(({ request_id }) => request_id),
  );
  return rows.filter(({ request_id }) => !known.has(request_id)).length;
}

/** The most requests that are counted. */
const ASKED = 100;
/** The least time between two questions. */
const PAUSE_MS = 3_000;

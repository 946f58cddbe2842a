// What administrators have set about one model, each from a day on, and its deletion.
import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { changed, useResource } from "../../api/resource";
import type { AuditRecord, CatalogOverride, Model, Page as PageOf } from "../../api/types";
import { Confirm } from "../../part/dialog";
import { notify } from "../../part/feedback";
import { day, moment, zoneName } from "../../part/format";
import { pricesInWords } from "./words";

/** The newest records of changed prices and facts, among which are those of the overrides that are shown. */
const CHANGES = new URLSearchParams({ object: "catalog_override", action: "catalog_override.create", limit: "500" });

export function Overrides({ of }: { of: Model }) {
  const search = new URLSearchParams({ provider: of.provider, model: of.model, limit: "100" });
  const overrides = useResource<PageOf<CatalogOverride>>(`catalog/overrides?${search}`).data.value?.data ?? [];
  const changes = useResource<PageOf<AuditRecord>>(overrides.length ? `audit?${CHANGES}` : null).data.value?.data ?? [];
  const [deleted, confirm] = useState<CatalogOverride | null>(null);
  if (overrides.length === 0) return <>none</>;
  const newestFirst = [...overrides].sort((one, other) => other.effective_from_ms - one.effective_from_ms);
  return (
    <>
      <ul class="overrides" aria-label="Overrides">
        {newestFirst.map((override) => (
          <li key={override.id}>
            <span class="grow wrap">
              {inWords(override)} <SetBy of={override} actor={changes.find(({ object_id }) => object_id === override.id)?.actor} />
            </span>
            <button
              type="button"
              class="btn small danger"
              aria-label={`Delete the override from ${day(override.effective_from_ms)}`}
              onClick={() => confirm(override)}
            >
              Delete
            </button>
          </li>
        ))}
      </ul>
      {deleted && (
        <Confirm
          title="Delete the override"
          action="Delete"
          onClose={() => confirm(null)}
          run={async () => {
            await call("DELETE", `catalog/overrides/${encodeURIComponent(deleted.id)}`);
            changed("catalog");
            notify(`The override of ${of.id} is deleted`);
          }}
        >
          <p>
            {overrides.length > 1 ? "The other overrides" : "The facts of the catalog"} apply to {of.id} again. Recorded requests keep their
            costs.
          </p>
        </Confirm>
      )}
    </>
  );
}

/** `From 3 Oct 2026: input $2.00, output $8.00`. */
function inWords({ effective_from_ms, facts }: CatalogOverride): string {
  const { prices, ...others } = facts;
  const names = Object.entries(others)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name]) => name.replace(/_/g, " "));
  const what = [...(prices ? [pricesInWords(prices)] : []), ...names].join("; ");
  return `${effective_from_ms ? `From ${day(effective_from_ms)}` : "Always"}: ${what}.`;
}

function SetBy({ of, actor }: { of: CatalogOverride; actor: string | undefined }) {
  return (
    <span class="muted">
      Set {moment(of.created_at_ms)} {zoneName()}
      {actor ? ` by ${actor}` : ""}.
    </span>
  );
}

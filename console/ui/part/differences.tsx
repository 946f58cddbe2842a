// What an adaptation does with each field of a request, as a table in a dialog. The address names the pair: `differences=messages-chat`.
import { useResource } from "../api/resource";
import type { Adaptation, AdaptationStep, Page as PageOf } from "../api/types";
import { param, setParams } from "../app/router";
import { Dialog } from "./dialog";
import { Loaded } from "./feedback";
import { capital } from "./format";

/** The fates of a field, in words: whether the upstream gets it. */
const FATES: Record<string, [word: string, className: string]> = {
  exact: ["kept", ""],
  mapped: ["translated", "accent"],
  hint: ["translated or left out", "warn"],
  rejected: ["rejected with 400", "bad"],
};

const SHOWN: [id: string, title: string, fates: string[]][] = [
  ["", "Changed", ["mapped", "hint"]],
  ["rejected", "Rejected", ["rejected"]],
  ["all", "All", Object.keys(FATES)],
];

/** Opens the table of a pair of protocols. */
export const showDifferences = (client: string, target: string): void => setParams({ differences: `${client}-${target}` });

/** The table that the address names. `dropped` are the members that one request lost besides. */
export function Differences({ dropped = [] }: { dropped?: string[] | undefined }) {
  const [client = "", target = ""] = param("differences").split("-");
  const search = new URLSearchParams({ client, target });
  const tables = useResource<PageOf<Adaptation>>(client && target ? `adaptations?${search}` : null);
  if (!client || !target) return null;
  const close = (): void => setParams({ differences: null, fate: null });
  return (
    <Dialog title={`${capital(client)} sent as ${target}`} onClose={close} wide>
      <Loaded resource={tables} rows={8} part>
        {({ data: [table] }) =>
          table ? (
            <>
              {dropped.length > 0 && (
                <p class="alert">
                  This request lost <span class="mono">{dropped.join(", ")}</span>: no protocol defines such members.
                </p>
              )}
              <Fates />
              {table.steps.map((step) => (
                <Fields key={step.from} of={step} isOnly={table.steps.length === 1} />
              ))}
            </>
          ) : (
            <p class="muted">
              There is no adaptation of {client} to {target}.
            </p>
          )
        }
      </Loaded>
    </Dialog>
  );
}

function Fates() {
  const fate = param("fate");
  return (
    <span class="seg" role="group" aria-label="Fields">
      {SHOWN.map(([id, title]) => (
        <button key={id} type="button" aria-pressed={id === fate} onClick={() => setParams({ fate: id }, "replace")}>
          {title}
        </button>
      ))}
    </span>
  );
}

function Fields({ of, isOnly }: { of: AdaptationStep; isOnly: boolean }) {
  const [, , fates = []] = SHOWN.find(([id]) => id === param("fate")) ?? SHOWN[0] ?? [];
  const label = `${capital(of.from)} to ${of.to}`;
  return (
    <>
      {!isOnly && <h3 class="group-title">{label}</h3>}
      <div class="table-wrap" role="group" aria-label={label} tabIndex={0}>
        <table class="table differences">
          <thead>
            <tr>
              <th scope="col">Field of the client</th>
              <th scope="col">It is</th>
              <th scope="col">At the target</th>
            </tr>
          </thead>
          <tbody>
            {of.fields
              .filter(({ fate }) => fates.includes(fate))
              .map(({ field, fate, note }) => (
                <tr key={field}>
                  <td class="mono wrap">{field}</td>
                  <td>
                    <span class={`tag ${FATES[fate]?.[1] ?? ""}`}>{FATES[fate]?.[0] ?? fate}</span>
                  </td>
                  <td class="wrap">{withCode(note)}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** A text whose parts between backticks are code. */
const withCode = (text: string) => text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part));

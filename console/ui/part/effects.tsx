// What a change does before it is made: who loses which selectors, which endpoints lose a target, and what will be missing.
import { useOutlook, type Write } from "../api/dry_run";
import type { Effects, KeyEffect } from "../api/shapes";
import { plural } from "./format";

const SHOWN_MAX = 5;

/** `ci-agents loses default and 2 more`. */
export function keyWords({ key, key_name, selectors, selectors_total: total }: KeyEffect, verb: string): string {
  const shown = selectors.slice(0, 3);
  const more = total - shown.length;
  return `${key_name ?? key} ${verb} ${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

export function EffectsList({ effects }: { effects: Effects | null }) {
  if (!effects) return null;
  const { loses, gains, keys_losing, keys_gaining, endpoints, warnings, complete } = effects;
  const isNothing = keys_losing + keys_gaining + endpoints.length + warnings.length === 0;
  return (
    <div class={isNothing ? "effects" : "effects alert"} role="status">
      {isNothing && <p class="help">{complete ? "No key loses or gains anything." : "No effect on keys was found in the time."}</p>}
      {endpoints.length > 0 && (
        <p class="wrap">
          {plural(endpoints.length, "endpoint")} lose{endpoints.length === 1 ? "s" : ""} a target: <b>{endpoints.join(", ")}</b>.
        </p>
      )}
      <Keys
        title={`${plural(keys_losing, "key")} lose${keys_losing === 1 ? "s" : ""} something`}
        of={loses}
        verb="loses"
        total={keys_losing}
      />
      <Keys
        title={`${plural(keys_gaining, "key")} gain${keys_gaining === 1 ? "s" : ""} something`}
        of={gains}
        verb="gains"
        total={keys_gaining}
      />
      {warnings.map(({ code, message }) => (
        <p key={`${code} ${message}`} class="warning wrap">
          {message}
        </p>
      ))}
      {!complete && !isNothing && <p class="help">More keys may be affected.</p>}
    </div>
  );
}

/** What a write would do if it were made now, or why it cannot be made. It stands in the dialog that asks before. */
export function WriteOutlook({ write }: { write: Write }) {
  const { effects, fault } = useOutlook(write);
  if (fault)
    return (
      <p class="alert warn wrap" role="status">
        {fault.message}
      </p>
    );
  return effects ? <EffectsList effects={effects} /> : <p class="help">Looking for what depends on it…</p>;
}

function Keys({ title, of, verb, total }: { title: string; of: KeyEffect[]; verb: string; total: number }) {
  if (total === 0) return null;
  return (
    <>
      <p>{title}:</p>
      <ul class="effects-keys">
        {of.slice(0, SHOWN_MAX).map((effect) => (
          <li key={effect.key} class="wrap">
            {keyWords(effect, verb)}
          </li>
        ))}
        {total > SHOWN_MAX && <li>and {plural(total - SHOWN_MAX, "key")} more</li>}
      </ul>
    </>
  );
}

// The editor's draft of an endpoint: what it holds, what it changes, and how the configuration file writes it.
import type { Endpoint, Target } from "../../api/types";
import { sameTarget } from "../routes";

export type Draft = { failover: Target[]; preamble: string };

export const draftOf = (of: Endpoint): Draft => ({ failover: of.failover, preamble: of.preamble ?? "" });
export const idOf = ({ provider, model }: Target): string => `${provider}/${model}`;

/** The number of the place from which a target was moved up; null if it was not. */
export function movedFrom(before: Draft, draft: Draft, target: Target): number | null {
  const from = before.failover.findIndex((other) => sameTarget(other, target));
  if (from < 0) return null;
  const staying = before.failover.filter((other) => draft.failover.some((now) => sameTarget(now, other)));
  const old = staying.findIndex((other) => sameTarget(other, target));
  const now = draft.failover
    .filter((other) => before.failover.some((was) => sameTarget(was, other)))
    .findIndex((other) => sameTarget(other, target));
  return now < old ? from + 1 : null;
}

/** What a draft changes, in words. */
export function changesOf(before: Draft, draft: Draft): string[] {
  const said: string[] = [];
  draft.failover.forEach((target, to) => {
    if (!before.failover.some((other) => sameTarget(other, target))) said.push(`${idOf(target)} added`);
    else if (movedFrom(before, draft, target) !== null) said.push(`${idOf(target)} moved up to ${to + 1}`);
  });
  for (const target of before.failover)
    if (!draft.failover.some((other) => sameTarget(other, target))) said.push(`${idOf(target)} removed`);
  if (before.preamble !== draft.preamble) said.push("preamble changed");
  return said;
}

/** The draft as the configuration file has it. A JSON text is a YAML value. */
export function yamlOf(name: string, { failover, preamble }: Draft): string {
  const value = (text: string): string => (/^[A-Za-z][A-Za-z0-9._/-]*$/.test(text) && !RESERVED.test(text) ? text : JSON.stringify(text));
  return [
    "endpoints:",
    `  ${value(name)}:`,
    ...(preamble ? [`    preamble: ${JSON.stringify(preamble)}`] : []),
    "    failover:",
    ...failover.map(({ provider, model }) => `      - {provider: ${value(provider)}, model: ${value(model)}}`),
    "",
  ].join("\n");
}

/** Words that YAML would not read as text. */
const RESERVED = /^(true|false|yes|no|on|off|null|y|n)$/i;

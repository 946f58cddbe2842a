// The editor's draft of an endpoint: what it holds, what it changes, and how the configuration file writes it.
import type { Endpoint, EndpointContent, Target, TargetBody, TargetOrder } from "../../api/types";
import { sameTarget } from "../routes";

export type Draft = {
  failover: Target[];
  order: TargetOrder;
  sticky: boolean | null;
  also: string[];
  preamble: string;
  cursor_bodies: boolean;
};

export const draftOf = ({ failover, order, sticky, also, preamble, cursor_bodies }: Endpoint): Draft => ({
  failover,
  order,
  sticky,
  also,
  preamble: preamble ?? "",
  cursor_bodies,
});
export const idOf = ({ provider, model }: Target): string => `${provider}/${model}`;

/** The content to store: without settings that would have no effect, which the gateway refuses. */
export function contentOf({ failover, order, sticky, also, preamble, cursor_bodies }: Draft): Required<EndpointContent> {
  const isAlone = failover.length < 2;
  const used = isAlone ? "listed" : order;
  return {
    failover: failover.map((target) => withoutUseless(target, used)),
    order: used,
    sticky: isAlone ? null : sticky,
    also,
    preamble: preamble || null,
    cursor_bodies,
  };
}

function withoutUseless({ provider, model, weight, tier, first_content_timeout }: Target, order: TargetOrder): Target {
  const keepsWeight = order === "cheapest" ? weight === 0 : order !== "listed";
  return {
    provider,
    model,
    ...(keepsWeight && weight !== undefined ? { weight } : {}),
    ...(order !== "listed" && tier !== undefined ? { tier } : {}),
    ...(first_content_timeout !== undefined ? { first_content_timeout } : {}),
  };
}

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
    const was = before.failover.find((other) => sameTarget(other, target));
    if (!was) said.push(`${idOf(target)} added`);
    else if (movedFrom(before, draft, target) !== null) said.push(`${idOf(target)} moved up to ${to + 1}`);
    if (was && was.weight !== target.weight) said.push(`weight of ${idOf(target)} ${target.weight ?? 1}`);
    if (was && was.tier !== target.tier) said.push(`tier of ${idOf(target)} ${target.tier ?? 1}`);
    if (was && was.first_content_timeout !== target.first_content_timeout)
      said.push(`first content of ${idOf(target)} within ${target.first_content_timeout ?? "the time of its provider"}`);
  });
  for (const target of before.failover)
    if (!draft.failover.some((other) => sameTarget(other, target))) said.push(`${idOf(target)} removed`);
  if (before.order !== draft.order) said.push(`order ${draft.order.replace("_", " ")}`);
  if (before.sticky !== draft.sticky) said.push(staysWith(draft) ? "sessions stay" : "sessions do not stay");
  for (const name of draft.also) if (!before.also.includes(name)) said.push(`name ${name} added`);
  for (const name of before.also) if (!draft.also.includes(name)) said.push(`name ${name} removed`);
  if (before.preamble !== draft.preamble) said.push("preamble changed");
  if (before.cursor_bodies !== draft.cursor_bodies) said.push(`bodies of Cursor ${draft.cursor_bodies ? "accepted" : "refused"}`);
  return said;
}

/** Whether sessions stay at their target. */
export const staysWith = ({ order, sticky }: Pick<Draft, "order" | "sticky">): boolean => sticky ?? order !== "listed";

/** The draft as the configuration file has it. A JSON text is a YAML value. */
export function yamlOf(name: string, draft: Draft): string {
  const value = (text: string): string => (/^[A-Za-z][A-Za-z0-9._/-]*$/.test(text) && !RESERVED.test(text) ? text : JSON.stringify(text));
  const { failover, order, sticky, also, preamble, cursor_bodies } = contentOf(draft);
  const share = ({ weight, tier, first_content_timeout: limit }: TargetBody): string =>
    `${weight == null ? "" : `, weight: ${weight}`}${tier == null ? "" : `, tier: ${tier}`}${limit == null ? "" : `, first_content_timeout: ${limit}`}`;
  return [
    "endpoints:",
    `  ${value(name)}:`,
    ...(preamble ? [`    preamble: ${JSON.stringify(preamble)}`] : []),
    ...(also.length ? [`    also: [${also.map(value).join(", ")}]`] : []),
    ...(order === "listed" ? [] : [`    order: ${order}`]),
    ...(sticky === null ? [] : [`    sticky: ${sticky}`]),
    ...(cursor_bodies ? ["    cursor_bodies: true"] : []),
    "    failover:",
    ...failover.map((target) => `      - {provider: ${value(target.provider)}, model: ${value(target.model)}${share(target)}}`),
    "",
  ].join("\n");
}

/** Words that YAML would not read as text. */
const RESERVED = /^(true|false|yes|no|on|off|null|y|n)$/i;

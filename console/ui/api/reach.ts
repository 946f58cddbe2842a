// The gateways that share a database: which one answers, and how far the last change of this page has come among them.
import { signal } from "@preact/signals";

/** The name of this gateway among those that share its database; null for one with its own. */
export const nodeName = signal<string | null>(null);

export type Reach = {
  /** False if the change is stored, but not in force everywhere. */
  isPublished: boolean;
  /** The numbers of nodes that are not heard of and may still serve by the state before. */
  silent: number[];
};

/** The reach of the last change; null if it is in force everywhere, or was seen. */
export const reach = signal<Reach | null>(null);

/** Takes the reach from the answer to a change. */
export function seeReach(headers: Headers): void {
  const isPublished = headers.get("x-llmgw-published") !== "false";
  const silent = (headers.get("x-llmgw-silent-nodes") ?? "").split(",").map(Number).filter(Boolean);
  reach.value = isPublished && silent.length === 0 ? null : { isPublished, silent };
}

/** `Saved. The node n2 is not heard of and may still serve by the state before.` */
export function reachWords({ isPublished, silent }: Reach, names: Map<number, string>): string {
  const unpublished = isPublished ? "" : " It is not in force everywhere yet: the gateway goes on trying.";
  if (silent.length === 0) return `Saved.${unpublished}`;
  const named = silent.map((node) => names.get(node) ?? String(node));
  const [nodes, are, serve] = named.length === 1 ? ["node", "is", "it may"] : ["nodes", "are", "they may"];
  return `Saved.${unpublished} The ${nodes} ${named.join(", ")} ${are} not heard of: ${serve} still serve by the state before.`;
}

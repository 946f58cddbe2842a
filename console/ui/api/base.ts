// Where the gateway is, as this browser knows it: at the root of its host, or below the path at which a proxy publishes it.

/** The path of the gateway, without a slash at its end: what stands before /console in the address of this script. */
const path = pathOf(import.meta.url);

/** Returns the path of the gateway whose console `script` belongs to. */
export function pathOf(script: string): string {
  const { protocol, pathname } = new URL(script);
  return protocol.startsWith("http") ? pathname.slice(0, Math.max(0, pathname.lastIndexOf("/console/"))) : "";
}

/** Returns the address of one of the gateway's paths, on the same host. */
export const gatewayPath = (of: string): string => path + of;

/** The address that clients of the gateway use. */
export const gatewayOrigin = (): string => location.origin + path;

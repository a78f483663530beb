/** The part of Bun's server that knows a connection's other end. */
export type ConnectionInfo = { requestIP(request: Request): { address: string } | null }

/** The address of the socket's other end; null when the connection has none, as on a Unix socket. */
export function clientAddress(request: Request, connection: ConnectionInfo | null): string | null {
  return connection?.requestIP(request)?.address ?? null
}

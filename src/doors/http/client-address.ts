import { isAddressListed, isAddressOrRange } from '../../lib/address.ts'
import type { RequestReader } from './request-reader.ts'

/**
 * The client's address: the other end of the socket, or, when that is a trusted proxy, the address that the proxy names.
 *
 * In `X-Forwarded-For` each proxy appends the address that it saw, so the last entry is from the nearest proxy. The list is
 * read from the right while the addresses are those of trusted proxies; the first other address is the client's. Entries
 * further left may be forged. `True-Client-IP` and `CF-Connecting-IP` are used only without `X-Forwarded-For`: a proxy that
 * sets `X-Forwarded-For` may pass on a client's own copy of the other two.
 * @param trustedProxies Addresses and CIDR ranges.
 * @returns null when the address is unknown, as on a Unix socket, or when the proxy names no valid address.
 */
export function clientAddress(incoming: RequestReader, trustedProxies: readonly string[]): string | null {
  const peer = incoming.peerAddress()
  if (peer === null || !isAddressListed(peer, trustedProxies)) return peer
  const forwarded = incoming.header('x-forwarded-for')
  if (forwarded !== null) return lastUntrusted(forwarded, trustedProxies)
  const named = incoming.header('true-client-ip') ?? incoming.header('cf-connecting-ip')
  return named === null ? peer : readAddress(named)
}

function lastUntrusted(forwarded: string, trustedProxies: readonly string[]): string | null {
  const hops = forwarded.split(',').slice(-HOPS_MAX)
  let address: string | null = null
  for (const hop of hops.reverse()) {
    address = readAddress(hop)
    if (address === null || !isAddressListed(address, trustedProxies)) return address
  }
  return address
}

/** Longest chain of proxies that is read. */
const HOPS_MAX = 32

/** Some proxies add a port: `192.0.2.1:443`, `[2001:db8::1]:443`. */
function readAddress(text: string): string | null {
  const address = text
    .trim()
    .replace(/^\[([^\]]*)\](:\d+)?$/, '$1')
    .replace(/^([\d.]+):\d+$/, '$1')
  return !address.includes('/') && isAddressOrRange(address) ? address : null
}

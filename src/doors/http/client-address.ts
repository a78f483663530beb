import { isAddressListed, isAddressOrRange } from '../../lib/address.ts'
import type { RequestReader } from './request-reader.ts'

/**
 * The client's address: the other end of the socket, or, when that is a trusted proxy, what the proxy says. Of
 * `X-Forwarded-For` the last entry was added by the proxy we talk to, the one before it by the proxy before, and so on;
 * so it is read from the right for as long as the address is a trusted proxy's, and whatever a client put in front of it
 * counts for nothing. `True-Client-IP` and `CF-Connecting-IP` count where there is no `X-Forwarded-For`: a proxy that
 * sends the one may pass on a client's own copy of the others.
 * @param trustedProxies Addresses and CIDR ranges.
 * @returns null when the address is not known, as on a Unix socket, or when what a proxy says is no address.
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

/** More proxies than this do not stand in a row. */
const HOPS_MAX = 32

/** Some proxies add the port: `192.0.2.1:443`, `[2001:db8::1]:443`. */
function readAddress(text: string): string | null {
  const address = text
    .trim()
    .replace(/^\[([^\]]*)\](:\d+)?$/, '$1')
    .replace(/^([\d.]+):\d+$/, '$1')
  return !address.includes('/') && isAddressOrRange(address) ? address : null
}
